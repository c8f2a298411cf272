"""Python's collector, and what goes faster without it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


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
