"""Measures one join in this process: CPU seconds of a single core, and the number of
pairs.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from benchmarks.harness.points import Row

SLOW = 10.0
"""If the first run takes more seconds, it is the only one."""

ENOUGH = 12.0
"""Runs are repeated until they have taken this many seconds together."""

WARM_UP = 20
"""The run that compiles and loads divides the number of points by this."""

Join = Callable[[Any, float], Any]


def _as_it_is(x: np.ndarray, run: int) -> Any:
    return x


@dataclass(frozen=True)
class Tool:
    """Something that joins points, and how to use it.

    Attributes
    ----------
    name : str
    variants : callable
        For a row the functions to try: label -> function of the prepared points and
        eps.  Each runs once, the fastest is then measured.
    tune_on : int
        These tries divide the number of points by this.
    count : callable
        Number of unordered pairs in what such a function returns; not timed.
    prepare : callable
        Makes what the functions take from an array (n, d) and a run's number; not
        timed.
    module : str
        Module that must be importable.
    distribution : str
        Distribution whose version is reported.
    inexact : frozenset of str
        Rows on which its distances are no float64 sums of squares, so that pairs may
        differ.
    skip : mapping
        Row -> why it is not run there.
    """

    name: str
    variants: Callable[[Row], dict[str, Join]]
    count: Callable[[Any], int]
    module: str
    distribution: str
    prepare: Callable[[np.ndarray, int], Any] = _as_it_is
    tune_on: int = 1
    inexact: frozenset[str] = frozenset()
    skip: Mapping[str, str] = field(default_factory=dict)


def measure(tool: Tool, row: Row, repeat: int) -> dict[str, Any]:
    """Measure `tool` on `row`.

    Returns
    -------
    dict
        variant, median, seconds (of each run that counts), tries (seconds of each
        variant's try) and pairs.
    """
    points = row.points()
    variants = tool.variants(row)
    runs = itertools.count()

    def once(label: str, x: np.ndarray) -> tuple[float, int]:
        return _once(tool, variants[label], x, row.eps, next(runs))

    some, part = points[: len(points) // WARM_UP], points[: len(points) // tool.tune_on]
    tries = {}
    for label in variants:
        once(label, some)
        tries[label] = once(label, part)
    best = min(tries, key=lambda label: tries[label][0])
    first = tries[best] if tool.tune_on == 1 else once(best, points)
    measured = [first] if first[0] > SLOW else []
    if not measured:
        while not measured or (
            len(measured) < repeat and sum(s for s, _ in measured) < ENOUGH
        ):
            measured.append(once(best, points))
    seconds = [second for second, _ in measured]
    return {
        "variant": best,
        "median": statistics.median(seconds),
        "seconds": seconds,
        "tries": {label: second for label, (second, _) in tries.items()},
        "pairs": sorted({pairs for _, pairs in measured}),
    }


def _once(
    tool: Tool, join: Join, points: np.ndarray, eps: float, run: int
) -> tuple[float, int]:
    """Return the CPU seconds (of all threads, kernel included) and the number of pairs
    of one run.
    """
    given = tool.prepare(points, run)
    gc.collect()
    began = time.process_time()
    result = join(given, eps)
    took = time.process_time() - began
    found = int(tool.count(result))
    del given, result
    gc.collect()
    return took, found


def least_in_turns(
    ways: Mapping[str, Callable[[], Any]], repeat: int, number: str
) -> dict[str, dict[str, Any]]:
    """Run several ways to do a job in turns. Return for each its CPU seconds, the least
    of them, and `number`: what it returns, or the length of that.
    """
    found: dict[str, dict[str, Any]] = {name: {"seconds": []} for name in ways}
    for _ in range(repeat):
        for name, way in ways.items():
            gc.collect()
            began = time.process_time()
            result = way()
            found[name]["seconds"].append(round(time.process_time() - began, 4))
            found[name][number] = (
                result if isinstance(result, Integral) else len(result)
            )
            del result
    for one in found.values():
        one["least"] = min(one["seconds"])
    return found


def show_least(job: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the least seconds of each way."""
    least = {name: one["least"] for name, one in found.items()}
    print(job, least, file=sys.stderr)
