"""``python -m benchmarks papers``: the figures and tables of six papers, with published
results.

With a GPU all runs use it, and every count of pairs is compared with the package's own
engine.  With `--model` no GPU is needed.  Comparisons and warps of the two grid joins
then come from workloads of cells, or from counts on fewer points.  One core of the CPU
runs the joins of sets (`--paper sets`), and lists in Z-order and clusters (`--paper lss
kmeans`) with a tenth of the rows.  `--figure T5.2` uses all cores. `--paper rejoin`
always runs on a CPU: an index on disk takes batches in, or all rows are joined anew.
`--paper ego` does so too: Super-EGO on one thread and on two, the baseline of three
papers.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__" and "--model" in sys.argv and "T5.2" not in sys.argv:
    # table 5.2 of the thesis compares one core with several
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

from benchmarks.harness.report import environment
from benchmarks.papers import ego_rows, files, host_loops, lists, rejoin, several
from benchmarks.papers.data import PRESORTED
from benchmarks.papers.figures import CHOICES, MORE, ON_CPUS, PAPERS, not_there
from benchmarks.papers.lists_rows import RUNS as LISTS
from benchmarks.papers.masks import begin, estimated, fitted
from benchmarks.papers.rows import GPU_JOIN, ROWS_OF, Row
from benchmarks.papers.runs import COUNTED, by_model, eps_of
from benchmarks.papers.sets import on_cpu
from benchmarks.papers.sets_told import PAPER as SETS
from benchmarks.papers.sets_told import QUICK_THRESHOLDS, SHAPES, THRESHOLDS
from dask_simjoin import __version__

QUICK = 3000
"""Points of a run with `--quick`."""


def arguments(given: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks papers", description=__doc__
    )
    parser.add_argument("--paper", choices=CHOICES, nargs="+", default=list(PAPERS))
    parser.add_argument(
        "--figure", nargs="+", help="such as tab3 or fig13; all by default"
    )
    parser.add_argument("--data", nargs="+", help="such as Expo2D; all by default")
    parser.add_argument(
        "--file",
        nargs="+",
        default=[],
        metavar="NAME=PATH",
        help=f"real data; names: {', '.join(files.NAMES)}",
    )
    parser.add_argument("--model", action="store_true", help="without a GPU")
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK:,} points or sets"
    )
    parser.add_argument(
        "--rows", type=int, help="points or sets, instead of as many as each row has"
    )
    parser.add_argument(
        "--thresholds", nargs="+", choices=THRESHOLDS, help="of sets, falling"
    )
    parser.add_argument(
        "--minutes", type=float, default=7.0, help="of lss and kmeans on a GPU, at most"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--seconds",
        nargs="+",
        default=[],
        metavar="FIGURE=SECONDS",
        help="of figures of the grid papers on a GPU, at most; then rows have fewer runs, or none",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="JSON, written after each row; a folder: one per figure",
    )
    asked = parser.parse_args(given)
    files.FILES.clear()
    for text in asked.file:
        try:
            files.use(text)
        except ValueError as error:
            parser.error(f"--file {error}")
    if wrong := files.unused(asked.paper):
        parser.error(f"--file {wrong}")
    try:
        asked.seconds = {
            figure: float(number)
            for figure, number in (text.split("=") for text in asked.seconds)
        }
    except ValueError:
        parser.error("--seconds needs FIGURE=SECONDS, such as fig9=60")
    if asked.figure and (wrong := not_there(asked.figure, asked.paper)):
        parser.error(f"--figure {wrong}")
    if not asked.model and not set(asked.paper) <= set(ON_CPUS) and not has_gpu():
        parser.error(
            "this needs a GPU and CuPy; add --model, which needs none, or --paper "
            "rejoin or ego"
        )
    return asked


def has_gpu() -> bool:
    """Return whether CuPy is installed and finds a GPU."""
    try:
        return bool(importlib.import_module("cupy").is_available())
    except ImportError:
        return False


def chosen(asked: argparse.Namespace) -> list[Row]:
    """Return the requested rows, by figure in the order of `--figure`."""
    rows = [
        row for paper in asked.paper if paper in ROWS_OF for row in ROWS_OF[paper]()
    ]
    if asked.figure:
        rows = sorted(
            (row for row in rows if row.figure in asked.figure),
            key=lambda row: asked.figure.index(row.figure),
        )
    return [
        row for row in rows if not asked.data or files.name_of(row.data) in asked.data
    ]


def line(row: Row, rows: int, found: dict[str, Any], ratio: float) -> str:
    """Format a run for people."""
    eps = eps_of(row.data, rows, row.eps)
    words = [
        f"{row.figure:8} {files.named(row.data):9} {rows:>9,} eps {eps:<8.4g} "
        f"{row.setting:24}"
    ]
    words.append(
        f"k={found['indexed']:<2} {found.get('comparisons', math.nan):>10.3g} "
        "comparisons"
    )
    if "seconds" in found:
        words.append(f"{len(found['runs'])} runs")
        words.append(
            " ".join(
                f"{name} {seconds:.4f}" for name, seconds in found["seconds"].items()
            )
        )
        words.append(
            f"{found['pairs']:,} pairs, tiles {found['tiles']:.4f} s, grid/tiles "
            f"{found['grid/tiles']:.1f}"
        )
        words.append(f"WEE {100 * found.get('warp_efficiency', 1):.1f} %")
    words += [
        f"{name} {found[name]:.3g}, estimated {found[f'estimated {name}']:.3g}"
        for name in ("search_ops", "compare_ops")
        if f"estimated {name}" in found
    ]
    words.append(
        f"model WEE {100 * found.get('warp_efficiency_model', math.nan):.1f} %"
    )
    words.append("published -" if row.wee is None else f"published {row.wee:.1f} %")
    words.append(f"ratio {ratio:.2f}")
    words.append(
        "published -" if row.published is None else f"published {row.published:.2f}"
    )
    return "  ".join(words)


def _number(asked: argparse.Namespace, row: Row) -> int:
    """Return how many points a row has."""
    rows = asked.rows or (QUICK if asked.quick else row.rows)
    return (
        len(files.points_of_file(row.data, rows)) if files.is_file(row.data) else rows
    )


def runs(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the rows in turn.  Ratios compare with the first row of the same figure, set
    and distance.
    """
    first: dict[tuple[str, str, float], float] = {}
    rows_of = chosen(asked)
    clock: Clock | None = None
    if not asked.model and rows_of:
        from benchmarks.papers import gpu_rows  # imported late, because it needs a GPU

        for row in rows_of:
            if row.method.indexed == "auto" or row.figure == "fig7":
                begin(row, _number(asked, row))
        rows_of = [fitted(row, _number(asked, row)) for row in rows_of]
        gpu_rows.begin((row, _number(asked, row)) for row in rows_of)
        clock = Clock(rows_of, asked.seconds)
    for row in rows_of:
        rows = _number(asked, row)
        row = fitted(row, min(rows, COUNTED) if asked.model else rows)
        if clock is None:
            found = by_model(row, rows)
        elif (seconds := clock.start(row)) <= 0:
            print(
                f"{row.figure} {row.data} {row.setting}: left out, no seconds are left",
                flush=True,
            )
            continue
        else:
            found = gpu_rows.measured(
                row, rows, 1 if asked.quick else asked.repeat, seconds
            )
        rows = found.get("rows", rows)
        if row.figure == "fig7":
            found |= estimated(row, rows)
        spent = found["total"]
        ratio = (
            first.setdefault(
                (row.figure, row.data.removesuffix(PRESORTED), row.eps), spent
            )
            / spent
        )
        print(line(row, rows, found, ratio), flush=True)
        asked_for = {
            "paper": row.paper,
            "figure": row.figure,
            "data": row.data,
            "setting": row.setting,
        }
        yield (
            asked_for
            | found
            | {
                "rows": rows,
                "eps": eps_of(row.data, rows, row.eps),
                "ratio": ratio,
                "published": row.published,
                "published wee": row.wee,
            }
        )


