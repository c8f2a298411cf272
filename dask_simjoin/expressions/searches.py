"""Add the tasks that search the nearest rows of the rows of a chunk."""

from __future__ import annotations

from dask_simjoin.engine.protocols import SearchLayout
from dask_simjoin.expressions.dask_private import Expr, List, TaskRef
from dask_simjoin.expressions.shared_work import on_worker_of
from dask_simjoin.expressions.steps import Steps
from dask_simjoin.expressions.work import chunk_ref
from dask_simjoin.tasks.nearest import join_states, search_chunk

Options = tuple[SearchLayout, int, bool, float]
"""How chunks are indexed, how many neighbours are sought, whether among rows of one table, and how far."""


def add_searches(steps: Steps, c: int, others: list[int], chunks: Expr, numbers: list[int | TaskRef],
                 options: Options, parts: int, threads: int) -> TaskRef:  # fmt: skip
    """Search a chunk's rows, in so many parts, among the others one after the other: what is known then.

    `threads`: that put what parts found together.
    """
    states = add_parts(steps, c, others, chunks, numbers, options, parts)
    return states[0] if parts == 1 else steps.add("found", c, join_states, threads, *states)


def add_parts(steps: Steps, c: int, others: list[int], chunks: Expr, numbers: list[int | TaskRef],
              options: Options, parts: int, workers: int = 1) -> list[TaskRef]:  # fmt: skip
    """Do the same, and leave the parts apart; `workers`: that share them, each its own."""
    layout, k, *limits = options
    states: list[TaskRef] = []
    for part in range(parts):
        state: list[TaskRef] = []
        where = on_worker_of(part * workers // parts, c) if workers > 1 else (c,)
        for d in others:
            pair = (chunk_ref(chunks, side, (part, parts)) for side in (c, d))
            how = layout, k, List(numbers[c], numbers[d]), *limits, (part, parts)
            state = [steps.add("search", (*where, part, d), search_chunk, *pair, *how, *state)]
        states += state
    return states
