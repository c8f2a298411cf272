"""``python -m benchmarks papers.gds_join``: compare GPU-Join's kernel with its authors'
code, GDS-Join.

Needs a GPU. `--binaries` is a folder with GDS-Join's executables,
`gds-<dims>-<options>`, and `gds.json`, which says how they were built. They read rows
of float32. `GDS_REPEATS` is how often they run the kernels of all batches on their
three streams. They print the milliseconds and pairs of each run to stderr. Our pairs
are compared with the pairs of `method="tiles"`; GDS-Join decides in float32, so it
finds other numbers.

Kernels are timed by events around all batches of a join. Before, the kernel ran once,
for the estimate. `whole` is a wall time. Ours includes index, order, estimate and join.
GDS-Join's excludes the index, and includes transfers and a table of neighbors.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import numpy as np

from benchmarks.harness.repeats import repeated
from benchmarks.harness.source import commit, source_digest
from benchmarks.papers.data import points
from dask_simjoin.catalog import Tiles
from dask_simjoin.engine.gpu import tiles
from dask_simjoin.engine.gpu.pairs import PairBatch
from dask_simjoin.metrics.norms import Index
from dask_simjoin.papers.gpu import grid
from dask_simjoin.papers.gpu.flow import estimate, flow, found_by
from dask_simjoin.papers.grid import Grid
from dask_simjoin.planning.sample import moments


class Data(NamedTuple):
    """Points and a distance."""

    name: str
    rows: int
    eps: float


DATA = (
    Data("Syn16D", 500_000, 0.05),
    Data("Syn32D", 500_000, 0.08),
    Data("Syn64D", 50_000, 0.16),
)

LONG = 4.0
"""If a run takes more seconds, it is not repeated."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks papers.gds_join", description=__doc__
    )
    parser.add_argument("--binaries", type=Path, help="without: only our kernels")
    parser.add_argument("--data", nargs="+", choices=[data.name for data in DATA])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def told(runs: list[float]) -> dict[str, Any]:
    """Return the least and the median of runs, and all of them."""
    return {"least": min(runs), "median": statistics.median(runs), "runs": runs}


def ours(x: cupy.ndarray, data: Data, repeat: int) -> dict[str, Any]:
    """Time our kernels and the whole join, and compare its pairs with the pairs of
    tiles.
    """
    m = moments(x.get())
    box = m.lower, m.upper, m.mean, m.variance, data.eps**2, 2
    layout = grid.layout(Grid.gpu_join(), *box)
    index = grid.build(x, layout)
    launch = grid.GridLaunch.of(index, index, layout, True)
    running, made = flow(launch, estimate(launch))
    pairs, digest = _digest(index, found_by(running, made, launch.queries))
    kernels = repeated(lambda: _kernels(running, made), repeat, LONG)
    wholes = [_whole(x, launch) for _ in range(repeat)]
    reference = tiles.layout(Tiles(), *box)
    by_tiles = tiles.build(x, reference)
    expected = _digest(
        by_tiles, tiles.batches(by_tiles, by_tiles, reference, is_self_join=True)
    )
    if (pairs, digest) != expected:
        print(
            f"{data}: {pairs} pairs, and by tiles {expected[0]}: they differ",
            flush=True,
        )
    return {
        "kernels": told(kernels),
        "pairs": pairs,
        "batches": len(made),
        "repeated_batches": running.repeated,
        "pairs by tiles": expected[0],
        "same pairs": (pairs, digest) == expected,
        "whole": told([run["whole"] for run in wholes]),
        "wholes": wholes,
    }


def _kernels(running: Any, made: Any) -> float:
    """Run the kernels of all batches on their streams; seconds."""
    first, *others = (lane.stream for lane in running.lanes)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    cupy.cuda.Device().synchronize()
    begin.record(first)
    for stream in others:
        stream.wait_event(begin)
    for n, batch in enumerate(made):
        running.lanes[n % len(running.lanes)].launch(batch)
    for stream in others:
        first.wait_event(stream.record())
    end.record(first)
    end.synchronize()
    return cupy.cuda.get_elapsed_time(begin, end) / 1000


def _whole(x: cupy.ndarray, launch: grid.GridLaunch) -> dict[str, float]:
    """Join from the points on, and drop the pairs; seconds of each step."""
    marks = [time.perf_counter()]

    def mark() -> None:
        cupy.cuda.Device().synchronize()
        marks.append(time.perf_counter())

    index = grid.build(x, launch.layout)
    mark()
    join = grid.GridLaunch.of(index, index, launch.layout, True)
    mark()
    expected = estimate(join)
    mark()
    for _ in found_by(*flow(join, expected), join.queries):
        pass
    mark()
    steps = zip(
        ("index", "order", "estimate", "join"), np.diff(marks).tolist(), strict=True
    )
    return {"whole": marks[-1] - marks[0]} | dict(steps)


