"""Return the values of rows from chunks to the tasks that sent the rows.

Values return in the same order as the rows were sent, so no row ids travel with them. A
task that sent rows gets one message from each chunk. It then makes all its partitions
of the result at once.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.ids import joined
from dask_simjoin.graph.base import LabelledExpr, Shared, pick
from dask_simjoin.graph.dask_private import Expr, List, Task, TaskRef
from dask_simjoin.graph.row_values import MergeablePartitions, Ranges
from dask_simjoin.graph.shuffle import partition_tasks
from dask_simjoin.metrics.norms import Frame, Ids, Series
from dask_simjoin.tasks.by_worker import own_positions, rows_of_group, values_by_group


class RowsOfGroups(LabelledExpr):
    """For each task that sent rows, make a list of the result's partitions with these
    rows.

    `found`: the values of each chunk's rows.  `chunks`: a `ChunksOfParcels`.
    """

    _label = "simjoin_rows"
    _parameters = ["found", "chunks", "offsets", "meta"]

    @functools.cached_property
    def groups(self) -> Sequence[list[int]]:
        """The partitions of each task that sent rows."""
        return [numbers for _, numbers in self.chunks.parcels.operand("groups")]

    def place(self, g: int) -> Any:
        """Return the place of group `g`, so that the worker that sent the rows makes
        its partitions.
        """
        return self.chunks.parcels.place(g)

    def _divisions(self) -> Any:
        return (None,) * (1 + len(self.groups))

    def _layer(self) -> dict[Any, Any]:
        token, sent, offsets = (
            self.deterministic_token,
            self.chunks.parcels,
            self.operand("offsets").ref,
        )
        keys, layer = partition_tasks(sent.operand("frozen").inner)
        split, part, places, labels = (
            f"simjoin_{name}-{token}" for name in ("split", "part", "places", "labels")
        )
        parts: list[list[TaskRef]] = [[] for _ in self.groups]
        for c in range(self.found.npartitions):
            refs = TaskRef(self.chunks.key(c)), TaskRef(self.found.key(c))
            place = self.found.key(c)[1]
            key: Any = (split, place)
            layer[key] = Task(key, values_by_group, *refs, offsets, list(self.groups))
            for g in range(len(self.groups)):
                some = (part, (*place, g) if isinstance(place, tuple) else (place, g))
                layer[some] = Task(some, pick, TaskRef(key), g)
                parts[g].append(TaskRef(some))
        for g, numbers in enumerate(self.groups):
            place = sent.place(g)
            layer[(places, place)] = Task(
                (places, place), own_positions, TaskRef(sent.key(g))
            )
            held = (TaskRef(keys[n]) for n in numbers)
            layer[(labels, place)] = Task((labels, place), _labels, *held)
            names = TaskRef((labels, place)), TaskRef((places, place))
            how = self.operand("meta"), offsets, sent.operand("threads")
            key = self.key(g)
            layer[key] = Task(key, rows_of_group, numbers, *how, *names, *parts[g])
        return layer


def _labels(*partitions: Frame) -> list[Ids]:
    """Return the index labels of the rows of each partition."""
    return [partition.index for partition in partitions]


class RowsByWorker(MergeablePartitions):
    """Pick the partitions of a result from the lists of `RowsOfGroups`."""

    _parameters = ["label", "made", "rows", "meta", "source_divisions", "_partitions"]

    @functools.cached_property
    def _held(self) -> dict[int, tuple[int, int]]:
        """For each partition, the task that sent its rows, and the partition's position
        in the list of this task.
        """
        return {
            n: (g, k)
            for g, numbers in enumerate(self.made.groups)
            for k, n in enumerate(numbers)
        }

    def _filtered_task(self, name: Any, index: int) -> Task:
        g, k = self._held[index]
        return Task(name, pick, TaskRef(self.made.key(g)), k)

    def _rows(self) -> list[int]:
        return [self.operand("rows")[n] for n in self._partitions]

    def _merged(self, groups: Ranges, divisions: Any) -> Expr:
        held = [self._held[n] for n in self._partitions]
        ranges = [held[first:last] for first, last in groups]
        return MergedRows(
            self.operand("label"), self.made, ranges, self._meta, divisions
        )


class MergedRows(LabelledExpr):
    """Merge consecutive partitions of `RowsByWorker`.

    `ranges`: for each merged partition, its parts as (task that sent the part, position
    in the task's list).
    """

    _parameters = ["label", "made", "ranges", "meta", "source_divisions"]

    def _layer(self) -> dict[Any, Any]:
        layer: dict[Any, Any] = {}
        some = f"{self.operand('label')}_some-{self.deterministic_token}"
        for n, held in enumerate(self.operand("ranges")):
            parts: list[TaskRef] = []
            # a separate task selects the parts, so that workers send these instead of
            # whole lists
            for g in sorted({g for g, _ in held}):
                own = [
                    (number, k) for number, (group, k) in enumerate(held) if group == g
                ]
                layer[(some, n, g)] = Task(
                    (some, n, g), _picked, TaskRef(self.made.key(g)), own
                )
                parts.append(TaskRef((some, n, g)))
            key = (self._name, n)
            layer[key] = Task(key, _merged, self._meta, List(*parts))
        return layer


Numbered = list[tuple[int, Series]]
"""Partitions, each with its number in the order of the result."""


def _picked(made: Sequence[Series], own: Sequence[tuple[int, int]]) -> Numbered:
    return [(number, made[place]) for number, place in own]


def _merged(meta: Series, parts: Sequence[Numbered]) -> Series:
    numbered = dict(itertools.chain.from_iterable(parts))
    every = [numbered[n] for n in range(len(numbered))]
    frames = frames_for(meta)
    values = frames.xp.concatenate([found.to_numpy() for found in every])
    return frames.rows(values, joined([found.index for found in every]), meta)


def rows_by_worker(
    label: str,
    found: Expr,
    chunks: Expr,
    offsets: np.ndarray,
    meta: Series,
    divisions: Any,
    chosen: list[int] | None,
) -> Expr:
    """Return the values `found` of the chunks' rows to the partitions of the source."""
    shared = Shared("simjoin_offsets", offsets)
    made = RowsOfGroups(found, chunks, shared, meta)
    rows = np.diff(offsets).tolist()
    return RowsByWorker(label, made, rows, meta, divisions, chosen)
