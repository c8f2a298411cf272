"""Make the expressions of lazy marks of rows whose sets match those of rows that stay."""

from __future__ import annotations

import functools
from typing import Any

from dask_simjoin.cluster.algorithms.dbscan import merge_edges
from dask_simjoin.cluster.algorithms.greedy import HostPairs, stays_of_all
from dask_simjoin.cluster.algorithms.group_best import merge_candidates
from dask_simjoin.cluster.expressions.duplicates import CONNECTED
from dask_simjoin.expressions.dask_private import Expr, List, TaskRef
from dask_simjoin.expressions.source import pick
from dask_simjoin.expressions.steps import Steps, after
from dask_simjoin.expressions.work import chunk_ref
from dask_simjoin.metrics.types import Array
from dask_simjoin.planning.resources import resources
from dask_simjoin.sets.alike import (
    best_of_chunk,
    check_pairs,
    forest_of_block,
    marks_but,
    marks_of_groups,
    on_host,
    pairs_of_block,
    standing_rows,
)
from dask_simjoin.sets.expressions.joins import SETS, RowValues, SetNeighborCounts
from dask_simjoin.sets.planning.plan import SetPlan

MERGED = 4
"""Lists of edges that one task merges."""


class SetNearDuplicated(SetNeighborCounts):
    """Stand for marks of rows that match others which stay before they are planned."""

    _label = "simjoin_set_near_duplicated"
    _parameters = ["frame", "source", "spec", "keep", "grouping", "meta", "chosen"]

    def _found(self, common: tuple[Any, ...], chosen: list[int] | None) -> Expr:
        return MarkRows(*common, self.operand("keep"), self.operand("grouping"), chosen)


class MarkRows(RowValues):
    """Mark the rows of each block that do not stay."""

    _label = "simjoin_set_duplicates"
    _parameters = [*RowValues._parameters[:-1], "keep", "grouping", "_partitions"]

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
                SETS.meet(self.chunks, i, j, spec, plan.layout, part), List(rows[i], rows[j]),
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
        told = [add("told", b, pick, some, 2) for b, some in enumerate(best)]
        winners = steps.merged("winners", merge_candidates, told)
        return [add("gone", b, marks_of_groups, ref, rows[b], best[b], winners) for b, ref in enumerate(refs)]

    def _greedy(
        self, steps: Steps, refs: list[TaskRef], rows: list[TaskRef], found: list[TaskRef]
    ) -> list[TaskRef]:
        """Choose in one task, which is told all pairs, once it is known that they fit."""
        add, spec = steps.add, self.operand("spec")
        room = resources(spec.library).room
        numbers = [add("number", place, number_of_pairs, some) for place, some in enumerate(found)]
        checked = add("check", 0, check_all, room, spec.asked, *numbers)
        own = [add("names", b, on_host, some) for b, some in enumerate(rows)]
        whole = add("choose", 0, after, checked, stays_of_chunks, spec.library, List(*own), *found)
        return [
            add("gone", b, marks_but, ref, rows[b], add("stay", b, pick, whole, b))
            for b, ref in enumerate(refs)
        ]


def number_of_pairs(pairs: HostPairs) -> int:
    """Count the pairs of a block pair."""
    return len(pairs[0])


def check_all(room: int | None, asked: str, *numbers: int) -> None:
    """Refuse pairs of all blocks that one task cannot hold."""
    check_pairs(sum(numbers), room, asked)


def stays_of_chunks(library: str, own: list[tuple[Any, Any]], *pairs: HostPairs) -> list[Array]:
    """Tell for each chunk which of the rows that may stay do; `own`: their numbers and keys."""
    numbers, keys = zip(*own, strict=True)
    return stays_of_all(library, list(numbers), list(keys), *pairs)
