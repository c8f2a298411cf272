"""Measures one join in this process: CPU seconds of a single core, and the number of pairs."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.data import Row

SLOW = 10.0
"""A first run of more seconds than this is the only one."""

ENOUGH = 12.0
"""Runs are repeated until they took this many seconds together."""

WARM_UP = 20
"""By how much the number of points is divided for compiling and loading."""

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
        For a row the functions to try: label -> function of the prepared points and eps.  Each runs
        once, the fastest is then measured.
    count : callable
        Number of unordered pairs in what such a function returns; not timed.
    prepare : callable
        Makes what the functions take from an array (n, d) and a run's number; not timed.
    module : str
        What must be importable.
    distribution : str
        Whose version is reported.
    inexact : frozenset of str
        Rows on which its distances are no float64 sums of squares, so that pairs may differ.
    skip : mapping
        Row -> why it is not run there.
    """

    name: str
    variants: Callable[[Row], dict[str, Join]]
    count: Callable[[Any], int]
    module: str
    distribution: str
    prepare: Callable[[np.ndarray, int], Any] = _as_it_is
    inexact: frozenset[str] = frozenset()
    skip: Mapping[str, str] = field(default_factory=dict)


def measure(tool: Tool, row: Row, repeat: int) -> dict[str, Any]:
    """Measure `tool` on `row`.

    Returns
    -------
    dict
        variant, median, seconds (of each run that counts), first (of each variant's first run) and
        pairs.
    """
    points = row.points()
    variants = tool.variants(row)
    some = points[: max(len(points) // WARM_UP, 1)]
    run = 0
    first: dict[str, float] = {}
    pairs = set()
    for label, join in variants.items():
        _once(tool, join, some, row.eps, run)
        first[label], found = _once(tool, join, points, row.eps, run + 1)
        pairs.add(found)
        run += 2
    best = min(first, key=first.__getitem__)
    seconds = [first[best]] if first[best] > SLOW else []
    while not seconds or (first[best] <= SLOW and len(seconds) < repeat and sum(seconds) < ENOUGH):
        second, found = _once(tool, variants[best], points, row.eps, run)
        seconds.append(second)
        pairs.add(found)
        run += 1
    return {
        "variant": best,
        "median": statistics.median(seconds),
        "seconds": seconds,
        "first": first,
        "pairs": sorted(pairs),
    }


def _once(tool: Tool, join: Join, points: np.ndarray, eps: float, run: int) -> tuple[float, int]:
    """CPU seconds (of all threads, kernel included) and the number of pairs of one run."""
    given = tool.prepare(points, run)
    gc.collect()
    began = time.process_time()
    result = join(given, eps)
    took = time.process_time() - began
    found = int(tool.count(result))
    del given, result
    gc.collect()
    return took, found
