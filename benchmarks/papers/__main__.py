"""``python -m benchmarks papers``: the figures and tables of six papers, beside what they published.

With a GPU all is timed on it, and every count of pairs compared with the package's own engine.  With
`--model` no GPU is needed: comparisons and warps of the two grid joins are told by the workloads of cells, or
counted on fewer points; of the joins of sets (`--paper sets`) one core of the CPU runs the algorithms, and
those of lists in Z-order and of clusters (`--paper lss kmeans`), of a tenth of the rows.
`--paper rejoin` always runs on a CPU: an index on disk that takes batches in, beside joining all rows anew.
So does `--paper ego`: Super-EGO on one thread and on two, the baseline of three papers.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.worker import THREADS, pin

if __name__ == "__main__" and "--model" in sys.argv:
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pin()

from benchmarks.harness.report import environment
from benchmarks.papers import ego_rows, files, lists, rejoin, several
from benchmarks.papers.figures import CHOICES, MORE, ON_CPUS, PAPERS, not_there
from benchmarks.papers.lists_rows import RUNS as LISTS
from benchmarks.papers.rows import GPU_JOIN, ROWS_OF, Row
from benchmarks.papers.runs import by_model, eps_of, estimated, on_gpu
from benchmarks.papers.sets import on_cpu
from benchmarks.papers.sets_told import PAPER as SETS
from benchmarks.papers.sets_told import QUICK_THRESHOLDS, SHAPES, THRESHOLDS
from dask_simjoin import __version__

QUICK = 3000
"""Points of `--quick`."""


def arguments(given: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks papers", description=__doc__)
    parser.add_argument("--paper", choices=CHOICES, nargs="+", default=list(PAPERS))
    parser.add_argument("--figure", nargs="+", help="such as tab3 or fig13; all by default")
    parser.add_argument("--data", nargs="+", help="such as Expo2D; all by default")
    parser.add_argument(
        "--file",
        nargs="+",
        default=[],
        metavar="NAME=PATH",
        help=f"real data; names: {', '.join(files.NAMES)}",
    )
    parser.add_argument("--model", action="store_true", help="without a GPU")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} points or sets")
    parser.add_argument("--rows", type=int, help="points or sets, instead of as many as each row has")
    parser.add_argument("--thresholds", nargs="+", choices=THRESHOLDS, help="of sets, falling")
    parser.add_argument("--minutes", type=float, default=7.0, help="of lss and kmeans on a GPU, at most")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--output", type=Path, help="JSON, written after each row")
    asked = parser.parse_args(given)
    files.FILES.clear()
    for text in asked.file:
        try:
            files.use(text)
        except ValueError as error:
            parser.error(f"--file {error}")
    if wrong := files.unused(asked.paper):
        parser.error(f"--file {wrong}")
    if asked.figure and (wrong := not_there(asked.figure, asked.paper)):
        parser.error(f"--figure {wrong}")
    if not asked.model and not set(asked.paper) <= set(ON_CPUS) and not has_gpu():
        parser.error("this needs a GPU and CuPy; add --model, which needs none, or --paper rejoin or ego")
    return asked


def has_gpu() -> bool:
    """Whether CuPy is installed, and finds a GPU."""
    try:
        return bool(importlib.import_module("cupy").is_available())
    except ImportError:
        return False


def chosen(asked: argparse.Namespace) -> Iterator[Row]:
    """Give the rows that are asked for."""
    for paper in asked.paper:
        for row in ROWS_OF[paper]() if paper in ROWS_OF else ():
            figure = not asked.figure or row.figure in asked.figure
            if figure and (not asked.data or files.name_of(row.data) in asked.data):
                yield row


def line(row: Row, rows: int, found: dict[str, Any], ratio: float) -> str:
    """What is printed of a run."""
    eps = eps_of(row.data, rows, row.eps)
    words = [f"{row.figure:8} {files.named(row.data):9} {rows:>9,} eps {eps:<8.4g} {row.setting:24}"]
    words.append(f"k={found['indexed']:<2} {found['comparisons']:>10.3g} comparisons")
    if "seconds" in found:
        words.append(" ".join(f"{name} {seconds:.4f}" for name, seconds in found["seconds"].items()))
        words.append(
            f"{found['pairs']:,} pairs, tiles {found['tiles']:.4f} s, grid/tiles {found['grid/tiles']:.1f}"
        )
        words.append(f"WEE {100 * found.get('warp_efficiency', 1):.1f} %")
    words += [
        f"{name} {found[name]:.3g}, estimated {found[f'estimated {name}']:.3g}"
        for name in ("search_ops", "compare_ops")
        if f"estimated {name}" in found
    ]
    words.append(f"model WEE {100 * found['warp_efficiency_model']:.1f} %")
    words.append("published -" if row.wee is None else f"published {row.wee:.1f} %")
    words.append(f"ratio {ratio:.2f}")
    words.append("published -" if row.published is None else f"published {row.published:.2f}")
    return "  ".join(words)


def runs(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the rows, one after the other; ratios are to the first of a figure, a set and a distance."""
    first: dict[tuple[str, str, float], float] = {}
    for row in chosen(asked):
        rows = asked.rows or (QUICK if asked.quick else row.rows)
        if files.is_file(row.data):
            rows = len(files.points_of_file(row.data, rows))
        found = by_model(row, rows) if asked.model else on_gpu(row, rows, 1 if asked.quick else asked.repeat)
        rows = found.get("rows", rows)
        if row.figure == "fig7":
            found |= estimated(row, rows)
        spent = found["total"]
        ratio = first.setdefault((row.figure, row.data, row.eps), spent) / spent
        print(line(row, rows, found, ratio), flush=True)
        asked_for = {"paper": row.paper, "figure": row.figure, "data": row.data, "setting": row.setting}
        yield asked_for | found | {
            "rows": rows, "eps": eps_of(row.data, rows, row.eps), "ratio": ratio, "published": row.published,
            "published wee": row.wee,
        }  # fmt: skip


