"""Rows of the paper of joins of sets that need a GPU: the CPU filters, and the GPU
verifies meanwhile.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import cupy

from benchmarks.harness.gpu_timing import timed
from benchmarks.papers.sets import best_of, cpu_seconds, made, rule_of, told_of
from benchmarks.papers.sets_told import (
    METHODS,
    MOST,
    PAPER,
    SHAPES,
    TABLE4,
    winner_of_fig10,
)
from dask_simjoin.sets.gpu.candidates import (
    GpuSetChunk,
    HostFilter,
    chunks,
    prefixes,
)
from dask_simjoin.sets.gpu.joiner import JOINER
from dask_simjoin.sets.gpu.launches import Operands, SetPairCounter
from dask_simjoin.sets.gpu.verify import verify_grouped
from dask_simjoin.sets.methods import AllPairs, Filtered, GroupJoin, PPJoin, SetMethod
from dask_simjoin.sets.token_ids import SetBlock
from dask_simjoin.sizes import ENTRY_BYTES

Runs = tuple[list[float], int]
"""Return the seconds of each run of a call, and its result."""

KINDS: dict[str, type[Filtered]] = {"ALL": AllPairs, "PPJ": PPJoin, "GRP": GroupJoin}
WAYS = ("A", "B", "C")
BLOCKS = (32, 64, 128, 256)
ENTRY = 4
"""Bytes of a candidate in the paper's M_c."""

LARGE = 1 << 30
"""Default of the paper's M_c, in bytes.  The paper used 4 GB of a GPU with 12 GB for
its largest sets.
"""

CHUNKS = (1 << 20, 16 << 20, 128 << 20, LARGE)
FIG14, FIG15, FIG12 = (
    ("KOSARAK", "LIVEJOURNAL"),
    ("KOSARAK", "ORKUT"),
    ("ENRON", "ORKUT"),
)
FIG13 = (("KOSARAK", "B"), ("DBLP", "C"))
GROWN = (2, 4, 8)
"""Factors that multiply the number of DBLP sets (Fig. 11)."""

GROWN_AT = ("0.9", "0.8", "0.7", "0.5")


def on_gpu(block: SetBlock) -> SetBlock:
    """Return the same block on the GPU."""
    return {
        "offsets": cupy.asarray(block["offsets"]),
        "tokens": cupy.asarray(block["tokens"]),
        "universe": block["universe"],
        "weights": cupy.asarray(block["weights"]),
    }


def hybrid(
    name: str, way: str, block: int = 32, memory: int = LARGE, **options: Any
) -> SetMethod:
    """One of the paper's settings; B=32 and much memory are its "unoptimized" ones."""
    size = memory // ENTRY * ENTRY_BYTES
    return KINDS[name](
        filter="cpu", verify=way, block=block, chunk_bytes=size, **options
    )


def seconds_of(
    block: SetBlock, threshold: str, method: str | SetMethod, repeat: int
) -> Runs:
    """Return the seconds of each count of a block on the GPU, and the pairs."""
    rule = rule_of(threshold)
    found = timed(lambda: JOINER.count(block, None, rule, method), repeat, int)
    return found["seconds"], found["found"]


def median(runs: Runs) -> float:
    """Return the median seconds."""
    return statistics.median(runs[0])


def compared(runs: dict[str, Runs], first: str | None = None) -> dict[str, Any]:
    """Return seconds, the winner, and ratios to it (or to another run), if all found
    the same pairs.
    """
    pairs = {found for _, found in runs.values()}
    if len(pairs) > 1:
        raise AssertionError(f"{sorted(runs)} find {sorted(pairs)} pairs")
    seconds = {name: median(some) for name, some in runs.items()}
    winner = min(seconds, key=seconds.__getitem__)
    base = seconds[first or winner]
    return {
        "pairs": pairs.pop(),
        "seconds": seconds,
        "runs": {name: some for name, (some, _) in runs.items()},
        "winner": winner,
        "ratio": {name: round(took / base, 3) for name, took in seconds.items()},
    }


def joins(
    data: str, host: SetBlock, threshold: str, repeat: int, figure: str
) -> dict[str, Any]:
    """Figs. 10 and 11: one core's best algorithm, the GPU's best setting, and the GPU
    alone.
    """
    block = on_gpu(host)
    ways = ("A", "B") if SHAPES[data].small else ("B", "C")
    gpu = {
        f"{name} {way}": seconds_of(block, threshold, hybrid(name, way), repeat)
        for name in KINDS
        for way in ways
    }
    times, (pairs,) = cpu_seconds(host, threshold, dict(METHODS), repeat)
    cpu = {name: (some, pairs) for name, some in times.items()}
    best, core = (
        min(gpu, key=lambda name: median(gpu[name])),
        min(cpu, key=lambda name: median(cpu[name])),
    )
    told = compared(
        {
            "cpu": cpu[core],
            "gpu": gpu[best],
            "all on the gpu": seconds_of(block, threshold, "auto", repeat),
        }
    )
    return {
        "figure": figure,
        "data": data,
        "rows": int(host["weights"].sum()),
        "threshold": threshold,
        **told,
        "best on the cpu": core,
        "best on the gpu": best,
        "cpu/gpu": round(median(cpu[core]) / median(gpu[best]), 2),
        "settings": {name: median(some) for name, some in gpu.items()},
        "paper's winner": "gpu"
        if figure == "fig11"
        else winner_of_fig10(data, threshold),
        "published": f"cpu/gpu of {MOST} at most" if figure == "fig11" else None,
    }


