"""Run the steps of joins of plain frames, with threads of this process.

All threads share the indexes of the tables. A step is cut into parts of about equal
work, several for each thread, and threads take the parts in turn.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.process import TURN_SECONDS, in_turns, numbers_apart, together
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.planning.plan import WholePlan
from dask_simjoin.tasks.counts import Number, count_block, count_block_pairs
from dask_simjoin.tasks.matches import BlockPair
from dask_simjoin.tasks.pairs import (
    ResultRows,
    cast_like,
    concat_results,
    join_block,
    result_rows,
)

Made = TypeVar("Made")

TURNS = 4
"""Number of parts per thread."""

PAIR_WORK = 64
"""Coordinates that are compared in the time of counting a pair by a sweep."""

PAIRS_APART = 1 << 20
"""Minimum number of pairs per thread, if there are too few rows for several threads."""


def parts_of(block_pair: BlockPair, plan: WholePlan, threads: int) -> int:
    """Return into how many parts it pays to cut the work of a block pair."""
    if block_pair.xp is not np:
        return 1
    number = _threads_for(block_pair, plan, threads)
    return TURNS * number if number > 1 else 1


def _threads_for(block_pair: BlockPair, plan: WholePlan, threads: int) -> int:
    """Return how many threads share the work of a block pair."""
    rows = max(len(chunk["ids"]) for chunk in block_pair.chunks)
    by_pairs = int(plan.estimate.total / PAIRS_APART)
    return max(1, min(threads, max(rows // numbers_apart(plan.dims), by_pairs)))


def _in_turns(
    work: Callable[[int, int], Made],
    block_pair: BlockPair,
    plan: WholePlan,
    threads: int,
) -> list[Made]:
    """Run work for ranges of places of the first chunk, one range after the other."""
    queries, data = (len(chunk["ids"]) for chunk in block_pair[:2])
    # a sweep compares few points that are no pairs
    cost: float = data * plan.dims
    if block_pair.layout.method == "sweep":
        cost = PAIR_WORK * (1 + plan.estimate.total / max(1, queries))
    longer = 1 + len(block_pair.spec.several)
    return in_turns(
        work,
        queries,
        _threads_for(block_pair, plan, threads),
        cost / longer,
        block_pair.layout.grain,
        TURNS,
        TURN_SECONDS * longer,
    )


def join(
    block_pair: BlockPair,
    columns: list[str],
    plan: WholePlan,
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


def count_rows(block_pair: BlockPair, plan: WholePlan, threads: int) -> Array:
    """Return the number of neighbors of each row of the first chunk, in row order: see
    `count_block`.

    Several threads find each pair of a self-join twice, once from each of its rows.
    """
    query, spec, joiner = block_pair.query, block_pair.spec, block_pair.joiner
    if block_pair.xp is not np or spec.radius is not None:
        return count_block(block_pair)[0]
    twice = block_pair.is_self_join and block_pair.layout.method != "sweep"
    number = _threads_for(block_pair, plan, threads)
    if spec.several or (twice and number < 3):
        return _each_pair_once(block_pair, plan, threads)
    rows = len(query["ids"])
    counts, order = np.empty(rows, np.int64), query["order"][:rows]

    def count(start: int, stop: int) -> None:
        nonlocal counts
        if block_pair.is_self_join and stop - start == rows:
            counts = count_block(block_pair)[0]
            return
        found = joiner.weights(
            *block_pair.operands, is_self_join=False, rows=(start, stop)
        )
        # a row of a self-join was counted as its own neighbor
        counts[order[start:stop]] = found - block_pair.is_self_join

    _in_turns(count, block_pair, plan, threads)
    return counts


def _each_pair_once(block_pair: BlockPair, plan: WholePlan, threads: int) -> Array:
    """Do the work of `count_rows` for ranges of places, and find each pair once."""
    total, lock = None, threading.Lock()

    def count(start: int, stop: int) -> None:
        nonlocal total
        every = stop - start == len(block_pair.query["ids"])
        found = count_block(block_pair, rows=None if every else (start, stop))[0]
        with lock:
            total = found if total is None else np.add(total, found, out=total)

    _in_turns(count, block_pair, plan, threads)
    return total


def count_pairs(block_pair: BlockPair, plan: WholePlan, threads: int) -> Number:
    """Do the work of `count_block_pairs` with several threads."""
    if block_pair.xp is not np or block_pair.spec.radius is not None:
        parts = parts_of(block_pair, plan, threads)
        every = [block_pair._replace(part=(number, parts)) for number in range(parts)]
        calls = [functools.partial(count_block_pairs, one) for one in every]
        return sum(together(calls, threads))

    def count(start: int, stop: int) -> Number:
        every = stop - start == len(block_pair.query["ids"])
        return count_block_pairs(block_pair, None if every else (start, stop))

    return sum(_in_turns(count, block_pair, plan, threads))
