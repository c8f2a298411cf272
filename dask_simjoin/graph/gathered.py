"""Gather all partitions of a result in one task, as `compute` does, with all threads.

Dask concatenates partitions in one thread. For a large result of a join this takes
longer than to find its pairs: most of the time the thread waits for new memory.
"""

from __future__ import annotations

from typing import Any

from dask_simjoin.engine.cpu.frames import stacked_by_threads
from dask_simjoin.graph.dask_private import (
    Expr,
    List,
    RepartitionToFewer,
    Task,
    TaskRef,
    concat_partitions,
)
from dask_simjoin.metrics.norms import Frame


class Gathered(RepartitionToFewer):
    """All rows of a result as one partition. `threads`: how many threads copy."""

    _parameters = ["frame", "new_partitions", "threads"]

    def _layer(self) -> dict[Any, Any]:
        key = self._name, 0
        parts = (TaskRef((self.frame._name, n)) for n in range(self.frame.npartitions))
        return {key: Task(key, gathered, List(*parts), self.operand("threads"))}


def gathered_by_threads(frame: Expr, parent: Expr, threads: int) -> Expr | None:
    """Return what should replace `parent`, which reads `frame`: `Gathered`, if the
    parent makes one partition of all; None: it stays.
    """
    if (
        type(parent) is not RepartitionToFewer
        or parent.operand("new_partitions") != 1
        or threads < 2
    ):
        return None
    return Gathered(frame, 1, threads)


def gathered(parts: list[Frame], threads: int) -> Frame:
    """Concatenate partitions as Dask does."""
    some = [part for part in parts if len(part)]
    found = stacked_by_threads(some, threads) if len(some) > 1 else None
    return concat_partitions(parts) if found is None else found
