"""Seconds of work on a GPU."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import cupy

SLOW, ENDLESS = 4.0, 40.0
"""A run of more seconds is not repeated; a first one, which may compile, only if it
took very many.
"""


def clock(work: Callable[[], Any]) -> float:
    """Return the seconds of a call on the GPU."""
    gc.collect()
    cupy.cuda.Device().synchronize()
    began = time.perf_counter()
    work()
    cupy.cuda.Device().synchronize()
    return time.perf_counter() - began


def timed(
    function: Callable[[], Any], repeat: int, count: Callable[[Any], int] = len
) -> dict[str, Any]:
    """Return the seconds of each run after a first one, their median, and the number of
    results.

    If the first run is very long, it is the only one, and the key "only the first" says
    so.
    """
    seconds: list[float] = []
    found = 0
    while len(seconds) <= max(1, repeat) and not _enough(seconds):
        gc.collect()
        cupy.cuda.Device().synchronize()
        began = time.perf_counter()
        result = function()
        cupy.cuda.Device().synchronize()
        seconds.append(time.perf_counter() - began)
        found = count(result)
        del result
    kept = seconds[1:] or seconds
    told = {
        "median": statistics.median(kept),
        "seconds": kept,
        "first": seconds[0],
        "found": found,
    }
    return told if seconds[1:] else told | {"only the first": True}


def _enough(seconds: list[float]) -> bool:
    return bool(seconds) and (
        seconds[-1] > SLOW if seconds[1:] else seconds[0] > ENDLESS
    )
