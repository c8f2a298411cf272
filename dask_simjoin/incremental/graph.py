"""The lazy pairs of rows of an index: a task for every two parts of it that are compared."""

from __future__ import annotations

import collections
import functools
from typing import Any

from dask_simjoin.expressions.base import LabelledExpr, RowsExpr
from dask_simjoin.expressions.dask_private import Task, TaskRef
from dask_simjoin.expressions.source import itself
from dask_simjoin.expressions.worker_memory import on_worker
from dask_simjoin.incremental.blocks import Blocks
from dask_simjoin.incremental.compare import Comparison, pairs_across, pairs_with_part, pairs_within
from dask_simjoin.incremental.compare_held import pairs_with_slabs
from dask_simjoin.incremental.loaded import load_near
from dask_simjoin.incremental.parts import HeldPart, load_moved
from dask_simjoin.incremental.types import Part
from dask_simjoin.metrics.types import Frame


def pairs_of_parts(how: Comparison, parts: tuple[Part, ...], columns: list[str]) -> Frame:
    """Read a part and compare it with itself, or two and compare them with each other."""
    read = [load_moved(how.spec, how.cut, False, part, ()) for part in parts]
    if len(read) == 1:
        return pairs_within(how, read[0], None, columns)
    return pairs_across(how, read[0], read[1], None, False, columns)


class Rows(LabelledExpr):
    """Rows that several tasks compare: those that came or went, and old ones near several parts of them."""

    _label = "simjoin_moved"
    _parameters = ["blocks"]

    @property
    def _blocks(self) -> Blocks:
        blocks: Blocks = self.operand("blocks")
        return blocks

    @functools.cached_property
    def _shared(self) -> dict[int, int]:
        """Number the parts of old rows that several parts of moved ones meet, or that were read."""
        meets, old = collections.Counter(j for _, j in self._blocks.meet), self._blocks.old
        several = [
            j
            for j, part in enumerate(old)
            if isinstance(part, dict) or (meets[j] > 1 and isinstance(part, Part))
        ]
        return {j: len(self._blocks.moved) + 1 + n for n, j in enumerate(several)}

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self._blocks.moved) + 2 + len(self._shared))

    def moved(self, i: int) -> TaskRef:
        """Refer to a part of the rows that came or went."""
        return TaskRef((self._name, i))

    def replaced(self) -> TaskRef | None:
        """Refer to what is known of rows that were replaced."""
        return None if self._blocks.replaced is None else TaskRef((self._name, len(self._blocks.moved)))

    def old(self, j: int) -> TaskRef | None:
        """Refer to a part of the old rows; None: the one task that compares them reads them."""
        return TaskRef((self._name, self._shared[j])) if j in self._shared else None

    def _layer(self) -> dict[Any, Any]:
        blocks, name = self._blocks, self._name
        layer: dict[Any, Any] = {}
        for i, rows in enumerate(blocks.moved):
            key = (name, i)
            how = blocks.spec, blocks.cut, bool(blocks.meet)
            if isinstance(rows, Part):
                layer[key] = Task(key, on_worker, load_moved, *how, rows, ())
            elif isinstance(rows, HeldPart):
                slabs = (slab.ref for slab in rows.slabs)
                layer[key] = Task(key, on_worker, load_moved, *how, rows.rest, rows.chosen, *slabs)
            else:
                layer[key] = Task(key, itself, rows)
        key = (name, len(blocks.moved))
        layer[key] = Task(key, itself, blocks.replaced)
        for j, number in self._shared.items():
            key = (name, number)
            old = blocks.old[j]
            read = isinstance(old, dict)
            layer[key] = Task(key, itself, old) if read else Task(key, on_worker, load_near, old, blocks.spec)
        for part in (*blocks.moved, *blocks.old):
            if isinstance(part, HeldPart):
                layer |= {slab.key: slab.in_graph() for slab in part.slabs}
        return layer


class Pairs(RowsExpr):
    """Pairs of rows of an index, a partition of each block."""

    _label = "simjoin_changed"
    _parameters = ["rows", "blocks", "meta", "columns", "_partitions"]
    _defaults = {"columns": None, "_partitions": None}

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(len(self.operand("blocks")), 1) + 1)

    def _filtered_task(self, name: Any, index: int) -> Task:
        blocks: Blocks = self.operand("blocks")
        rows: Rows = self.operand("rows")
        if not len(blocks):
            return Task(name, itself, self._meta)
        how = Comparison(blocks.spec, blocks.cut, self.operand("meta"))
        if index < len(blocks.read_apart):
            return Task(name, on_worker, pairs_of_parts, how, blocks.read_apart[index], self.columns)
        index -= len(blocks.read_apart)
        rest = rows.replaced(), self.columns
        if index < len(blocks.within):
            return Task(name, pairs_within, how, rows.moved(blocks.within[index]), *rest)
        index -= len(blocks.within)
        if index < len(blocks.across):
            i, j = blocks.across[index]
            others = rows.moved(j), rest[0], False, self.columns
            return Task(name, pairs_across, how, rows.moved(i), *others)
        i, j = blocks.meet[index - len(blocks.across)]
        old, part = rows.old(j), blocks.old[j]
        if isinstance(part, HeldPart):
            slabs = (slab.ref for slab in part.slabs)
            return Task(name, pairs_with_slabs, how, rows.moved(i), part.chosen, *rest, *slabs)
        if old is None:
            return Task(name, on_worker, pairs_with_part, how, rows.moved(i), part, *rest)
        return Task(name, pairs_across, how, rows.moved(i), old, rest[0], True, self.columns)
