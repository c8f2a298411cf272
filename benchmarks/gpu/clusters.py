"""``python -m benchmarks gpu.clusters``: DBSCAN of a cuDF DataFrame on GPUs, against
cuML.

Points have 2 dimensions, float32: uniform ones with ten neighbors each, and blobs of
different scales with noise.  On one GPU each tool has a process of its own.  Results
are median seconds of some runs after a first one, and peaks of device memory.  RMM and
the driver measure peaks beyond the points.  cuML decides in float32, so rows with other
labels are counted, whatever the numbers of the clusters.  With --workers, points are
also spread over several GPUs, and compared with one.

The exit status is 1 if ours fails, or if our labels differ from the CPU's (for
--check-rows at most) or from one GPU's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.clusters_worker import OURS, PEERS, cluster_apart, result_of
from benchmarks.harness.cluster_points import POINTS, Points, differences
from benchmarks.harness.lazy import progress, save, scratch, table

SPREAD = ("entity", "spatial")
"""Partitionings that give no worker all points."""

PARTS = 4
"""Partitions of the points that each GPU holds."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.clusters", description=__doc__
    )
    parser.add_argument(
        "--points",
        nargs="+",
        choices=POINTS,
        default=list(POINTS),
        metavar="POINTS",
        help=f"of {', '.join(POINTS)}",
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=PEERS,
        default=list(PEERS),
        metavar="PEER",
        help=f"of {', '.join(map(repr, PEERS))}; none: only this package",
    )
    parser.add_argument(
        "--brute-rows",
        type=int,
        default=1_000_000,
        help="brute force on so many at most",
    )
    parser.add_argument(
        "--check-rows",
        type=int,
        default=1_000_000,
        help="compared with the CPU, likewise",
    )
    parser.add_argument(
        "--batch-mbytes",
        type=int,
        help="cuML's max_mbytes_per_batch (default: its own)",
    )
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs after a first one (default 3)"
    )
    parser.add_argument(
        "--workers", type=int, default=0, help="GPUs of the second part (default: none)"
    )
    parser.add_argument(
        "--worker-rows",
        type=int,
        nargs="+",
        default=[10_000_000],
        help="of --rows, those of the second part (default 10,000,000)",
    )
    parser.add_argument("--protocol", choices=("tcp", "ucx"), default="tcp")
    parser.add_argument(
        "--blocksize",
        default="128 MiB",
        help="of a chunk, if there are several (128 MiB)",
    )
    parser.add_argument(
        "--patience", type=float, default=150, help="seconds until a tool is given up"
    )
    parser.add_argument("--folder", type=Path, help="for temporary files")
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def one_gpu(
    points: Points, n: int, options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Measure all tools on `n` points, and compare the peers' labels with ours."""
    tools = [
        peer
        for peer in options.peers
        if n <= options.brute_rows or PEERS[peer] != "brute"
    ]
    asked = {
        "repeat": options.repeat,
        "check": n <= options.check_rows,
        "mbytes": options.batch_mbytes,
    }
    found: dict[str, Any] = {
        "points": points.name,
        "rows": n,
        "eps": points.eps(n),
        "min_samples": points.min_samples,
    }
    for tool in (OURS, *tools):
        file = points_file(folder, points, n)
        found[tool] = one = cluster_apart(
            tool, points.name, file, folder, asked, options.patience
        )
        ours = found[OURS]
        if tool != OURS and "failed" not in one and "failed" not in ours:
            one["differ"] = differences(
                np.load(folder / f"{OURS}-labels.npy"),
                np.load(folder / f"{tool}-labels.npy"),
                np.load(folder / "core.npy"),
            )
            one["times"] = {"faster": one["clock"]["median"] / ours["clock"]["median"]}
            for how, peak in (("RMM", _counted), ("driver", _seen)):
                theirs, own = peak(one), peak(ours)
                one["times"][f"less memory, {how}"] = (
                    theirs / own if theirs and own else None
                )
        progress(f"{points.name} {n:,}, {tool}: {one}")
    return found


def _counted(one: dict[str, Any]) -> int | None:
    return one["peak_rmm"]


def _seen(one: dict[str, Any]) -> int | None:
    """Return the driver's peak bytes above those before, or None if nothing sampled it."""
    return one["driver"]["above"] if isinstance(one["driver"], dict) else None


def points_file(folder: Path, points: Points, n: int) -> Path:
    """Return the file of points (n, 2), float32, which is made once."""
    file = folder / f"{points.name}-{n}.npy"
    if not file.exists():
        np.save(file, points.points(n).astype(np.float32))
    return file


def several_gpus(
    results: list[dict[str, Any]], options: argparse.Namespace, folder: Path
) -> list[dict[str, Any]]:
    """Cluster the same points on one worker and on all; compare labels with one GPU's."""
    cases = []
    for one in results:
        if one["rows"] not in options.worker_rows:
            continue
        file = points_file(folder, POINTS[one["points"]], one["rows"])
        base = {
            "points": one["points"],
            "file": str(file),
            "parts": PARTS * options.workers,
            "repeat": options.repeat,
            "protocol": options.protocol,
        }
        numbers = dict.fromkeys((1, options.workers))
        ways = [
            (1, "auto", None),
            *((w, way, options.blocksize) for w in numbers for way in SPREAD),
        ]
        for workers, way, blocksize in ways:
            name = f"{one['points']} {one['rows']:,} on {workers}, {way}"
            cases.append(
                base
                | {
                    "name": name,
                    "workers": workers,
                    "partitioning": way,
                    "blocksize": blocksize,
                }
            )
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu.clusters_workers",
        json.dumps(cases),
    ]
    patience = options.patience * max(1, len(cases) // 2)
    try:
        # its messages and Dask's go to our own standard error
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=patience, check=False
        )
        found: Any = result_of(done)
    except subprocess.TimeoutExpired:
        found = {"failed": f"given up after {patience:g} s"}
    if isinstance(found, dict):  # the run failed as a whole
        found = [case | found for case in cases]
    known = {(one["points"], one["rows"]): one[OURS].get("digest") for one in results}
    for case in found:
        file = Path(case.pop("file"))
        case["equal_to_one_gpu"] = None
        wanted = known[case["points"], int(file.stem.rpartition("-")[2])]
        if "failed" not in case and wanted:
            case["equal_to_one_gpu"] = case["digest"] == wanted
        progress(f"{case}")
    return found


