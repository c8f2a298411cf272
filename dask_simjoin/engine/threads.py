"""Share work on arrays between idle threads of this process."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Made = TypeVar("Made")

LEAST_NUMBERS = 1 << 18
"""Each thread has at least this many numbers to move: for fewer, it costs more than it saves."""

LEAST = 1 << 16
"""Each thread has at least this many items."""


def numbers_apart(dims: int) -> int:
    """Return the minimum number of points in `dims` dimensions for each thread."""
    return max(1, min(LEAST, LEAST_NUMBERS // max(1, dims)))


def together(calls: Sequence[Callable[[], Made]]) -> list[Made]:
    """Run calls concurrently, the first in this thread; return their results."""
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(len(calls) - 1) as helpers:
        others = [helpers.submit(call) for call in calls[1:]]
        return [calls[0](), *(other.result() for other in others)]


def shared_out(work: Callable[[int, int], Made], n: int, threads: int, grain: int = 1,
               min_items: int | None = None) -> list[Made]:  # fmt: skip
    """Call `work(start, stop)` concurrently for parts of n items that begin at multiples of `grain`.

    `min_items`: minimum number of items for each thread; None: `LEAST`. Return the results.
    """
    number = max(1, min(threads, n // (LEAST if min_items is None else min_items)))
    cuts = [min(round(n * k / number / grain) * grain, n) for k in range(number)]
    parts = [(a, b) for a, b in itertools.pairwise([*cuts, n]) if b > a] or [(0, n)]
    return together([functools.partial(work, *part) for part in parts])


@contextlib.contextmanager
def not_collecting() -> Iterator[None]:
    """Disable Python's garbage collector for a while.

    The collector scans all objects of all modules repeatedly and frees little. These scans take half of the
    time to load Numba, and a seventh of the time to compile.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
