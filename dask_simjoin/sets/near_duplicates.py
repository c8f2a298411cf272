"""Select the rows that stay among those whose sets match.

Where equal sets match, only the best of their rows can stay, and stands for all of them: pairs are of
distinct sets, so many copies of a few sets cost nothing.  Where they do not, as with ``comparison="="``, each
row stands for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from dask.utils import format_bytes

from dask_simjoin.cluster.algorithms.duplicates import (
    PAIR_BYTES,
    Candidates,
    GroupRows,
    HostPairs,
    best_of,
    best_rows,
    concatenated,
    preferences,
    stays_of_all,
    stays_of_groups,
)
from dask_simjoin.engine.base import frames_for, joiner_of_library
from dask_simjoin.engine.compat import tally, to_host
from dask_simjoin.errors import BudgetError, Remedy
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.chunks import SetBlockPair, SetChunk
from dask_simjoin.sets.found import matches_in_parts, matching_groups, rows_of_matches
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.tasks.counts import Edges, new_nodes


class SetStanding(NamedTuple):
    """Hold the rows of a chunk that may stay, by groups of rows whose sets are equal.

    Attributes
    ----------
    rows : array (k,), int64
        Their positions in the chunk.
    firsts : array (groups + 1,), int64
        Where those of each group begin, and the end.
    numbers, keys : array (k,), int64
        Their numbers in the frame, and what says which is to stay: the largest.
    """

    rows: Array
    firsts: Array
    numbers: Array
    keys: Array


def standing_rows(chunk: SetChunk, spec: SetSpec, keep: Hashable) -> SetStanding:
    """Find the rows that may stay: the best of those whose sets are equal, if these match."""
    xp = frames_for(chunk["example"]).xp
    order, firsts = chunk["order"], chunk["firsts"]
    places = xp.arange(len(order))
    numbers = chunk.get("position", places)
    keys = preferences(chunk, keep, numbers)
    group = xp.searchsorted(firsts, places, side="right") - 1
    alike = matching_groups(chunk, spec, xp)
    best = best_of(xp.where(alike[group], firsts[group], places), keys[order], order)
    ends = xp.cumsum(tally(group[best], len(firsts) - 1))
    rows = order[best]
    return SetStanding(
        rows, xp.concatenate([xp.zeros(1, np.int64), ends.astype(np.int64)]), numbers[rows], keys[rows]
    )


def _matches(block_pair: SetBlockPair, sides: Sequence[SetStanding]) -> Iterator[tuple[Array, Array]]:
    """Find pairs of rows that may stay, as places among them, some at a time."""
    chunks = [cast(Any, {"firsts": side.firsts}) for side in (sides[0], sides[-1])]
    thin = block_pair._replace(q=chunks[0], d=chunks[1])
    wide = [side.firsts[1:] - side.firsts[:-1] for side in (sides[0], sides[-1])]
    for found in matches_in_parts(block_pair, *block_pair.range, False):
        rows = wide[0][found.left] * wide[1][found.right]
        pairs = rows_of_matches(thin, found._replace(rows=rows), False)
        yield pairs.left, pairs.right


def forest_of_block(block_pair: SetBlockPair, sides: Sequence[SetStanding]) -> Edges:
    """Connect rows of two chunks by as few edges as do what all of their matches connect."""
    xp, joiner = block_pair.xp, joiner_of_library(block_pair.spec.library)
    numbers = sides[0].numbers if block_pair.same else xp.concatenate([side.numbers for side in sides])
    first = 0 if block_pair.same else len(sides[0].numbers)
    parent = new_nodes(len(numbers), xp)
    for left, right in _matches(block_pair, sides):
        joiner.link(parent, left, right + first)
    joiner.roots(parent)
    other = xp.flatnonzero(parent != xp.arange(len(parent)))
    return numbers[other], numbers[parent[other]]


def pairs_of_block(block_pair: SetBlockPair, sides: Sequence[SetStanding],
                   told: Callable[[int], None] | None = None) -> HostPairs:  # fmt: skip
    """List the matches of two chunks by the numbers of their rows.

    `told`: is called, now and then, with how many were found so far.
    """
    numbers = [to_host(side.numbers) for side in (sides[0], sides[-1])]
    parts: list[HostPairs] = []
    found = 0
    for left, right in _matches(block_pair, sides):
        parts.append((numbers[0][to_host(left)], numbers[1][to_host(right)]))
        found += len(left)
        if told is not None:
            told(found)
    return concatenated(parts)


def check_pairs(pairs: int, room: int | None, asked: str) -> None:
    """Refuse so many pairs, of which one task must be told all."""
    if room is not None and pairs * PAIR_BYTES > room:
        raise BudgetError(
            f"grouping='greedy' is told all pairs of distinct sets at once: {asked} gives {pairs:,}, which "
            f"take {format_bytes(pairs * PAIR_BYTES)}, and there are {format_bytes(room)}. Use "
            "grouping='connected', for which pairs need not fit, or a larger threshold.",
            remedies=[Remedy({"grouping": "connected"})],
        )


def _by_number(standing: SetStanding) -> Array:
    order: Array = standing.numbers.argsort()
    return order


def best_of_chunk(standing: SetStanding, forest: Edges, library: str) -> GroupRows:
    """Find the best row of each group of connected ones, as far as one chunk tells."""
    order, xp = _by_number(standing), joiner_of_library(library).xp
    return best_rows(xp.arange(len(order)), standing.numbers[order], forest, standing.keys[order])


def marks_of_groups(chunk: SetChunk, standing: SetStanding, found: GroupRows, winners: Candidates) -> Array:
    """Mark the rows of a chunk (n,) int64 that are not the best of their group of connected ones: 1."""
    order = _by_number(standing)
    return marks_but(chunk, standing._replace(rows=standing.rows[order]),
                     stays_of_groups(found, len(order), winners))  # fmt: skip


def marks_but(chunk: SetChunk, standing: SetStanding, stay: Array) -> Array:
    """Mark the rows of a chunk (n,) int64 but for those that stay (k,) bool, of those that may."""
    gone = frames_for(chunk["example"]).xp.ones(len(chunk["ids"]), np.int64)
    gone[standing.rows[stay]] = 0
    return gone


def on_host(standing: SetStanding) -> tuple[np.ndarray, np.ndarray]:
    """Take the numbers of rows that may stay, and what says which is to, to the host."""
    return to_host(standing.numbers), to_host(standing.keys)


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
