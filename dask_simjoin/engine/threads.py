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
"""Numbers that are worth a thread to move them."""

LEAST = 1 << 16
"""Things that are worth a thread."""


def numbers_apart(dims: int) -> int:
    """Tell how many points of so many dimensions are worth a thread."""
    return max(1, min(LEAST, LEAST_NUMBERS // max(1, dims)))


def together(calls: Sequence[Callable[[], Made]]) -> list[Made]:
    """Make calls at a time, the first in the thread that asks, others in their own; what they return."""
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(len(calls) - 1) as helpers:
        others = [helpers.submit(call) for call in calls[1:]]
        return [calls[0](), *(other.result() for other in others)]


def shared_out(work: Callable[[int, int], Made], n: int, threads: int, grain: int = 1,
               least: int | None = None) -> list[Made]:  # fmt: skip
    """Call `work(start, stop)` for parts of n things, which begin at multiples of `grain`: see `together`.

    `least`: things that are worth a thread; None: `LEAST`.
    """
    number = max(1, min(threads, n // (LEAST if least is None else least)))
    cuts = [min(round(n * k / number / grain) * grain, n) for k in range(number)]
    parts = [(a, b) for a, b in itertools.pairwise([*cuts, n]) if b > a] or [(0, n)]
    return together([functools.partial(work, *part) for part in parts])


@contextlib.contextmanager
def not_collecting() -> Iterator[None]:
    """Leave Python's collector alone for a while.

    It goes through all objects of all modules again and again, and finds little: that takes half the time of
    loading Numba, and a seventh of compiling with it.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
