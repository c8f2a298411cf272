"""Lazy marks of rows that match a row that stays."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from dask_simjoin.cluster.algorithms.dbscan import merge_edges
from dask_simjoin.cluster.algorithms.duplicates import CONNECTED, merge_candidates
from dask_simjoin.graph.base import Steps, after, pick
from dask_simjoin.graph.dask_private import Expr, List, TaskRef
from dask_simjoin.graph.lazy_join import JoinTasks, chunk_ref
from dask_simjoin.graph.row_values import BlockValues
from dask_simjoin.planning.resources import resources_for
from dask_simjoin.sets.graph import SETS, SetNeighborCounts
from dask_simjoin.sets.near_duplicates import (
    best_of_chunk,
    check_all,
    forest_of_block,
    marks_but,
    marks_of_groups,
    number_of_pairs,
    on_host,
    pairs_of_block,
    standing_rows,
    stays_of_chunks,
)
from dask_simjoin.sets.plan import SetPlan

MERGED = 4
"""Lists of edges that one task merges."""


class SetNearDuplicated(SetNeighborCounts):
    """Marks of rows that match a row that stays."""

    _label = "simjoin_set_near_duplicated"
    _parameters = ["frame", "source", "spec", "keep", "grouping", "meta", "chosen"]

    def _found(self, common: tuple[Any, ...], chosen: list[int] | None) -> Expr:
        return MarkRows(*common, self.operand("keep"), self.operand("grouping"), chosen)


class MarkRows(BlockValues):
    """Mark the rows of each block that do not stay."""

    _label = "simjoin_set_duplicates"
    _tasks: ClassVar[JoinTasks] = SETS
    _parameters = [*BlockValues._parameters[:-1], "keep", "grouping", "_partitions"]

    def _by_block(self, steps: Steps) -> list[TaskRef]:
        plan: SetPlan = self.operand("plan")
        spec, keep, add = self.operand("spec"), self.operand("keep"), steps.add
        refs = [chunk_ref(self.chunks, b) for b in range(len(plan.counted))]
        rows = [add("rows", b, standing_rows, ref, spec, keep) for b, ref in enumerate(refs)]
        connected = self.operand("grouping") == CONNECTED
        found = [
            add(
                "forest" if connected else "pairs", (b, part[0]),
                forest_of_block if connected else pairs_of_block,
                self._tasks.block_pair(self.chunks, i, j, spec, plan.layout, part), List(rows[i], rows[j]),
            )
            for b, i, j, part in plan.pieces()
        ]  # fmt: skip
        return (
            self._of_groups(steps, refs, rows, found) if connected else self._greedy(steps, refs, rows, found)
        )

    def _of_groups(
        self, steps: Steps, refs: list[TaskRef], rows: list[TaskRef], found: list[TaskRef]
    ) -> list[TaskRef]:
        add, library = steps.add, self.operand("spec").library
        forest = steps.merged("merge", functools.partial(merge_edges, library), found, MERGED)
        best = [add("best", b, best_of_chunk, some, forest, library) for b, some in enumerate(rows)]
        candidates = [add("told", b, pick, some, 2) for b, some in enumerate(best)]
        winners = steps.merged("winners", merge_candidates, candidates)
        return [add("gone", b, marks_of_groups, ref, rows[b], best[b], winners) for b, ref in enumerate(refs)]

    def _greedy(
        self, steps: Steps, refs: list[TaskRef], rows: list[TaskRef], found: list[TaskRef]
    ) -> list[TaskRef]:
        """Choose in one task, which gets all pairs after a check that they fit."""
        add, spec = steps.add, self.operand("spec")
        room = resources_for(spec.library).room
        numbers = [add("number", place, number_of_pairs, some) for place, some in enumerate(found)]
        checked = add("check", 0, check_all, room, spec.request, *numbers)
        own = [add("names", b, on_host, some) for b, some in enumerate(rows)]
        whole = add("choose", 0, after, checked, stays_of_chunks, spec.library, List(*own), *found)
        return [
            add("gone", b, marks_but, ref, rows[b], add("stay", b, pick, whole, b))
            for b, ref in enumerate(refs)
        ]
