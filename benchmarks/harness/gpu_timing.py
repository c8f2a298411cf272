"""Seconds of work on a GPU."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import cupy

SLOW = 4.0
"""A run of more seconds is not repeated."""


def timed(function: Callable[[], Any], repeat: int, count: Callable[[Any], int] = len) -> dict[str, Any]:
    """Seconds of each run after a first one, their median, and how much was found.

    A first run that is slow is the only one.
    """
    seconds: list[float] = []
    found = 0
    while len(seconds) <= repeat and not (len(seconds) == 1 and seconds[0] > SLOW):
        gc.collect()
        cupy.cuda.Device().synchronize()
        began = time.perf_counter()
        result = function()
        cupy.cuda.Device().synchronize()
        seconds.append(time.perf_counter() - began)
        found = count(result)
        del result
    kept = seconds[1:] or seconds
    return {"median": statistics.median(kept), "seconds": kept, "first": seconds[0], "found": found}
