"""``python -m benchmarks gpu.hdbscan``: HDBSCAN of a cuDF DataFrame on GPUs, against
cuML.

Points are drawn as in ``cpu.hdbscan``, float32: blobs of different scales with noise,
by default 10 million of 2 dimensions and a million of 64.  On one GPU each tool has a
process of its own.  Results are seconds of a first run and the median of more, with our
steps.  They include the total weight of each tree, and the rows that cuML labels
otherwise.  cuML's tree is exact only where its graph of nearest neighbors is connected,
and it decides in float32.  Our results for some rows are compared with the CPU's.  With
--workers, the last points are also spread over several GPUs.

Each row is written as soon as it is there.  The exit status is 1 if ours fails, or
differs from the CPU's or from one GPU's.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu.hdbscan import apart
from benchmarks.cpu.hdbscan_worker import MIN_CLUSTER_SIZE, MIN_SAMPLES, points
from benchmarks.gpu.clusters_worker import result_of
from benchmarks.gpu.hdbscan_worker import SMALL, TOOLS, cluster_apart
from benchmarks.harness.lazy import RESULTS, progress, save, scratch, table

CHUNKS = "256 MiB"
"""Size of a chunk on a cluster: a million points of 64 dimensions make four, which two
GPUs share evenly.
"""

CHECKED = {2: 300_000, 64: 10_000}
"""Number of rows whose results are compared with the CPU's, by dimensions."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.hdbscan", description=__doc__
    )
    parser.add_argument(
        "--points",
        nargs="+",
        type=_shape,
        default=[(10_000_000, 2), (1_000_000, 64)],
        metavar="ROWSxDIMS",
        help="10000000x2 1000000x64",
    )
    parser.add_argument("--tools", nargs="*", choices=TOOLS, default=list(TOOLS))
    parser.add_argument(
        "--repeat", type=int, default=2, help="runs after a first one (default 2)"
    )
    parser.add_argument(
        "--check-rows",
        type=int,
        help="compared with the CPU (300,000 of 2-D, 10,000 of 64)",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=75,
        help="seconds until a process is given up (75)",
    )
    parser.add_argument(
        "--workers", type=int, nargs="*", default=[], help="GPUs of a second part: 1 2"
    )
    parser.add_argument(
        "--partitioning", nargs="+", default=["auto"], help="of that (auto)"
    )
    parser.add_argument("--blocksize", help=f"of an entity chunk there ({CHUNKS})")
    parser.add_argument("--protocol", choices=("tcp", "ucx"), default="tcp")
    parser.add_argument("--folder", type=Path, help="for temporary files")
    parser.add_argument("--output", type=Path, help="JSON file")
    return parser.parse_args()


def _shape(given: str) -> tuple[int, int]:
    rows, _, dims = given.partition("x")
    return int(rows.replace("_", "")), int(dims)


def points_file(folder: Path, rows: int, dims: int) -> Path:
    """Return the file of points (rows, dims), float32, which is made once."""
    file = folder / f"{rows}x{dims}.npy"
    if not file.exists():
        np.save(file, points(rows, dims).astype(np.float32))
    return file


def labels_file(folder: Path, tool: str, rows: int, dims: int) -> Path:
    """Return the file of a tool's labels."""
    return folder / f"{tool}-{rows}x{dims}.npy"


def compare(ours: dict[str, Any], peer: dict[str, Any], files: list[Path]) -> None:
    """Add comparisons with ours to a peer's numbers."""
    if "failed" in ours or "failed" in peer:
        return
    peer["times_faster"] = peer["clock"]["median"] / ours["clock"]["median"]
    peer["rows_differ"] = apart(*(np.load(file) for file in files))
    if peer["tree"] is not None:
        peer["tree_heavier"] = peer["tree"] / ours["tree"] - 1


