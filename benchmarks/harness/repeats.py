"""Repeated measurements of one thing: every run is kept, and the median stands for
them.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

Clock = Callable[[], float]


def rounded(seconds: float) -> float:
    """Round seconds to 10 us or to four digits, whichever is finer."""
    return round(seconds, 5) if seconds >= 0.1 else float(f"{seconds:.4g}")


def summary(runs: Sequence[float]) -> dict[str, Any]:
    """Return "seconds", the median of some runs, and "runs", all of them in their
    order.
    """
    return {
        "seconds": rounded(statistics.median(runs)),
        "runs": [rounded(one) for one in runs],
    }


def summaries(runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return the median of each number of some runs by name, and "runs", all of them."""
    each = [{name: rounded(value) for name, value in run.items()} for run in runs]
    return {
        name: rounded(statistics.median(run[name] for run in runs)) for name in each[0]
    } | {"runs": each}


def repeated(
    work: Callable[[], float],
    repeat: int,
    long: float = math.inf,
    first: Sequence[float] = (),
) -> list[float]:
    """Return the seconds of some runs; each call returns its own seconds.

    `first`: runs that are done already.  A first run of more than `long` seconds is the
    only one.
    """
    found = list(first)
    while not found or (len(found) < repeat and found[0] <= long):
        found.append(work())
    return found


def timed(work: Callable[[], Any], clock: Clock = time.process_time) -> float:
    """Return the seconds that something takes."""
    began = clock()
    work()
    return clock() - began