def rest(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What of the first paper is no row: several GPUs, and the way to the host."""
    wanted = [name for name in MORE if not asked.figure or name in asked.figure]
    rows = asked.rows or (QUICK if asked.quick else several.ROW.rows)
    if "fig10-11" in wanted:
        for found in several.sets_by_model(rows) if asked.model else several.sets_on_gpu(rows):
            shown = {key: value for key, value in found.items() if key != "times"}
            print(f"fig10-11 {shown}; published most/least 1.077", flush=True)
            yield {"paper": GPU_JOIN, "figure": "fig10-11", "rows": rows, **found}
    if "fig12" in wanted:
        for found in several.ring(2_000_000, 16):
            print(f"fig12    {found}", flush=True)
            yield {"paper": GPU_JOIN, "figure": "fig12", **found}
    if "tab2" in wanted and not asked.model:
        from benchmarks.papers.host import to_host  # which needs a GPU

        for streams, pinned in ((1, True), (3, True), (3, False)):
            found = to_host(rows, 0.05, streams, pinned)
            print(f"tab2     {found}; published overhead of one stream 0.018", flush=True)
            yield {"paper": GPU_JOIN, "figure": "tab2", "rows": rows, **found}


def sets(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the paper of joins of sets."""
    if asked.model:
        runner = on_cpu
    else:
        from benchmarks.papers.sets_gpu import on_device as runner  # which needs a GPU

    data = [name for name in SHAPES if not asked.data or name in asked.data]
    thresholds = tuple(asked.thresholds or (QUICK_THRESHOLDS if asked.quick else THRESHOLDS))
    rows = asked.rows or (QUICK if asked.quick else None)
    for found in runner(data, asked.figure, thresholds, rows, 1 if asked.quick else asked.repeat):
        told = {key: value for key, value in found.items() if key not in ("paper", "counters", "settings")}
        if "data" in told:
            told["data"] = files.named(told["data"])
        print(told, flush=True)
        yield found


def of_lists(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the papers of lists in Z-order and of k-means clusters."""
    papers = [paper for paper in asked.paper if paper in LISTS]
    backend, minutes = ("cpu", float("inf")) if asked.model else ("gpu", asked.minutes)
    for row in lists.results(papers, asked.figure, asked.data, backend, asked.quick, asked.repeat, minutes):
        print(lists.told(row), flush=True)
        yield row


def rejoined(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the thesis's tables of joins that grow."""
    rows, repeat = asked.rows or (QUICK if asked.quick else None), 1 if asked.quick else asked.repeat
    for found in rejoin.runs(asked.figure, rows, repeat):
        print(*(f"{name}={value}" for name, value in found.items() if name != "paper"), flush=True)
        yield found


def baseline(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run Super-EGO."""
    rows, repeat = asked.rows or (QUICK if asked.quick else None), 1 if asked.quick else asked.repeat
    for row in ego_rows.results(asked.figure, asked.data, rows, repeat):
        print(ego_rows.line(row), flush=True)
        yield row


def _readable(found: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield results, and end the program at a file that cannot be read."""
    try:
        yield from found
    except files.DataError as error:
        sys.exit(str(error))


def main() -> None:
    """Run what is asked for."""
    asked = arguments(sys.argv[1:])
    report: dict[str, Any] = {"environment": environment([], __version__), "model": asked.model, "runs": []}
    if not asked.model and not set(asked.paper) <= set(ON_CPUS):
        from benchmarks.harness.gpu_report import environment as gpu  # which needs a GPU

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
            one |= {"data": files.named(data), "file": files.FILES[files.name_of(data)].name}
        elif data in files.STAND_INS:
            one |= {"synthetic": True}
        report["runs"].append(one)
        if asked.output is not None:
            asked.output.write_text(json.dumps(report, indent=1) + "\n")
    if not report["runs"]:
        sys.exit("Nothing was run: no figure of these papers has the data, or --model leaves them out.")
    ran = {one["figure"] for one in report["runs"]}
    why = "as it needs a GPU, or" if asked.model else "as it needs --model, or"
    for figure in asked.figure or ():
        if figure not in ran:
            print(f"{figure}: nothing was run, {why} --data has nothing of it", file=sys.stderr)


if __name__ == "__main__":
    main()