def on_workers(
    workers: int, partitioning: str, options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Cluster the last points on several GPUs; return whether labels equal one GPU's."""
    rows, dims = options.points[-1]
    case = {
        "file": str(points_file(folder, rows, dims)),
        "small": SMALL,
        "repeat": options.repeat,
        "protocol": options.protocol,
        "partitioning": partitioning,
        "blocksize": options.blocksize
        or (CHUNKS if partitioning == "entity" else None),
    }
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu.hdbscan_workers",
        str(workers),
        json.dumps(case),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=options.patience,
            check=False,
        )
        found = result_of(done)
    except subprocess.TimeoutExpired:
        found = {"failed": f"given up after {options.patience:g} s"}
    own = labels_file(folder, "ours", rows, dims)
    if "failed" not in found and own.exists():
        digest = hashlib.sha256(
            np.ascontiguousarray(np.load(own), np.int64).data
        ).hexdigest()[:16]
        found["equal_to_one_gpu"] = found["digest"] == digest
    del case["file"]
    return {"rows": rows, "dims": dims, "workers": workers} | case | found


def _print(results: list[dict[str, Any]], spread: list[dict[str, Any]]) -> None:
    head = [
        "points",
        "tool",
        "seconds",
        "first",
        "times",
        "tree",
        "heavier",
        "clusters",
        "noise",
        "rows differ",
        "as the CPU's",
    ]
    lines = []
    for one in results:
        name = f"{one['rows']:,} x {one['dims']}"
        for tool in TOOLS:
            told = one.get(tool, {})
            if "clock" in told:
                median, seconds = told["clock"]["median"], told["clock"]["seconds"]
                lines.append(
                    [
                        name,
                        tool,
                        median,
                        seconds[0],
                        told.get("times_faster"),
                        told["tree"],
                        told.get("tree_heavier"),
                        told["clusters"],
                        told["noise"],
                        told.get("rows_differ"),
                        told.get("equal_to_cpu"),
                    ]
                )
    print(table(head, lines))
    for one in results:
        if "stages" in one.get("ours", {}):
            print(
                f"{one['rows']:,} x {one['dims']}, seconds of ours: "
                f"{one['ours']['stages']}"
            )
        for tool in TOOLS:
            if "failed" in one.get(tool, {}):
                print(
                    f"{one['rows']:,} x {one['dims']}: {tool} failed: "
                    f"{one[tool]['failed']}"
                )
    for one in spread:
        print(
            f"{one['workers']} GPUs, {one['partitioning']}: "
            f"{one.get('failed') or one['seconds']}"
        )


def main() -> int:
    """Run the benchmark; return 1 if our own tool fails or its results differ."""
    # imported late, because it needs a GPU
    from benchmarks.harness.gpu_report import environment

    options = arguments()
    where = environment() | {"loadavg": [round(load, 2) for load in os.getloadavg()]}
    output = (
        options.output
        or RESULTS / "gpu-hdbscan" / f"{datetime.datetime.now():%Y-%m-%d-%H%M}.json"
    )
    results: list[dict[str, Any]] = [
        {"rows": rows, "dims": dims} for rows, dims in options.points
    ]
    spread: list[dict[str, Any]] = []
    settings = {"min_cluster_size": MIN_CLUSTER_SIZE, "min_samples": MIN_SAMPLES}

    def written() -> None:
        report = settings | {"one_gpu": results, "several_gpus": spread}
        save("gpu-hdbscan", where, options, report, output)

    with scratch(options.folder) as folder:
        for tool in options.tools:  # our own tool runs first, as a peer may take long
            for one in results:
                rows, dims = one["rows"], one["dims"]
                check = options.check_rows or CHECKED.get(dims, 10_000)
                asked = {"repeat": options.repeat, "check": min(rows, check)}
                file, labels = (
                    points_file(folder, rows, dims),
                    labels_file(folder, tool, rows, dims),
                )
                one[tool] = cluster_apart(tool, file, labels, asked, options.patience)
                if tool != "ours" and "ours" in one:
                    own = labels_file(folder, "ours", rows, dims)
                    compare(one["ours"], one[tool], [own, labels])
                progress(f"{rows:,} x {dims}, {tool}: {one[tool]}")
                written()
        for partitioning in options.partitioning:
            for workers in options.workers:
                spread.append(on_workers(workers, partitioning, options, folder))
                progress(f"{spread[-1]}")
                written()
    _print(results, spread)
    ours = [one["ours"] for one in results if "ours" in one]
    good = all("failed" not in one and one["equal_to_cpu"] for one in ours)
    good &= all(
        "failed" not in one and one.get("equal_to_one_gpu") is not False
        for one in spread
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
