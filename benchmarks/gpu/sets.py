"""``python -m benchmarks gpu.sets``: joins of sets on one GPU, way by way, and on one
core of the CPU.

Self-joins by Jaccard similarity are counted, for two shapes of the paper of Bellas and
Gounaris (see `benchmarks.harness.sets`).  Blocks lie on the GPU before the clock
starts.  The first part compares methods at each threshold.  The second verifies the
same candidates by each of the paper's ways and numbers of threads.  In the third, the
CPU filters for the GPU, with chunks of several sizes.  One core of the CPU joins the
same blocks meanwhile, in a process of its own.  All counts must agree.  The benchmark
needs CuPy, NumPy and Numba only.  It ends after `--seconds`, and lists the parts that
it left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from benchmarks.harness.gpu_report import environment
from benchmarks.harness.gpu_timing import timed
from benchmarks.harness.sets import SHAPES, make_sets
from dask_simjoin.sets.gpu.candidates import HostFilter, chunks, prefixes
from dask_simjoin.sets.gpu.joiner import JOINER
from dask_simjoin.sets.gpu.launches import Operands, SetPairCollector, SetPairCounter
from dask_simjoin.sets.gpu.verify import verify_grouped
from dask_simjoin.sets.methods import AllPairs, Bitmap, GroupJoin, PPJoin, SetMethod
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.token_ids import SetBlock
from dask_simjoin.sizes import ENTRY_BYTES

THRESHOLDS = ("0.9", "0.8", "0.7", "0.6", "0.5")

ON_GPU: dict[str, str | SetMethod] = {
    "auto": "auto",
    "bitmap": Bitmap(),
    "ppjoin": PPJoin(),
    "allpairs": AllPairs(),
    "groupjoin": GroupJoin(),
}
"""Methods that both filter and verify on the GPU."""

WAYS = ("A", "B", "C", "thread", "warp")
BLOCKS = (32, 64, 128, 256)
FILTERED = 16 << 20
"""Number of candidates that each way verifies."""

CHUNKS = (1 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30)
"""The paper's M_c, in bytes."""

HOST_FILTERS: dict[str, SetMethod] = {
    "allpairs": AllPairs(filter="cpu"),
    "ppjoin": PPJoin(filter="cpu"),
    "groupjoin": GroupJoin(filter="cpu"),
    "groupjoin, members on the cpu": GroupJoin(filter="cpu", members="cpu"),
}


class Report:
    """Prints rows as they come, and begins none after a number of seconds.

    Parameters
    ----------
    seconds : float
    repeat : int
        Runs of each row after a first one.
    """

    def __init__(self, seconds: float, repeat: int) -> None:
        self._end, self._repeat = time.perf_counter() + seconds, repeat
        self.rows: dict[str, Any] = {}
        self.left_out: list[str] = []
        self.counts: dict[tuple[str, str], set[int]] = {}

    def measure(self, name: str, run: Any, repeat: int | None = None) -> None:
        """Time a function that returns a count."""
        if time.perf_counter() > self._end:
            self.left_out.append(name)
            return
        try:
            one = timed(run, self._repeat if repeat is None else repeat, int)
        except (
            MemoryError,
            RuntimeError,
        ) as error:  # a failure must not hide the other results
            one = {"failed": repr(error)}
        self.rows[name] = one
        told = one.get("failed") or f"{one['median']:.4f} s, {one['found']:,}"
        print(f"{name}: {told}", file=sys.stderr, flush=True)

    def count(
        self,
        kind: str,
        threshold: str,
        name: str,
        block: SetBlock,
        method: str | SetMethod,
    ) -> None:
        """Time a count of all pairs."""
        label, rule = (
            f"{kind}, {threshold}, {name}",
            Rule("jaccard", Fraction(threshold)),
        )
        self.measure(label, lambda: JOINER.count(block, None, rule, method))
        if "found" in self.rows.get(label, {}):
            self.counts.setdefault((kind, threshold), set()).add(
                self.rows[label]["found"]
            )


def on_gpu(block: SetBlock) -> SetBlock:
    """Return the same block on the GPU."""
    return {
        "offsets": cupy.asarray(block["offsets"]),
        "tokens": cupy.asarray(block["tokens"]),
        "universe": block["universe"],
        "weights": cupy.asarray(block["weights"]),
    }


