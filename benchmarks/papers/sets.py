"""Rows of the paper of joins of sets that need no GPU: its data sets' shapes, and its
three algorithms.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.harness.repeats import rounded
from benchmarks.harness.sets import block_of, sets_like
from benchmarks.papers import files
from benchmarks.papers.sets_told import (
    METHODS,
    PAPER,
    SHAPES,
    TABLE5,
    THRESHOLDS,
    WITH_BITMAPS,
)
from dask_simjoin.sets.cpu.joiner import JOINER
from dask_simjoin.sets.methods import AUTO, CHOICES, PPJoin, SetMethod
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.token_ids import SetBlock, sizes_of

TICKS = 0.1
"""Least CPU seconds of all runs of a way together."""

LONG = 2.0
"""If the first run takes more CPU seconds, it is the only one."""

MANY = 3000
"""This many sets have more than 2**20 pairs, so that a sample chooses the method."""


def made(data: str, rows: int | None) -> SetBlock:
    """Return sets of a shape, or of the file that takes its place."""
    if data in files.FILES:
        return block_of(*files.sets_of_file(data, rows))
    shape = SHAPES[data]
    number = rows or shape.made
    mean = shape.mean - 0.5  # which is what whole numbers have more, from one on
    return sets_like(number, mean, shape.tokens(number), shape.exponent, shape.tail)


def told_of(data: str, block: SetBlock) -> dict[str, Any]:
    """Yield Table 3: properties of the drawn sets and of the original data set."""
    shape, rows, sizes = SHAPES[data], int(block["weights"].sum()), sizes_of(block)
    return {
        "figure": "tab3",
        "data": data,
        "rows": rows,
        "distinct": len(sizes),
        "mean size": round(float(np.average(sizes, weights=block["weights"])), 1),
        "largest": int(sizes.max()),
        "tokens": block["universe"],
        "published": {
            "rows": shape.rows,
            "mean size": shape.mean,
            "tokens": shape.universe,
        },
    }


def rule_of(threshold: str) -> Rule:
    """Return the rule of Jaccard similarity, which the whole paper uses."""
    return Rule("jaccard", Fraction(threshold))


def cpu_seconds(
    block: SetBlock, threshold: str, ways: dict[str, str | SetMethod], repeat: int
) -> tuple[dict[str, list[float]], set[int]]:
    """Return the CPU seconds of each way to count, its index included, and its number
    of pairs.

    Ways take turns, so that what disturbs one run disturbs all alike.
    """
    rule, pairs = rule_of(threshold), set()
    runs: dict[str, list[float]] = {name: [] for name in ways}
    times = dict.fromkeys(ways, 1)
    # the first turn finds how often a run must be repeated to take long enough
    for turn in range(repeat + 1):
        for name, method in ways.items():
            if turn > 1 and runs[name][0] > LONG:
                continue
            begin = time.process_time()
            for _ in range(times[name]):
                pairs.add(JOINER.count(block, None, rule, method))
            seconds = (time.process_time() - begin) / times[name]
            if turn or seconds > LONG:
                runs[name].append(seconds)
            times[name] = max(1, int(TICKS / max(seconds, 0.001)))
    return runs, pairs


def compiled() -> None:
    """Join sets by every method, also by those that "auto" may choose, so that nothing
    is compiled later.

    Few sets are joined without the sample that chooses a method for many.
    """
    for rows in (300, MANY):
        for method in (*CHOICES, *METHODS.values()):
            JOINER.count(made("AOL", rows), None, rule_of("0.5"), method)


def algorithms(
    data: str, block: SetBlock, thresholds: tuple[str, ...], repeat: int
) -> Iterator[dict[str, Any]]:
    """Time the three algorithms, and what "auto" takes; the CPU's side of Figs. 9 and
    10.
    """
    ways: dict[str, str | SetMethod] = {**METHODS, WITH_BITMAPS: PPJoin(), AUTO: AUTO}
    for threshold in thresholds:
        runs, pairs = cpu_seconds(block, threshold, ways, repeat)
        if len(pairs) > 1:
            raise AssertionError(
                f"{data}, {threshold}: methods find {sorted(pairs)} pairs"
            )
        seconds = {name: min(some) for name, some in runs.items()}
        winner = min(METHODS, key=seconds.__getitem__)
        counters = {
            name: JOINER.counters(block, None, rule_of(threshold), method)._asdict()
            for name, method in METHODS.items()
        }
        yield {
            "figure": "fig10-cpu",
            "data": data,
            "threshold": threshold,
            "pairs": pairs.pop(),
            "seconds": {name: rounded(one) for name, one in seconds.items()},
            "winner": winner,
            "runs": {
                name: [rounded(one) for one in some] for name, some in runs.items()
            },
            "ratio": {
                name: round(seconds[name] / seconds[winner], 2) for name in METHODS
            },
            "bitmaps/winner": round(seconds[WITH_BITMAPS] / seconds[winner], 2),
            "auto/winner": round(seconds[AUTO] / seconds[winner], 2),
            "counters": counters,
        }


def best_of(
    runs: list[dict[str, Any]], figure: str, where: str
) -> Iterator[dict[str, Any]]:
    """Yield Table 5: the number of data sets where each algorithm is best, here and in
    the paper.
    """
    for k, threshold in enumerate(THRESHOLDS):
        winners = Counter(
            one["winner"]
            for one in runs
            if one["figure"] == figure and one["threshold"] == threshold
        )
        if not winners:
            continue
        published = {name: numbers[k] for name, numbers in TABLE5.items()}
        ours = {name: winners[name] for name in METHODS}
        yield {
            "figure": "tab5",
            "threshold": threshold,
            "where": where,
            "best of": ours,
            "published": published,
            "winner": _first(ours),
            "published winner": _first(published),
        }


def _first(counts: dict[str, int]) -> str:
    most = max(counts.values())
    return " = ".join(name for name, count in counts.items() if count == most)


def on_cpu(
    data: list[str],
    figures: list[str] | None,
    thresholds: tuple[str, ...],
    rows: int | None,
    repeat: int,
) -> Iterator[dict[str, Any]]:
    """Yield the rows that need no GPU."""
    done: list[dict[str, Any]] = []
    compiled()
    for name in data:
        block = made(name, rows)
        if not figures or "tab3" in figures:
            yield {"paper": PAPER, **told_of(name, block)}
        if not figures or {"fig10-cpu", "tab5"} & set(figures):
            for one in algorithms(name, block, thresholds, repeat):
                done.append(one)
                yield {"paper": PAPER, **one}
    for one in best_of(done, "fig10-cpu", "cpu"):
        yield {"paper": PAPER, **one}