def _digest(index: Index, batches: Iterable[PairBatch]) -> tuple[int, int]:
    """Return the number of pairs, and the sum of a hash of their rows."""
    order, pairs, digest = index["order"].astype(cupy.uint64), 0, 0
    for found in batches:
        a, b = order[found.places[:, 0]], order[found.places[:, 1]]
        key = cupy.minimum(a, b) * np.uint64(1 << 32) + cupy.maximum(a, b)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            key = (key ^ (key >> np.uint64(shift))) * np.uint64(factor)
        digest = (digest + int(key.sum())) % 2**64
        pairs += len(found.places)
    return pairs, digest


def theirs(
    binary: Path, path: Path, data: Data, repeat: int, whole: bool
) -> dict[str, Any]:
    """Time the kernels of an executable of GDS-Join, and if `whole` once all that it
    does.
    """
    dims = data.name.removeprefix("Syn").removesuffix("D")
    command = [str(binary.resolve()), str(path), str(data.eps), dims, "3"]
    libraries = f"{os.environ.get('LD_LIBRARY_PATH', '')}:{binary.parent.resolve()}"
    environment = os.environ | {"LD_LIBRARY_PATH": libraries}

    def ran(**more: str) -> str:
        # it appends to a file in its working folder
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment | more,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=60,
            )
        if done.returncode:
            raise RuntimeError(
                f"{binary}: {done.returncode}: "
                f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        return done.stdout + done.stderr

    text = ran(GDS_REPEATS=str(repeat + 1))
    runs = re.findall(r"KERNELS (\S+) ms FOUND (\d+) BATCHES (\d+) FITS (\d)", text)
    if len({run[1] for run in runs}) != 1:
        raise RuntimeError(f"{binary}: {runs}: {text[-2000:]}")
    ordered, fits = int(runs[-1][1]), runs[-1][3] == "1"
    found: dict[str, Any] = {
        "kernels": told([float(run[0]) / 1000 for run in runs[1:]]),
        "ordered": ordered,
        "pairs": (ordered - data.rows) / 2,
        "batches": int(runs[-1][2]),
        "fits its buffers": fits,
        "estimate": float(re.findall(r"Time to estimate batches: (\S+)", text)[0]),
    }
    if whole and fits:
        found["whole"] = float(re.findall(r"\nTime: (\S+)", ran())[0])
    return found


def _print(data: Data, who: str, run: dict[str, Any]) -> None:
    times, whole = run["kernels"], run.get("whole")
    print(
        data.name, who, times["least"], times["median"], run["pairs"], whole, flush=True
    )


def measured(data: Data, given: argparse.Namespace) -> dict[str, Any]:
    """Time both programs on a set of points."""
    x = points(data.name, data.rows).astype(np.float32)
    prefix = f"gds-{x.shape[1]}-"
    found: dict[str, dict[str, Any]] = {"theirs": {}}
    found["ours"] = ours(cupy.asarray(x, cupy.float64), data, given.repeat)
    _print(data, "ours", found["ours"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points"
        x.tofile(path)
        for binary in (
            sorted(given.binaries.glob(f"{prefix}*")) if given.binaries else []
        ):
            kind = binary.name.removeprefix(prefix)
            try:
                found["theirs"][kind] = theirs(
                    binary, path, data, given.repeat, kind == "default"
                )
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                print(f"{binary.name} failed: {error}", flush=True)
            else:
                _print(data, kind, found["theirs"][kind])
    return data._asdict() | found


def main() -> None:
    """Run all, print a line per time, and write JSON."""
    given = arguments()
    runtime = cupy.cuda.runtime
    report = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": runtime.getDeviceProperties(0)["name"].decode(),
        "driver": runtime.driverGetVersion(),
        "cuda": runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
        "commit": commit(),
        "source": source_digest(),
        "rows": [],
        "gds_join": json.loads((given.binaries / "gds.json").read_text())
        if given.binaries
        else None,
    }
    for data in DATA:
        if not given.data or data.name in given.data:
            report["rows"].append(measured(data, given))
            # written after each set, so that an interrupted run keeps its results
            if given.output:
                given.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
