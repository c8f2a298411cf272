"""Run the steps of joins of plain frames, with threads of this process.

All threads share the indexes of the tables. A step is cut into parts of about equal
work, several for each thread, and threads take the parts in turn.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.process import numbers_apart, shared_out, together
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.planning.plan import Plan
from dask_simjoin.tasks.counts import Number, count_block, count_block_pairs
from dask_simjoin.tasks.matches import BlockPair
from dask_simjoin.tasks.pairs import (
    ResultRows,
    cast_like,
    concat_results,
    join_block,
    result_rows,
)

TURNS = 4
"""Number of parts per thread."""

PAIRS_APART = 1 << 20
"""Minimum number of pairs per thread, if there are too few rows for several threads."""


def parts_of(block_pair: BlockPair, plan: Plan, threads: int) -> int:
    """Return into how many parts it pays to cut the work of a block pair."""
    if block_pair.xp is not np:
        return 1
    rows = max(len(chunk["ids"]) for chunk in block_pair.chunks)
    by_pairs = int(plan.result.estimate.total / PAIRS_APART)
    number = min(threads, max(rows // numbers_apart(plan.tables.dims), by_pairs))
    return TURNS * number if number > 1 else 1


def join(
    block_pair: BlockPair,
    columns: list[str],
    plan: Plan,
    threads: int,
    like: Frame | None = None,
    unmatched_left: ResultRows | None = None,
) -> Frame:
    """Do the work of `join_block` with several threads."""
    parts = parts_of(block_pair, plan, threads)
    if parts == 1:
        return join_block(block_pair, columns, like=like, unmatched_left=unmatched_left)

    def found(number: int) -> list[ResultRows]:
        rows = block_pair._replace(part=(number, parts)).rows
        return result_rows(block_pair, columns, rows)

    calls = [functools.partial(found, number) for number in range(parts)]
    rows = list(itertools.chain.from_iterable(together(calls, threads)))
    frames = frames_for(block_pair.query["example"])
    made = concat_results(rows, columns, frames, like, unmatched_left, threads)
    return made if like is None or unmatched_left is not None else cast_like(made, like)


def count_rows(block_pair: BlockPair, plan: Plan, threads: int) -> Array:
    """Return the number of neighbors of each row of the first chunk, in row order: see
    `count_block`.

    Several threads find each pair of a self-join twice, once from each of its rows.
    """
    query, spec, joiner = block_pair.query, block_pair.spec, block_pair.joiner
    twice = block_pair.is_self_join and block_pair.layout.method != "sweep"
    parts = parts_of(block_pair, plan, threads)
    if parts == 1 or spec.several or spec.radius is not None or (twice and threads < 3):
        return count_block(block_pair)[0]
    rows = len(query["ids"])
    counts, order = np.empty(rows, np.int64), query["order"][:rows]

    def count(start: int, stop: int) -> None:
        found = joiner.weights(
            *block_pair.operands, is_self_join=False, rows=(start, stop)
        )
        # a row of a self-join was counted as its own neighbor
        counts[order[start:stop]] = found - block_pair.is_self_join

    grain = block_pair.layout.grain
    shared_out(count, rows, parts // TURNS, grain, min_items=1, turns=TURNS)
    return counts


def count_pairs(block_pair: BlockPair, plan: Plan, threads: int) -> Number:
    """Do the work of `count_block_pairs` with several threads."""
    parts = parts_of(block_pair, plan, threads)
    calls = [
        functools.partial(count_block_pairs, block_pair._replace(part=(number, parts)))
        for number in range(parts)
    ]
    return sum(together(calls, threads))
