"""Select the rows that stay among those whose sets match.

If equal sets match, only the best of their rows can stay.  It represents all of them, so pairs are pairs of
distinct sets, and copies cost nothing.  If equal sets do not match, as with ``comparison="="``, each row
represents itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from dask.utils import format_bytes

from dask_simjoin.cluster.algorithms.dbscan import merge_edges
from dask_simjoin.cluster.algorithms.duplicates import (
    PAIR_BYTES,
    Candidates,
    GroupRows,
    HostPairs,
    best_of,
    best_rows,
    concatenated,
    merge_candidates,
    preferences,
    stays_of_all,
    stays_of_groups,
)
from dask_simjoin.cluster.expressions.duplicates import CONNECTED
from dask_simjoin.engine.base import frames_for, joiner_of_library
from dask_simjoin.engine.compat import tally, to_host
from dask_simjoin.errors import BudgetError, Remedy
from dask_simjoin.graph.dask_private import Expr, List, TaskRef
from dask_simjoin.graph.lazy_join import chunk_ref
from dask_simjoin.graph.row_values import BlockValues
from dask_simjoin.graph.source import pick
from dask_simjoin.graph.steps import Steps, after
from dask_simjoin.metrics.norms import Array
from dask_simjoin.planning.resources import resources_for
from dask_simjoin.sets.chunks import SetBlockPair, SetChunk
from dask_simjoin.sets.graph import SETS, SetNeighborCounts
from dask_simjoin.sets.pairs import matches_in_parts, matching_groups, rows_of_matches
from dask_simjoin.sets.plan import SetPlan
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.tasks.counts import Edges, new_nodes


class SetStanding(NamedTuple):
    """The rows of a chunk that may stay, by groups of rows with equal sets.

    Attributes
    ----------
    rows : array (k,), int64
        Their positions in the chunk.
    firsts : array (groups + 1,), int64
        Start of each group's rows, and the end.
    numbers, keys : array (k,), int64
        Their numbers in the frame, and their priorities: the row with the largest key stays.
    """

    rows: Array
    firsts: Array
    numbers: Array
    keys: Array


def standing_rows(chunk: SetChunk, spec: SetSpec, keep: Hashable) -> SetStanding:
    """Find the rows that may stay: the best row of each group of equal sets, if these match."""
    xp = frames_for(chunk["example"]).xp
    order, firsts = chunk["order"], chunk["firsts"]
    places = xp.arange(len(order))
    numbers = chunk.get("position", places)
    keys = preferences(chunk, keep, numbers)
    group = xp.searchsorted(firsts, places, side="right") - 1
    match = matching_groups(chunk, spec, xp)
    best = best_of(xp.where(match[group], firsts[group], places), keys[order], order)
    ends = xp.cumsum(tally(group[best], len(firsts) - 1))
    rows = order[best]
    return SetStanding(
        rows, xp.concatenate([xp.zeros(1, np.int64), ends.astype(np.int64)]), numbers[rows], keys[rows]
    )


def _matches(block_pair: SetBlockPair, sides: Sequence[SetStanding]) -> Iterator[tuple[Array, Array]]:
    """Yield batches of matching pairs of rows that may stay, as positions among them."""
    chunks = [cast(Any, {"firsts": side.firsts}) for side in (sides[0], sides[-1])]
    thin = block_pair._replace(q=chunks[0], d=chunks[1])
    wide = [side.firsts[1:] - side.firsts[:-1] for side in (sides[0], sides[-1])]
    for found in matches_in_parts(block_pair, *block_pair.range, False):
        rows = wide[0][found.left] * wide[1][found.right]
        pairs = rows_of_matches(thin, found._replace(rows=rows), False)
        yield pairs.left, pairs.right


def forest_of_block(block_pair: SetBlockPair, sides: Sequence[SetStanding]) -> Edges:
    """Return a spanning forest of the rows of two chunks, connected by their matches."""
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
                   report: Callable[[int], None] | None = None) -> HostPairs:  # fmt: skip
    """List the matches of two chunks by the numbers of their rows.

    `report`: is called now and then with the number of pairs so far.
    """
    numbers = [to_host(side.numbers) for side in (sides[0], sides[-1])]
    parts: list[HostPairs] = []
    found = 0
    for left, right in _matches(block_pair, sides):
        parts.append((numbers[0][to_host(left)], numbers[1][to_host(right)]))
        found += len(left)
        if report is not None:
            report(found)
    return concatenated(parts)


def check_pairs(pairs: int, room: int | None, request: str) -> None:
    """Refuse a number of pairs that one task cannot hold."""
    if room is not None and pairs * PAIR_BYTES > room:
        raise BudgetError(
            f"grouping='greedy' needs all pairs of distinct sets at once: {request} gives {pairs:,}, which "
            f"take {format_bytes(pairs * PAIR_BYTES)}, and there are {format_bytes(room)}. Use "
            "grouping='connected', whose pairs need not fit, or a larger threshold.",
            remedies=[Remedy({"grouping": "connected"})],
        )


def _by_number(standing: SetStanding) -> Array:
    order: Array = standing.numbers.argsort()
    return order


def best_of_chunk(standing: SetStanding, forest: Edges, library: str) -> GroupRows:
    """Find the best row of each connected group within one chunk."""
    order, xp = _by_number(standing), joiner_of_library(library).xp
    return best_rows(xp.arange(len(order)), standing.numbers[order], forest, standing.keys[order])


def marks_of_groups(chunk: SetChunk, standing: SetStanding, found: GroupRows, winners: Candidates) -> Array:
    """Return 1 for each row of a chunk that is not the best of its connected group, else 0 (n,), int64."""
    order = _by_number(standing)
    return marks_but(chunk, standing._replace(rows=standing.rows[order]),
                     stays_of_groups(found, len(order), winners))  # fmt: skip


def marks_but(chunk: SetChunk, standing: SetStanding, stay: Array) -> Array:
    """Return 0 for the rows that stay, else 1 (n,), int64; `stay`: a mask of the rows that may (k,)."""
    gone = frames_for(chunk["example"]).xp.ones(len(chunk["ids"]), np.int64)
    gone[standing.rows[stay]] = 0
    return gone


def on_host(standing: SetStanding) -> tuple[np.ndarray, np.ndarray]:
    """Copy the numbers and keys of rows that may stay to the host."""
    return to_host(standing.numbers), to_host(standing.keys)


MERGED = 4
"""Lists of edges that one task merges."""


class SetNearDuplicated(SetNeighborCounts):
    """Marks of rows that match a row that stays."""

    _label = "simjoin_set_near_duplicated"
    _parameters = ["frame", "source", "spec", "keep", "grouping", "meta", "chosen"]

    def _found(self, common: tuple[Any, ...], chosen: list[int] | None) -> Expr:
        return MarkRows(*common, self.operand("keep"), self.operand("grouping"), chosen)


class MarkRows(BlockValues):
    """Mark the rows of each block that do not stay."""

    _label = "simjoin_set_duplicates"
    _parameters = [*BlockValues._parameters[:-1], "keep", "grouping", "_partitions"]

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
                SETS.block_pair(self.chunks, i, j, spec, plan.layout, part), List(rows[i], rows[j]),
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
        candidates = [add("told", b, pick, some, 2) for b, some in enumerate(best)]
        winners = steps.merged("winners", merge_candidates, candidates)
        return [add("gone", b, marks_of_groups, ref, rows[b], best[b], winners) for b, ref in enumerate(refs)]

    def _greedy(
        self, steps: Steps, refs: list[TaskRef], rows: list[TaskRef], found: list[TaskRef]
    ) -> list[TaskRef]:
        """Choose in one task, which gets all pairs after a check that they fit."""
        add, spec = steps.add, self.operand("spec")
        room = resources_for(spec.library).room
        numbers = [add("number", place, number_of_pairs, some) for place, some in enumerate(found)]
        checked = add("check", 0, check_all, room, spec.request, *numbers)
        own = [add("names", b, on_host, some) for b, some in enumerate(rows)]
        whole = add("choose", 0, after, checked, stays_of_chunks, spec.library, List(*own), *found)
        return [
            add("gone", b, marks_but, ref, rows[b], add("stay", b, pick, whole, b))
            for b, ref in enumerate(refs)
        ]


def number_of_pairs(pairs: HostPairs) -> int:
    """Count the pairs of a block pair."""
    return len(pairs[0])


def check_all(room: int | None, request: str, *numbers: int) -> None:
    """Refuse more pairs of all blocks than one task can hold."""
    check_pairs(sum(numbers), room, request)


def stays_of_chunks(library: str, own: list[tuple[Any, Any]], *pairs: HostPairs) -> list[Array]:
    """Return a mask for each chunk of the rows that stay; `own`: numbers and keys of rows that may."""
    numbers, keys = zip(*own, strict=True)
    return stays_of_all(library, list(numbers), list(keys), *pairs)
