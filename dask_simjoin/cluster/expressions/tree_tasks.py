"""Make the tasks that find minimum spanning trees."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dask_simjoin.cluster.algorithms.spanning import (
    edges_between,
    join_round,
    known_of_state,
    merge_trees,
    places_of_rows,
    share_of_round,
    sought,
    tree_of_chunk,
)
from dask_simjoin.expressions.chunks import Chunks
from dask_simjoin.expressions.dask_private import List, TaskRef
from dask_simjoin.expressions.searches import add_searches
from dask_simjoin.expressions.steps import Steps
from dask_simjoin.expressions.work import chunk_ref
from dask_simjoin.metrics.types import Frame
from dask_simjoin.planning.chunking.entity import EntityChunks
from dask_simjoin.planning.plan import Plan

TREES = 2
"""Trees that one task merges: each may be of all rows."""

SHARED_DIMS = 5
"""Dimensions from which what a round searches is worth being shared: in few, it is a tenth of the round."""

SHARED_ROWS = 1 << 13
"""Rows from which that takes longer than the tasks that it takes."""

SHARED_ROUNDS = 8
"""Rounds that are shared; in each, components become a third to a tenth, and what is left is done by one."""


def add_tree(steps: Steps, chunks: Chunks, plan: Plan, samples: int,
             example: Frame) -> tuple[list[TaskRef], TaskRef]:  # fmt: skip
    """Add the tasks that find the tree: the places of each chunk's rows, and its edges.

    Searches of nearest rows give core distances; each chunk's tree and the edges between two chunks are
    merged in a tree of tasks.  Of one chunk, rounds of its tree are shared by all that would be idle.
    """
    add, layout, sharing = steps.add, plan.layout, sharers(plan)
    refs = [chunk_ref(chunks, c) for c in range(len(plan.chunks))]
    own = steps.row_numbers(plan, refs)
    places = _places(plan, own)
    number = max(1, min(sought(samples), plan.rows))
    known, trees = [], []
    for c, others in enumerate(plan.searches):
        options = layout, number, True, np.inf
        parts = max(sharing, int(plan.parts[c]))
        state = add_searches(steps, c, others.tolist() or [c], chunks, own, options, parts)
        known.append(add("known", c, known_of_state, refs[c], own[c], state, samples, plan.rows))
        about = places[c], layout, known[c]
        progress = _add_rounds(steps, chunks, about, sharing) if sharing > 1 else None
        trees.append(add("tree", c, tree_of_chunk, refs[c], *about, progress))
    between = [
        add("between", b, edges_between, List(refs[i], refs[j]), List(places[i], places[j]), layout,
            List(known[i], known[j]), List(trees[i], trees[j]))
        for b, (i, j) in enumerate(plan.joined.tolist())
    ]  # fmt: skip
    every = [add("rows", c, places_of_rows, refs[c], some) for c, some in enumerate(places)]
    merge = partial(merge_trees, rows_of_frame(plan), example)
    return every, steps.merged("merge", merge, [*trees, *between], fan_in=TREES)


def rows_of_frame(plan: Plan) -> int:
    """Count the rows of the frame, those that are left out included."""
    return sum(rows for rows, _ in plan.sources[0])


def _places(plan: Plan, own: list[int | TaskRef]) -> list[int | TaskRef]:
    """List the place of each chunk's first row, or those of all of its rows where they are numbered so."""
    counted = plan.counted
    return counted.starts.tolist() if isinstance(counted, EntityChunks) else own


def sharers(plan: Plan) -> int:
    """Count the threads or GPUs that find the tree of the one chunk together; 1 where there are several."""
    worth = len(plan.chunks) == 1 and (plan.dims or 0) >= SHARED_DIMS and plan.rows >= SHARED_ROWS
    return max(plan.copies, plan.threads) if worth else 1


def _add_rounds(steps: Steps, chunks: Chunks, about: tuple[Any, ...], sharing: int) -> TaskRef | None:
    """Add the first rounds of the one chunk's tree, of which each is so many tasks; `about`: its rows."""
    parts = [(part, sharing) for part in range(sharing)]
    refs = [chunk_ref(chunks, 0, part) for part in parts]
    progress: TaskRef | None = None
    for n in range(SHARED_ROUNDS):
        found = [
            steps.add("share", (n, part[0]), share_of_round, ref, *about, progress, part)
            for part, ref in zip(parts, refs, strict=True)
        ]
        progress = steps.add("round", n, join_round, refs[0], *about, progress, *found)
    return progress
