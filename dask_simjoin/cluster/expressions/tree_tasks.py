"""Make the tasks that find minimum spanning trees."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dask_simjoin.cluster.algorithms.core_distances import join_known, known_of_state, known_of_whole, sought
from dask_simjoin.cluster.algorithms.spanning import (
    begin_rounds,
    edges_between,
    join_round,
    merge_trees,
    places_of_rows,
    share_of_round,
    tree_of_chunk,
)
from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.expressions.chunks import Chunks
from dask_simjoin.expressions.dask_private import List, TaskRef
from dask_simjoin.expressions.searches import add_parts
from dask_simjoin.expressions.shared_work import on_worker_of
from dask_simjoin.expressions.steps import Steps
from dask_simjoin.expressions.work import chunk_ref
from dask_simjoin.metrics.types import Frame
from dask_simjoin.planning.chunking.entity import EntityChunks
from dask_simjoin.planning.plan import Plan

TREES = 2
"""Trees that one task merges: each may be of all rows."""

SHARED_ROUNDS = 6
"""Rounds that are shared; in each, components become a third to a tenth, and what is left is done by one."""


def add_tree(steps: Steps, chunks: Chunks, plan: Plan, samples: int,
             example: Frame) -> tuple[list[TaskRef], TaskRef]:  # fmt: skip
    """Add the tasks that find the tree: the places of each chunk's rows, and its edges.

    Searches of nearest rows give core distances; each chunk's tree and the edges between two chunks are
    merged in a tree of tasks.  Of one chunk, rounds of its tree are shared by all that would be idle.
    """
    add, layout, sharing = steps.add, plan.layout, plan.sharing
    refs = [chunk_ref(chunks, c) for c in range(len(plan.chunks))]
    own = steps.row_numbers(plan, refs)
    places = _places(plan, own)
    number = max(1, min(sought(samples), plan.rows))
    known, trees = [], []
    for c, others in enumerate(plan.searches):
        parts = max(sharing[0], int(plan.parts[c]))
        if len(refs) == 1:
            every = _add_known(steps, chunks, layout, samples, parts, sharing[1])
        else:
            options = layout, number, True, np.inf
            states = add_parts(steps, c, others.tolist() or [c], chunks, own, options, parts, sharing[1])
            every = [
                add("known", (c, part), known_of_state, chunk_ref(chunks, c, (part, parts)), own[c], state,
                    samples, plan.rows)
                for part, state in enumerate(states)
            ]  # fmt: skip
        if parts > 1:  # each worker needs it all
            workers = [on_worker_of(worker, c) for worker in range(sharing[1])]
            every = [add("joined", worker, join_known, *every) for worker in workers]
        about = [(places[c], layout, some) for some in every]
        progress = _add_rounds(steps, chunks, about, sharing[0]) if sharing[0] > 1 else None
        known.append(every[0])
        trees.append(add("tree", c, tree_of_chunk, refs[c], *about[0], progress))
    between = [
        add("between", b, edges_between, List(refs[i], refs[j]), List(places[i], places[j]), layout,
            List(known[i], known[j]), List(trees[i], trees[j]))
        for b, (i, j) in enumerate(plan.joined.tolist())
    ]  # fmt: skip
    rows = [add("rows", c, places_of_rows, refs[c], some) for c, some in enumerate(places)]
    merge = partial(merge_trees, rows_of_frame(plan), example)
    return rows, steps.merged("merge", merge, [*trees, *between], fan_in=TREES)


def _add_known(steps: Steps, chunks: Chunks, layout: SearchLayout, samples: int, parts: int,
               workers: int) -> list[TaskRef]:  # fmt: skip
    """Search the one chunk in itself, in so many parts, which keep of what they find what the tree needs."""
    found = []
    for part in range(parts):
        where = on_worker_of(part * workers // parts, part) if workers > 1 else part
        some = part, parts
        known = steps.add("search", where, known_of_whole, chunk_ref(chunks, 0, some), layout, samples, some)
        found.append(known)
    return found


def rows_of_frame(plan: Plan) -> int:
    """Count the rows of the frame, those that are left out included."""
    return sum(rows for rows, _ in plan.sources[0])


def _places(plan: Plan, own: list[int | TaskRef]) -> list[int | TaskRef]:
    """List the place of each chunk's first row, or those of all of its rows where they are numbered so."""
    counted = plan.counted
    return counted.starts.tolist() if isinstance(counted, EntityChunks) else own


def _add_rounds(steps: Steps, chunks: Chunks, about: list[tuple[Any, ...]], number: int) -> TaskRef:
    """Add the rounds of the one chunk's tree that so many search in parts; `about`: it, for each worker.

    Each worker joins components itself: what goes from worker to worker is edges that parts have found.
    """
    workers = range(len(about))
    whole = [(chunk_ref(chunks, 0, (worker, len(about))), *about[worker]) for worker in workers]
    progress = [
        steps.add("begin", on_worker_of(worker), begin_rounds, *whole[worker], number) for worker in workers
    ]
    for n in range(SHARED_ROUNDS):
        found = []
        for part in range(number):
            worker = part * len(about) // number
            how = *whole[worker], progress[worker], (part, number)
            found.append(steps.add("share", on_worker_of(worker, n, part), share_of_round, *how))
        progress = [
            steps.add("round", on_worker_of(worker, n), join_round, *whole[worker], progress[worker], *found)
            for worker in workers
        ]
    return progress[0]