def methods(report: Report, blocks: dict[str, SetBlock]) -> None:
    """Measure methods by threshold, for counts and for written pairs."""
    for kind, block in blocks.items():
        for threshold in THRESHOLDS:
            for name, method in ON_GPU.items():
                report.count(kind, threshold, name, block, method)
            rule = Rule("jaccard", Fraction(threshold))
            label = f"{kind}, {threshold}, auto, pairs written"
            report.measure(
                label,
                lambda b=block, r=rule: len(JOINER.pairs(b, None, r, "auto").left),
            )
            told = JOINER.counters(block, None, rule, PPJoin())
            report.rows[f"{kind}, {threshold}, counters of ppjoin"] = told._asdict()


def tiles(report: Report, blocks: dict[str, SetBlock]) -> None:
    """Measure threads of a block, and words of a bitmap."""
    for kind, block in blocks.items():
        for threads in BLOCKS:
            report.count(
                kind, "0.5", f"bitmap, {threads} threads", block, Bitmap(block=threads)
            )
        for words in (2, 4, 8, 16):
            report.count(
                kind, "0.5", f"bitmap, {words} words", block, Bitmap(words=words)
            )
            report.count(
                kind, "0.5", f"ppjoin, {words} words", block, PPJoin(words=words)
            )


def verification(report: Report, blocks: dict[str, SetBlock]) -> None:
    """Verify the CPU's AllPairs candidates by each way and number of threads: the
    paper's Figs. 14 and 15.
    """
    for kind, block in blocks.items():
        for threshold in ("0.8", "0.5"):
            rule = Rule("jaccard", Fraction(threshold))
            join = Operands.of(block, None, rule)
            lengths = prefixes(join, groups=False)
            filters = HostFilter(join, lengths, len(join.left) // 2, positional=False)
            begin = time.perf_counter()
            found = next(chunks(filters, len(join.left), FILTERED)).found
            filtered, number = time.perf_counter() - begin, len(found.candidates)
            label = f"{kind}, {threshold}, {number:,} candidates of {len(found.probes):,} probes"
            report.rows[f"{label}, filtered by the cpu"] = {"seconds": filtered}

            def run(
                way: str, threads: int, sink: Any, join: Any = join, found: Any = found
            ) -> int:
                verify_grouped(join, found, way, threads, sink)
                return (
                    sink.totals()[0] if isinstance(sink, SetPairCounter) else sink.pairs
                )

            for way in WAYS:
                for threads in BLOCKS if way in "ABC" else (256,):
                    name = f"{label}, {way}, {threads} threads"
                    report.measure(
                        name,
                        lambda w=way, t=threads, j=join: run(w, t, SetPairCounter(j)),
                        3,
                    )
                name = f"{label}, {way}, 128 threads, pairs written"
                report.measure(name, lambda w=way: run(w, 128, SetPairCollector()), 3)
            del found


def handed_over(report: Report, blocks: dict[str, SetBlock], few: SetBlock) -> None:
    """Filter on the CPU and verify on the GPU, by methods and sizes of the chunks
    between them.
    """
    for kind, block, thresholds in (
        ("queries", blocks["queries"], ("0.8", "0.6", "0.5")),
        ("few texts", few, ("0.8", "0.6")),
    ):
        way = "B" if kind == "queries" else "C"
        for threshold in thresholds:
            report.count(kind, threshold, "auto, all on the gpu", block, "auto")
            for name, method in HOST_FILTERS.items():
                asked = type(method)(**{**vars(method), "verify": way})
                report.count(
                    kind, threshold, f"{name} filtered by the cpu, {way}", block, asked
                )
        for chunk in CHUNKS:
            method = AllPairs(
                filter="cpu", verify=way, chunk_bytes=chunk * ENTRY_BYTES // 4
            )
            name = f"allpairs filtered by the cpu, {way}, M_c {chunk >> 20} MB"
            report.count(kind, thresholds[-1], name, block, method)


CPU = """
import json, sys, time
from fractions import Fraction
import numpy as np
from dask_simjoin.sets.cpu.joiner import JOINER
from dask_simjoin.sets.predicate import Rule
def block_of(path):
    block = dict(np.load(path))
    block["universe"] = int(block["universe"])
    return block
for path in sys.argv[2:]:
    for threshold in sys.argv[1].split(","):
        rule = Rule("jaccard", Fraction(threshold))
        block, seconds = block_of(path), []
        for _ in range(3):  # kernels are compiled in the first
            begin = time.process_time()
            found = JOINER.count(block, None, rule, "auto")
            seconds.append(time.process_time() - begin)
        print(json.dumps([path, threshold, seconds[1:], found]), flush=True)
"""
"""Program of one core: seconds of two runs after a first."""


def begun_on_cpu(blocks: dict[str, SetBlock], folder: Path) -> subprocess.Popen[str]:
    """Join the same blocks in a process of its own."""
    paths = []
    for kind, block in blocks.items():
        paths.append(str(folder / f"{kind}.npz"))
        np.savez(paths[-1], **block)
    command = [sys.executable, "-c", CPU, ",".join(THRESHOLDS), *paths]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ended_on_cpu(
    process: subprocess.Popen[str], seconds: float, report: Report
) -> None:
    """Return the results so far, after at most this many seconds more."""
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        report.left_out.append("some of one core")
    for line in said.splitlines():
        path, threshold, runs, found = json.loads(line)
        kind = Path(path).stem
        report.rows[f"{kind}, {threshold}, one core of the cpu"] = {
            "median": statistics.median(runs),
            "seconds": runs,
            "found": found,
        }
        report.counts.setdefault((kind, threshold), set()).add(found)


def table(report: Report) -> str:
    """Format methods by threshold for people."""
    names = [*ON_GPU, "one core of the cpu"]
    lines = [
        f"{'':16}" + "".join(f"{name:>20}" for name in names) + f"{'cpu / auto':>12}"
    ]
    for kind in SHAPES:
        for threshold in THRESHOLDS:
            rows = [
                report.rows.get(f"{kind}, {threshold}, {name}", {}).get("median")
                for name in names
            ]
            ratio = f"{rows[-1] / rows[0]:12.1f}" if rows[0] and rows[-1] else ""
            cells = "".join(
                f"{one:20.4f}" if one is not None else f"{'-':>20}" for one in rows
            )
            lines.append(f"{kind:10}{threshold:>6}{cells}{ratio}")
    return "\n".join(lines)


def main(given: list[str]) -> int:
    """Measure, and print and write the results; return 1 if counts differ."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu.sets", description=__doc__
    )
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the sets of each shape"
    )
    parser.add_argument("--output", type=Path)
    args = parser.parse_args(given)
    begin = time.perf_counter()
    number = {kind: int(args.share * shape[0]) for kind, shape in SHAPES.items()}
    made = {kind: make_sets(kind, number[kind]) for kind in SHAPES}
    few = make_sets("texts", number["texts"] // 4)
    report = Report(args.seconds - (time.perf_counter() - begin), args.repeat)
    with tempfile.TemporaryDirectory() as folder:
        cpu = begun_on_cpu(made, Path(folder))
        try:
            blocks = {kind: on_gpu(block) for kind, block in made.items()}
            methods(report, blocks)
            tiles(report, blocks)
            handed_over(report, blocks, on_gpu(few))
            verification(report, blocks)
        finally:
            left = args.seconds - (time.perf_counter() - begin)
            ended_on_cpu(cpu, max(1.0, left), report)
    sizes = {
        kind: {
            "distinct sets": len(block["weights"]),
            "tokens": len(block["tokens"]),
            "universe": block["universe"],
        }
        for kind, block in made.items()
    }
    told = {
        "environment": environment(),
        "unit": "seconds, medians",
        "shapes": sizes,
        "results": report.rows,
        "left out": report.left_out,
    }
    print(table(report))
    if args.output:
        args.output.write_text(json.dumps(told, indent=1) + "\n")
    wrong = {key: found for key, found in report.counts.items() if len(found) > 1}
    for key, found in wrong.items():
        print(f"WRONG: {key}: {sorted(found)}", file=sys.stderr)
    for name in report.left_out:
        print(f"left out: {name}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