def _print(results: list[dict[str, Any]], spread: list[dict[str, Any]]) -> None:
    head = [
        "one GPU",
        "rows",
        "tool",
        "seconds",
        "times",
        "MB (RMM)",
        "MB (driver)",
        "clusters",
        "noise",
        "core rows differ",
        "noise",
        "border rows",
        "as the CPU's",
    ]
    lines = []
    for found in results:
        for tool in (OURS, *PEERS):
            one = found.get(tool)
            if one is None or "failed" in one:
                continue
            differ, seen, counted = one.get("differ", {}), _seen(one), _counted(one)
            lines.append(
                [
                    found["points"],
                    found["rows"],
                    tool,
                    one["clock"]["median"],
                    one.get("times", {}).get("faster"),
                    counted and counted / 1e6,
                    seen and seen / 1e6,
                    one["clusters"],
                    one["noise"],
                    differ.get("core rows"),
                    differ.get("noise"),
                    differ.get("border rows"),
                    one.get("equal_to_cpu"),
                ]
            )
    print(table(head, lines))
    for found in results:
        for tool in (OURS, *PEERS):
            if "failed" in found.get(tool, {}):
                print(
                    f"{found['points']} {found['rows']:,}: {tool} failed: "
                    f"{found[tool]['failed']}"
                )
    if not spread:
        return
    head = [
        "several GPUs",
        "seconds",
        "first",
        "chunks",
        "block pairs",
        "MB of each (RMM)",
        "as one GPU's",
    ]
    lines = []
    for case in spread:
        if "failed" not in case:
            peaks = " ".join(f"{peak / 1e6:.0f}" for peak in case["peak_rmm"])
            lines.append(
                [
                    case["name"],
                    case["median"],
                    case["first"],
                    case["chunks"],
                    case["block_pairs"],
                    peaks,
                    case["equal_to_one_gpu"],
                ]
            )
    print(table(head, lines))
    for case in spread:
        if "failed" in case:
            print(f"{case['name']} failed: {case['failed']}")


def main() -> int:
    """Run the benchmark; return 1 if our own tool fails or its labels differ from each
    other.
    """
    # imported late, because it needs a GPU
    from benchmarks.harness.gpu_report import environment

    options = arguments()
    where = environment() | {"loadavg": [round(load, 2) for load in os.getloadavg()]}
    with scratch(options.folder) as folder:
        results = [
            one_gpu(POINTS[name], n, options, folder)
            for n in options.rows
            for name in options.points
        ]
        spread = several_gpus(results, options, folder) if options.workers else []
    _print(results, spread)
    report = {
        "unit": "seconds, medians; bytes",
        "one_gpu": results,
        "several_gpus": spread,
    }
    save("gpu-clusters", where, options, report, options.output)
    ours = [found[OURS] for found in results]
    good = all(
        "failed" not in one and one.get("equal_to_cpu") is not False for one in ours
    )
    good &= all(
        "failed" not in case and case["equal_to_one_gpu"] is not False
        for case in spread
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
