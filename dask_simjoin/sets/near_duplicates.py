"""Select the rows to keep among near duplicates.

If equal sets match, only the best row of each set can be kept, and it represents the
other rows. So only pairs of distinct sets are listed, and copies of a row cost nothing.
With ``comparison="="``, equal sets may not match; then each row represents only itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from dask_simjoin.cluster.algorithms.dbscan import merge_edges
from dask_simjoin.cluster.algorithms.duplicates import (
    CONNECTED,
    Candidates,
    GroupRows,
    HostPairs,
    best_of,
    best_rows,
    concatenated,
    priorities,
    stays_of_all,
    stays_of_groups,
)
from dask_simjoin.engine.base import frames_for, joiner_of_library
from dask_simjoin.engine.compat import tally, to_host
from dask_simjoin.errors import Remedy
from dask_simjoin.metrics.norms import Array
from dask_simjoin.planning.budget import free_memory
from dask_simjoin.planning.checks import check_at_once
from dask_simjoin.request.clusters import OneStays
from dask_simjoin.sets.chunks import SetBlockPair, SetChunk, running_total
from dask_simjoin.sets.pairs import (
    SetMatches,
    by_threads,
    count_block,
    matches_in_parts,
    matching_groups,
    rows_of_matches,
)
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.sizes import ROW_BYTES
from dask_simjoin.tasks.counts import Edges, new_nodes


class SetCandidates(NamedTuple):
    """The rows of a chunk that may be kept, called candidate rows. They are grouped by
    equal sets.
    """

    rows: Array  # positions of the rows in the chunk (k,), int64
    firsts: Array  # start of each group's rows, and the end (groups + 1,), int64
    numbers: Array
    keys: Array
    """(k,), int64: positions of the candidate rows in the table; and their priorities.

    If two rows match, the one with the larger priority is kept.
    """


def candidate_rows(chunk: SetChunk, spec: SetSpec, keep: Hashable) -> SetCandidates:
    """Find the candidate rows: the best row of each set if equal sets match, otherwise
    all rows.
    """
    xp = frames_for(chunk["example"]).xp
    order, firsts = chunk["order"], chunk["firsts"]
    places = xp.arange(len(order))
    numbers = chunk.get("position", places)
    keys = priorities(chunk, keep, numbers)
    group = xp.searchsorted(firsts, places, side="right") - 1
    match = matching_groups(chunk, spec, xp)
    best = best_of(xp.where(match[group], firsts[group], places), keys[order], order)
    ends = xp.cumsum(tally(group[best], len(firsts) - 1))
    rows = order[best]
    return SetCandidates(
        rows,
        xp.concatenate([xp.zeros(1, np.int64), ends.astype(np.int64)]),
        numbers[rows],
        keys[rows],
    )


def _matches(
    block_pair: SetBlockPair,
    sides: Sequence[SetCandidates],
    matches: Iterator[SetMatches] | None,
) -> Iterator[tuple[Array, Array]]:
    """Yield the matching pairs of candidate rows in batches, as positions in
    `SetCandidates.rows`. `matches`: the matching sets; None: find them.
    """
    if matches is None:
        matches = matches_in_parts(block_pair, *block_pair.range, False)
    chunks = [cast(Any, {"firsts": side.firsts}) for side in (sides[0], sides[-1])]
    thin = block_pair._replace(query=chunks[0], data=chunks[1])
    wide = [side.firsts[1:] - side.firsts[:-1] for side in (sides[0], sides[-1])]
    for found in matches:
        rows = wide[0][found.left] * wide[1][found.right]
        pairs = rows_of_matches(thin, found._replace(rows=rows), False)
        yield pairs.left, pairs.right


def forest_of_block(
    block_pair: SetBlockPair,
    sides: Sequence[SetCandidates],
    matches: Iterator[SetMatches] | None = None,
) -> Edges:
    """Return a spanning forest of the candidate rows in two chunks. The edges are
    matches, see `_matches`.
    """
    xp, joiner = block_pair.xp, joiner_of_library(block_pair.spec.library)
    numbers = (
        sides[0].numbers
        if block_pair.is_self_join
        else xp.concatenate([side.numbers for side in sides])
    )
    first = 0 if block_pair.is_self_join else len(sides[0].numbers)
    parent = new_nodes(len(numbers), xp)
    for left, right in _matches(block_pair, sides, matches):
        joiner.link(parent, left, right + first)
    joiner.roots(parent)
    other = xp.flatnonzero(parent != xp.arange(len(parent)))
    return numbers[other], numbers[parent[other]]


def pairs_of_block(
    block_pair: SetBlockPair,
    sides: Sequence[SetCandidates],
    matches: Iterator[SetMatches] | None = None,
    report: Callable[[int], None] = lambda pairs: None,
) -> HostPairs:
    """List the matching pairs of candidate rows. Rows are given by their positions in
    the table.

    `matches`: see `_matches`. `report`: is called after each batch, with its number of
    pairs.
    """
    numbers = [to_host(side.numbers) for side in (sides[0], sides[-1])]
    parts: list[HostPairs] = []
    for left, right in _matches(block_pair, sides, matches):
        parts.append((numbers[0][to_host(left)], numbers[1][to_host(right)]))
        report(len(left))
    return concatenated(parts)


def check_pairs(free: int | None, request: str, *numbers: int) -> None:
    """Raise an error if the pairs of all block pairs do not fit in the memory of one
    task. `free`: bytes; None: no limit.
    """
    check_at_once(
        free,
        f"{sum(numbers):,}",
        sum(numbers) * ROW_BYTES,
        f"grouping='greedy' needs all pairs of distinct values at once: {request}",
        "grouping='connected', which does not hold all pairs, or a stricter limit.",
        [Remedy({"grouping": "connected"})],
    )


def _by_number(candidates: SetCandidates) -> Array:
    order: Array = candidates.numbers.argsort()
    return order


def best_of_chunk(candidates: SetCandidates, forest: Edges, library: str) -> GroupRows:
    """Find the best row of each connected component, within one chunk."""
    order, xp = _by_number(candidates), joiner_of_library(library).xp
    return best_rows(
        xp.arange(len(order)), candidates.numbers[order], forest, candidates.keys[order]
    )


def marks_of_groups(
    chunk: SetChunk, candidates: SetCandidates, found: GroupRows, winners: Candidates
) -> Array:
    """For each row, return 0 if it is kept as the best row of its component, else 1
    (n,), int64.
    """
    order = _by_number(candidates)
    return marks_but(
        chunk,
        candidates._replace(rows=candidates.rows[order]),
        stays_of_groups(found, len(order), winners),
    )


def marks_but(chunk: SetChunk, candidates: SetCandidates, stay: Array) -> Array:
    """For each row return 0 if it is kept, else 1 (n,), int64. `stay` (k,): mask of the
    candidate rows to keep.
    """
    gone = frames_for(chunk["example"]).xp.ones(len(chunk["ids"]), np.int64)
    gone[candidates.rows[stay]] = 0
    return gone


def on_host(candidates: SetCandidates) -> tuple[np.ndarray, np.ndarray]:
    """Copy the positions and the priorities of candidate rows to host memory."""
    return to_host(candidates.numbers), to_host(candidates.keys)


def number_of_pairs(pairs: HostPairs) -> int:
    return len(pairs[0])


def stays_of_chunks(
    library: str, own: list[tuple[Any, Any]], *pairs: HostPairs
) -> list[Array]:
    """For each chunk, return a mask of the candidate rows to keep.

    `own`: for each chunk, the positions and the priorities of its candidate rows.
    """
    numbers, keys = zip(*own, strict=True)
    return stays_of_all(library, list(numbers), list(keys), *pairs)


def marks_of_chunk(block_pair: SetBlockPair, request: OneStays) -> Array:
    """For a single chunk, return a mask of the rows to drop (n,). `block_pair`: the
    chunk compared with itself.
    """
    chunk, spec = block_pair.query, block_pair.spec
    if request.counted:
        return count_block(block_pair)[0] > 0
    rows = candidate_rows(chunk, spec, request.keep)
    if request.grouping == CONNECTED:
        forests = by_threads(
            block_pair, False, lambda own, found: forest_of_block(own, [rows], found)
        )
        forest = merge_edges(spec.library, *forests)
        best = best_of_chunk(rows, forest, spec.library)
        return marks_of_groups(chunk, rows, best, best.candidates) != 0
    check = running_total(functools.partial(check_pairs, free_memory(), spec.request))
    lists = by_threads(
        block_pair, False, lambda own, found: pairs_of_block(own, [rows], found, check)
    )
    pairs = concatenated(lists)
    (stay,) = stays_of_chunks(spec.library, [on_host(rows)], pairs)
    return marks_but(chunk, rows, stay) != 0
