"""Lazy results of OPTICS by a minimum spanning forest."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.cluster.algorithms.forest import (
    core_of,
    forest_of_block,
    merge_attached,
    merge_forests,
    merge_smallest,
    numbers_of_rows,
    order_forest,
    smallest_of_block,
)
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.chunks import chunk_refs
from dask_simjoin.expressions.dask_private import List, Task, TaskRef
from dask_simjoin.expressions.source import pick
from dask_simjoin.expressions.steps import Steps, blocks_of_chunks
from dask_simjoin.planning.plan import Plan
from dask_simjoin.tasks.chunks import Chunk

FORESTS = 4
"""Forests that one task merges: each may be of all rows."""


class ForestRows(LabelledExpr):
    """The result for the rows of each chunk, from a forest.

    Core distances come first, then the forest of each block pair, merged in a tree.  `neighbors`: how many
    a core row has.
    """

    _label = "simjoin_optics_order"
    _parameters = ["chunks", "plan", "neighbors"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").chunks) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        steps = Steps("simjoin_optics", self.deterministic_token)
        add, layout, number = steps.add, plan.layout, self.operand("neighbors")
        every, blocks = range(len(plan.chunks)), plan.blocks.tolist()
        refs = [chunk_refs(self.chunks, c, c)[0] for c in every]
        met = blocks_of_chunks(plan)

        def of_sides(found: list[TaskRef]) -> list[tuple[list[int], list[TaskRef]]]:
            return [([side for _, side, _ in own], [found[b] for b, _, _ in own]) for own in met]

        smallest = [
            add("smallest", b, smallest_of_block, refs[i], refs[j], layout, number, i == j)
            for b, (i, j) in enumerate(blocks)
        ]
        cores = [
            add("core", c, _core, refs[c], number, sides, *found)
            for c, (sides, found) in enumerate(of_sides(smallest))
        ]
        names = [add("rows", c, _row_names, refs[c], name) for c, name in enumerate(steps.names(plan, refs))]
        forests = [
            add("forest", b, _forest, layout, i == j, *(x[c] for x in (refs, cores, names) for c in (i, j)))
            for b, (i, j) in enumerate(blocks)
        ]
        trees = [add("trees", b, pick, forest, 0) for b, forest in enumerate(forests)]
        reached = [add("reached", b, pick, forest, 1) for b, forest in enumerate(forests)]
        forest = steps.merged("merge", merge_forests, trees, fan_in=FORESTS)
        attached = [
            add("attached", c, _attached, cores[c], sides, *found)
            for c, (sides, found) in enumerate(of_sides(reached))
        ]
        order = add("visit", 0, order_forest, List(*names), List(*cores), List(*attached), forest)
        for c in every:
            steps.layer[(self._name, c)] = Task((self._name, c), pick, order, c)
        return steps.layer


def _core(chunk: Chunk, number: int, sides: list[int], *found: list[np.ndarray]) -> np.ndarray:
    best = np.full((len(chunk["ids"]), number), np.inf)
    for side, some in zip(sides, found, strict=True):
        best = merge_smallest(best, some[side])
    return core_of(best)


def _row_names(chunk: Chunk, names: Any) -> np.ndarray:
    return numbers_of_rows(len(chunk["ids"]), names)


def _forest(layout: Any, same: bool, q: Chunk, d: Chunk, q_core: Any, d_core: Any, q_names: Any,
            d_names: Any) -> Any:  # fmt: skip
    return forest_of_block(q, d, (q_core, d_core), [q_names, d_names], layout, same)


def _attached(core: np.ndarray, sides: list[int], *found: list[Any]) -> Any:
    return merge_attached(len(core), *(some[side] for side, some in zip(sides, found, strict=True)))
