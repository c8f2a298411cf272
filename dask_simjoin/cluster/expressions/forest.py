"""Make the expressions of lazy results of OPTICS by a minimum spanning forest."""

from __future__ import annotations

from typing import Any

from dask_simjoin.cluster.algorithms.forest import (
    core_distances,
    forest_of_block,
    merge_attached,
    merge_forests,
    numbers_of_rows,
    order_forest,
    smallest_of_block,
)
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.dask_private import List, Task, TaskRef
from dask_simjoin.expressions.source import pick, picked
from dask_simjoin.expressions.steps import Steps, blocks_of_chunks
from dask_simjoin.expressions.work import chunk_ref, meeting_of
from dask_simjoin.planning.plan import Plan

FORESTS = 4
"""Forests that one task merges: each may be of all rows."""


class ForestRows(LabelledExpr):
    """Make the result for the rows of each chunk, from a forest.

    Core distances come first, then the forest of each block pair, merged in a tree.  `neighbors`: how many
    a core row has.
    """

    _label = "simjoin_optics_order"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "neighbors"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").chunks) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        steps = Steps("simjoin_optics", self.deterministic_token)
        add, number = steps.add, self.operand("neighbors")
        every, blocks = range(len(plan.chunks)), plan.blocks.tolist()
        refs = [chunk_ref(self.chunks, c) for c in every]
        meetings = [meeting_of(self.chunks, i, j, self.operand("spec"), plan.layout) for i, j in blocks]
        met = blocks_of_chunks(plan)

        def of_chunk(found: list[TaskRef], c: int) -> list[Task]:
            return [picked(found[b], side) for b, side, _ in met[c]]

        smallest = [add("smallest", b, smallest_of_block, found, number) for b, found in enumerate(meetings)]
        cores = [add("core", c, core_distances, refs[c], number, *of_chunk(smallest, c)) for c in every]
        numbers = steps.row_numbers(plan, refs)
        numbers = [add("rows", c, numbers_of_rows, refs[c], own) for c, own in enumerate(numbers)]
        forests = [
            add("forest", b, forest_of_block, meetings[b], *(List(x[i], x[j]) for x in (cores, numbers)))
            for b, (i, j) in enumerate(blocks)
        ]
        trees = [add("trees", b, pick, forest, 0) for b, forest in enumerate(forests)]
        reached = [add("reached", b, pick, forest, 1) for b, forest in enumerate(forests)]
        forest = steps.merged("merge", merge_forests, trees, fan_in=FORESTS)
        attached = [add("attached", c, merge_attached, cores[c], *of_chunk(reached, c)) for c in every]
        every_row = List(*numbers), List(*cores), List(*attached)
        order = add("visit", 0, order_forest, *every_row, forest, self.operand("spec").measure)
        for c in every:
            steps.layer[(self._name, c)] = Task((self._name, c), pick, order, c)
        return steps.layer
