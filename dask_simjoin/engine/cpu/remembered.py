"""Remembers what was told of two indexes as long as both are held."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from dask_simjoin.metrics.types import Index

T = TypeVar("T")


class _Told(Generic[T]):
    """What is told of two indexes, once it is, and the arrays that tell whether they are those."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.arrays: tuple[weakref.ref[object], ...] = ()
        self.value: T | None = None


class Remembered(Generic[T]):
    """Give the same to all tasks of a process that ask for the same of the same two indexes.

    Parts of the work of two chunks are tasks of their own, each of which asks how that is cut.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[Hashable, _Told[T]] = {}

    def find(self, q: Index, d: Index, asked: Hashable, compute: Callable[[], T]) -> T:
        """Return what `compute` gives, or has given; while it does, only who asks for the same waits."""
        arrays = q["order"], d["order"]
        key = *map(id, arrays), asked

        def forget(_: object) -> None:
            self._told.pop(key, None)

        with self._lock:
            told = self._told.setdefault(key, _Told())
        with told.lock:
            same = len(told.arrays) == 2 and all(
                ref() is array for ref, array in zip(told.arrays, arrays, strict=True)
            )
            if not same or told.value is None:
                told.value = compute()
                told.arrays = tuple(
                    weakref.ref(array, lambda _: self._told.pop(key, None)) for array in arrays
                )
            return told.value
