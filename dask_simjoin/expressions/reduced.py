"""Make few partitions of what was found of rows, where a reduction is all that reads them.

Dask reduces each partition by a task of its own, and fuses no tasks in `compute()`: on a cluster the largest
label of 320 partitions was two tasks for each of them, half of the time of a clustering.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

from dask_simjoin.expressions.aligned import Held, found_task
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.dask_private import (
    Elemwise,
    Expr,
    ReducedPartition,
    RepartitionToFewer,
    Task,
    TreeReduce,
)

ROWS_TOGETHER = 1 << 20
"""Rows, at most, of partitions that are made one: what a task of the scheduler is worth, and 16 MB."""

FEW = 2
"""Partitions that are left at least: what Dask makes fewer must be more than it makes of them."""

Dependents = dict[str, list["weakref.ref[Expr]"]]
"""Expressions that read others, by the names of these."""


class FoundTogether(LabelledExpr):
    """Put what was found of the rows of several partitions, one after the other, together as one.

    `held`: of each of them the chunks that hold its rows, and which of their pieces.
    """

    _parameters = ["label", "found", "names", "held", "meta", "divisions_of_each"]

    @property
    def _label(self) -> str:  # type: ignore[override]
        return f"{self.operand('label')}_rows"

    @functools.cached_property
    def _meta(self) -> Any:
        return self.operand("meta")

    def _divisions(self) -> Any:
        return self.operand("divisions_of_each")

    def _layer(self) -> dict[Any, Any]:
        names, found, held = self.names._name, self.found._name, self.operand("held")
        keys = [(self._name, n) for n in range(len(held))]
        return {
            key: Task(key, *found_task(names, found, some, self._meta))
            for key, some in zip(keys, held, strict=True)
        }


def read_by_reductions(expr: Expr, dependents: Dependents) -> bool:
    """Tell whether each value that is read of an expression is only reduced, in whatever partitions."""
    readers = [reader for ref in dependents[expr._name] if (reader := ref()) is not None]
    return bool(readers) and all(_reduces(reader, dependents) for reader in readers)


def _reduces(reader: Expr, dependents: Dependents) -> bool:
    if isinstance(reader, RepartitionToFewer):
        return reader.npartitions == 1
    if len(reader.dependencies()) != 1:
        return False
    if type(reader) is ReducedPartition:
        above = [node for ref in dependents[reader._name] if (node := ref()) is not None]
        return bool(above) and all(type(node) is TreeReduce for node in above)
    return isinstance(reader, Elemwise) and read_by_reductions(reader, dependents)


def together(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Choose partitions first ... last-1 that are made one, of so many rows each."""
    most = min(ROWS_TOGETHER, -(-sum(rows) // FEW))
    found, first, size = [], 0, 0
    for n, own in enumerate(rows):
        if n > first and size + own > most:
            found.append((first, n))
            first, size = n, 0
        size += own
    return [*found, (first, len(rows))] if rows else []


def join_held(held: Sequence[Held], groups: Sequence[tuple[int, int]]) -> tuple[Held, ...]:
    """List the spans of pieces that groups of partitions are made of; those that go on are one."""
    found = []
    for first, last in groups:
        spans: list[tuple[int, int, int]] = []
        for c, start, stop in (span for some in held[first:last] for span in some):
            if spans and spans[-1][0] == c and spans[-1][2] == start:
                spans[-1] = c, spans[-1][1], stop
            else:
                spans.append((c, start, stop))
        found.append(tuple(spans))
    return tuple(found)