def decomposed(
    data: str, block: SetBlock, threshold: str, repeat: int
) -> dict[str, Any]:
    """Table 4: the join, and its phases one after the other; serialization is a part of
    filtering here.
    """
    join = Operands.of(block, None, rule_of(threshold))
    lengths = prefixes(join, groups=False)
    sink, filtering, verifying, candidates = SetPairCounter(join), 0.0, 0.0, 0
    coming = chunks(
        HostFilter(join, lengths, 0, positional=True),
        len(join.left),
        CHUNKS[1] // ENTRY,
    )
    # a chunk is filled while the one before is verified: less than that is waited for
    while True:
        begin = time.perf_counter()
        chunk: GpuSetChunk | None = next(coming, None)
        filtering += time.perf_counter() - begin
        if chunk is None:
            break
        candidates += len(chunk.found.candidates)
        cupy.cuda.Device().synchronize()
        begin = time.perf_counter()
        verify_grouped(join, chunk.found, "C", 128, sink)
        cupy.cuda.Device().synchronize()
        verifying += time.perf_counter() - begin
    took = median(
        seconds_of(block, threshold, hybrid("PPJ", "C", 128, CHUNKS[1]), repeat)
    )
    total, filtered, serialized, verified = TABLE4[threshold]
    return {
        "figure": "tab4",
        "data": data,
        "threshold": threshold,
        "candidates": candidates,
        "seconds": {
            "join": took,
            "waiting for filters": filtering,
            "verification": verifying,
        },
        "ratio": {
            "waiting for filters/join": filtering / took,
            "verification/join": verifying / took,
        },
        "published": {
            "index and filtering/join": round((filtered + serialized) / total, 2),
            "verification/join": round(verified / total, 2),
        },
    }


def verified(
    data: str,
    block: SetBlock,
    threshold: str,
    repeat: int,
    runs: dict[str, tuple[str, int]],
) -> dict[str, Any]:
    """Verify a chunk of the same candidates by each way and number of threads: Figs. 14
    and 15.
    """
    join = Operands.of(block, None, rule_of(threshold))
    filters = HostFilter(
        join, prefixes(join, groups=False), len(join.left) // 2, positional=False
    )
    found = next(chunks(filters, len(join.left), CHUNKS[1])).found

    def count(way: str, threads: int) -> int:
        sink = SetPairCounter(join)
        verify_grouped(join, found, way, threads, sink)
        return sink.totals()[0]

    took = {
        name: timed(lambda how=how: count(*how), repeat, int)
        for name, how in runs.items()
    }
    told = compared(
        {name: (one["seconds"], one["found"]) for name, one in took.items()}
    )
    return {
        "data": data,
        "threshold": threshold,
        "candidates": len(found.candidates),
        **told,
    }


def kernels(
    data: str,
    block: SetBlock,
    figures: list[str] | None,
    thresholds: tuple[str, ...],
    repeat: int,
) -> Iterator[dict[str, Any]]:
    """Yield Figs. 12 to 15 of one data set."""
    low = thresholds[-1]
    asked = figures or ("fig12", "fig13", "fig14", "fig15")
    if data in FIG12 and "fig12" in asked:
        sizes = {f"{size >> 20} MB": hybrid("PPJ", "C", 128, size) for size in CHUNKS}
        told = compared(
            {name: seconds_of(block, low, how, repeat) for name, how in sizes.items()}
        )
        yield {
            "figure": "fig12",
            "data": data,
            "threshold": low,
            **told,
            "paper's winner": "a small M_c",
        }
    for name, way in FIG13:
        if name == data and "fig13" in asked:
            split = {who: hybrid("GRP", way, members=who) for who in ("gpu", "cpu")}
            told = compared(
                {who: seconds_of(block, low, how, repeat) for who, how in split.items()}
            )
            yield {
                "figure": "fig13",
                "data": data,
                "threshold": low,
                **told,
                "paper's winner": "cpu",
            }
    if data in FIG14 and "fig14" in asked:
        for threshold in thresholds:
            told = verified(
                data, block, threshold, repeat, {way: (way, 32) for way in WAYS}
            )
            preferred = "B" if SHAPES[data].small else "C"
            yield {"figure": "fig14", **told, "paper's winner": preferred}
    if data in FIG15 and "fig15" in asked:
        way, most = ("B", "32") if SHAPES[data].small else ("C", "128")
        told = verified(
            data,
            block,
            low,
            repeat,
            {str(threads): (way, threads) for threads in BLOCKS},
        )
        yield {"figure": "fig15", "way": way, **told, "paper's winner": most}


def on_device(
    data: list[str],
    figures: list[str] | None,
    thresholds: tuple[str, ...],
    rows: int | None,
    repeat: int,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of all figures; all settings must count the same."""
    done: list[dict[str, Any]] = []

    def wanted(*names: str) -> bool:
        return not figures or bool(set(names) & set(figures))

    for name in data:
        host = made(name, rows)
        block = on_gpu(host)
        if wanted("tab3"):
            yield {"paper": PAPER, **told_of(name, host)}
        if wanted("fig10", "tab5"):
            for threshold in thresholds:
                one = joins(name, host, threshold, repeat, "fig10")
                done.append(one | {"winner": one["best on the gpu"].split()[0]})
                yield {"paper": PAPER, **one}
        if name == "DBLP" and wanted("tab4"):
            for threshold in TABLE4:
                yield {"paper": PAPER, **decomposed(name, block, threshold, repeat)}
        for one in kernels(name, block, figures, thresholds, repeat):
            yield {"paper": PAPER, **one}
        if name == "DBLP" and wanted("fig11"):
            for times in GROWN:
                grown = made(name, times * (rows or SHAPES[name].made))
                for threshold in GROWN_AT:
                    yield {
                        "paper": PAPER,
                        **joins(name, grown, threshold, repeat, "fig11"),
                    }
    for one in best_of(done, "fig10", "gpu"):
        yield {"paper": PAPER, **one}