class Clock:
    """The remaining seconds of each figure, and how many of its rows are left."""

    def __init__(self, rows: list[Row], seconds: dict[str, float]) -> None:
        self._rows = Counter(row.figure for row in rows)
        self._seconds, self._ends = seconds, dict[str, float]()

    def start(self, row: Row) -> float:
        """Return how many seconds a row may take: several times its share, since most
        take less.
        """
        now, figure = time.perf_counter(), row.figure
        end = self._ends.setdefault(figure, now + self._seconds.get(figure, math.inf))
        rows = self._rows[figure]
        self._rows[figure] -= 1
        return min(end - now, 6 * (end - now) / rows)


def rest(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the parts of the first paper that are not rows: several GPUs, and the way to
    the host.
    """
    wanted = [name for name in MORE if not asked.figure or name in asked.figure]
    rows = asked.rows or (QUICK if asked.quick else several.ROW.rows)
    if "fig10-11" in wanted:
        for found in (
            several.sets_by_model(rows)
            if asked.model
            else several.sets_on_gpu(rows, asked.repeat)
        ):
            shown = {
                key: value
                for key, value in found.items()
                if key not in ("times", "runs")
            }
            print(f"fig10-11 {shown}; published most/least 1.077", flush=True)
            yield {"paper": GPU_JOIN, "figure": "fig10-11", "rows": rows, **found}
    if "fig12" in wanted:
        for found in several.ring(2_000_000, 16):
            print(f"fig12    {found}", flush=True)
            yield {"paper": GPU_JOIN, "figure": "fig12", **found}
    if "tab2" in wanted and not asked.model:
        # imported late, because it needs a GPU
        from benchmarks.papers.host import to_host

        for streams, pinned in ((1, True), (3, True), (3, False)):
            found = to_host(rows, 0.05, streams, pinned, asked.repeat)
            shown = {key: value for key, value in found.items() if key != "runs"}
            print(
                f"tab2     {shown}; published overhead of one stream 0.018", flush=True
            )
            yield {"paper": GPU_JOIN, "figure": "tab2", "rows": rows, **found}


def sets(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the paper of joins of sets."""
    if asked.model:
        runner = on_cpu
    else:
        # imported late, because it needs a GPU
        from benchmarks.papers.sets_gpu import on_device as runner

    data = [name for name in SHAPES if not asked.data or name in asked.data]
    thresholds = tuple(
        asked.thresholds or (QUICK_THRESHOLDS if asked.quick else THRESHOLDS)
    )
    rows = asked.rows or (QUICK if asked.quick else None)
    for found in runner(
        data, asked.figure, thresholds, rows, 1 if asked.quick else asked.repeat
    ):
        told = {
            key: value
            for key, value in found.items()
            if key not in ("paper", "counters", "settings")
        }
        if "data" in told:
            told["data"] = files.named(told["data"])
        print(told, flush=True)
        yield found


def of_lists(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the papers of lists in Z-order and of k-means clusters."""
    papers = [paper for paper in asked.paper if paper in LISTS]
    backend, minutes = ("cpu", float("inf")) if asked.model else ("gpu", asked.minutes)
    for row in lists.results(
        papers, asked.figure, asked.data, backend, asked.quick, asked.repeat, minutes
    ):
        print(lists.told(row), flush=True)
        yield row
    wanted = host_loops.PAPER in papers and (
        not asked.figure or host_loops.FIGURE in asked.figure
    )
    if wanted and (not asked.data or host_loops.DATA in asked.data):
        for row in host_loops.results(backend, asked.quick, asked.repeat):
            print(host_loops.line(row), flush=True)
            yield row


def rejoined(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the thesis's tables of joins that grow."""
    rows, repeat = (
        asked.rows or (QUICK if asked.quick else None),
        1 if asked.quick else asked.repeat,
    )
    for found in rejoin.runs(asked.figure, rows, repeat):
        print(
            *(f"{name}={value}" for name, value in found.items() if name != "paper"),
            flush=True,
        )
        yield found


def baseline(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run Super-EGO."""
    rows, repeat = (
        asked.rows or (QUICK if asked.quick else None),
        1 if asked.quick else asked.repeat,
    )
    for row in ego_rows.results(asked.figure, asked.data, rows, repeat):
        print(ego_rows.line(row), flush=True)
        yield row


def _readable(found: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield results, and end the program at a file that cannot be read."""
    try:
        yield from found
    except files.DataError as error:
        sys.exit(str(error))


def _write(report: dict[str, Any], output: Path, last: dict[str, Any]) -> None:
    """Write the results; into a folder only the figure of the last row."""
    if output.is_dir():
        runs = [
            one
            for one in report["runs"]
            if (one["paper"], one["figure"]) == (last["paper"], last["figure"])
        ]
        name = re.sub(r"[^\w.-]+", "-", f"{last['paper']}-{last['figure']}")
        report, output = report | {"runs": runs}, output / f"{name}.json"
    output.write_text(json.dumps(report, indent=1) + "\n")


def main() -> None:
    """Run the requested papers."""
    asked = arguments(sys.argv[1:])
    report: dict[str, Any] = {
        "environment": environment([], __version__),
        "model": asked.model,
        "runs": [],
    }
    if not asked.model and not set(asked.paper) <= set(ON_CPUS):
        # imported late, because it needs a GPU
        from benchmarks.harness.gpu_report import environment as gpu

        report["environment"] = gpu()
    parts = [runs(asked)]
    parts += [rest(asked)] if GPU_JOIN in asked.paper else []
    parts += [sets(asked)] if SETS in asked.paper else []
    parts += [of_lists(asked)] if set(LISTS) & set(asked.paper) else []
    parts += [rejoined(asked)] if rejoin.PAPER in asked.paper else []
    parts += [baseline(asked)] if ego_rows.PAPER in asked.paper else []
    for one in _readable(itertools.chain.from_iterable(parts)):
        data = one.get("data", "")
        if files.is_file(data):
            one |= {
                "data": files.named(data),
                "file": files.FILES[files.name_of(data)].name,
            }
        elif data in files.STAND_INS:
            one |= {"synthetic": True}
        report["runs"].append(one)
        if asked.output is not None:
            _write(report, asked.output, one)
    if not report["runs"]:
        sys.exit(
            "Nothing was run: no figure of these papers has the data, or --model "
            "leaves them out."
        )
    ran = {one["figure"] for one in report["runs"]}
    why = "as it needs a GPU, or" if asked.model else "as it needs --model, or"
    for figure in asked.figure or ():
        if figure not in ran:
            print(
                f"{figure}: nothing was run, {why} --data has nothing of it",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()
