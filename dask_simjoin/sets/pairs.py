"""Turn matching sets into result rows: the work of one task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypedDict

import numpy as np

from dask_simjoin.engine.base import frames_for, frames_of_library
from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.ids import id_bytes, value_bytes
from dask_simjoin.errors import TABLES, in_table
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.planning.budget import room_now
from dask_simjoin.planning.checks import check_rows
from dask_simjoin.planning.statistics.unique_ids import check_summaries, summarise_ids
from dask_simjoin.sets.chunks import ReadSets, SetBlockPair, SetChunk, read_sets, set_chunk
from dask_simjoin.sets.encode import merge, ranked, ranks, ranks_of
from dask_simjoin.sets.found import (
    RowPairs,
    all_groups,
    group_rows,
    matches_in_parts,
    matching_groups,
    own_pairs,
    row_pairs,
    rows_of_equals,
    rows_of_matches,
    set_matches,
)
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.pairs import PairColumns, ResultRows, cast_like, concat_results, pair_columns


class SetCuts(TypedDict):
    """Tell where the rows of a result that two chunks give can be cut.

    `own`: how many are of equal sets; `ends`: those of each set of the second chunk, added up (sets + 2,).
    """

    own: int
    ends: np.ndarray
    parts: int


def join_block(block_pair: SetBlockPair, columns: list[str], cuts: SetCuts | None = None, number: int = 0,
               like: Frame | None = None, alone: ResultRows | None = None,
               told: Callable[[int], None] | None = None) -> Frame:  # fmt: skip
    """Find all pairs of two chunks, or of one with itself.

    `columns`: of the result.  `cuts`, as `cut_block` gives them, and `number`: only that part.  `like`: an
    example of what it returns, if dtypes are others than the columns'; `alone`: then also these rows: see
    `concat_results`.  `told`: see `row_pairs`.
    """
    spec, frames = block_pair.spec, frames_for(block_pair.q["example"])
    scored = spec.score is not None and spec.score in columns
    found = row_pairs(block_pair, scored, told) if cuts is None else _part(block_pair, scored, cuts, number)
    if block_pair.xp is np and frames.xp is np and (block_pair.same or spec.other is not None):
        parts = [_written(block_pair, found, columns)]
    else:
        parts = [_columns(block_pair, rows, columns) for rows in found]
    if alone is not None and like is not None:
        return concat_results(parts, columns, frames, like, alone)
    made = concat_results(parts, columns, frames)
    return made if like is None else cast_like(made, like)


def _written(block_pair: SetBlockPair, found: Iterator[RowPairs], columns: list[str]) -> ResultRows:
    """Make columns of pairs of rows, each of one chunk, on the host."""
    spec, chunks = block_pair.spec, (block_pair.q, block_pair.d)
    names = [
        {name: column for name, column in kept.items() if name in columns}
        for kept in (spec.kept_left, spec.kept_right)
    ]
    written = PairColumns(chunks, names, [spec.score] if spec.score in columns else [])
    for rows in found:
        left, right = rows.left, rows.right
        if spec.other is None:
            left, right = _in_order(block_pair, left, right)
        written.add(left, right, *([] if rows.score is None else [rows.score]))
    return written.rows()


def _in_order(block_pair: SetBlockPair, left: Array, right: Array, behind: int = 0) -> tuple[Array, Array]:
    """Turn pairs of rows so that the left one comes first in the frame; `behind`: to add to right places."""
    swap = _numbers(block_pair.d)[right] < _numbers(block_pair.q)[left]
    right = right + behind if behind else right
    return block_pair.xp.where(swap, right, left), block_pair.xp.where(swap, left, right)


def _columns(block_pair: SetBlockPair, rows: RowPairs, columns: list[str]) -> ResultRows:
    q, d, same, spec = block_pair.q, block_pair.d, block_pair.same, block_pair.spec
    left, right = rows.left, rows.right
    left_of: tuple[Chunk, ...] = (q,)
    right_of: tuple[Chunk, ...] = (d,)
    if spec.other is None:  # the row that comes first in the frame is the left one
        left, right = _in_order(block_pair, left, right, 0 if same else len(q["ids"]))
        if not same:
            left_of = right_of = (q, d)
    part = pair_columns((left_of, left), (right_of, right), spec, columns)
    if spec.score is not None and spec.score in columns:
        part[spec.score] = rows.score
    return len(left), part


def _numbers(chunk: Chunk) -> Array:
    """The rows' numbers in the frame, in the order of the index."""
    order = chunk["order"]
    return chunk["position"][order] if "position" in chunk else order


def cut_block(block_pair: SetBlockPair, parts: int) -> SetCuts:
    """Count what each set of the second chunk gives, so that parts of equally many rows can be made."""
    xp, groups = block_pair.xp, all_groups(block_pair.d)
    rows = xp.zeros(groups, np.int64)
    for found in matches_in_parts(block_pair, 0, groups, False):  # so that only some are held at a time
        xp.add.at(rows, found.right, found.rows)
    return SetCuts(own=own_pairs(block_pair).total, ends=to_host(xp.cumsum(rows)), parts=parts)


def _part(block_pair: SetBlockPair, scored: bool, cuts: SetCuts, number: int) -> Iterator[RowPairs]:
    """Make the rows of one part, which may have none: parts are planned from an estimate."""
    own, ends, parts = cuts["own"], cuts["ends"], cuts["parts"]
    total = own + (int(ends[-1]) if len(ends) else 0)
    lo, hi = total * number // parts, total * (number + 1) // parts
    if lo < min(own, hi):
        yield rows_of_equals(block_pair, own_pairs(block_pair), scored, (lo, min(own, hi)))
    if own < hi or lo == hi:
        lo, hi = max(lo - own, 0), max(hi - own, 0)
        start = int(np.searchsorted(ends, lo, side="right"))
        stop = int(np.searchsorted(ends, hi, side="left")) + 1 if lo < hi else start
        before = int(ends[start - 1]) if start else 0
        found = set_matches(block_pair, start, min(stop, len(ends)), scored)
        some = (lo - before, hi - before) if lo < hi else (0, 0)
        yield rows_of_matches(block_pair, found, scored, some)


def count_block(block_pair: SetBlockPair, enough: int | None = None) -> tuple[Array, Array | None]:
    """Count the matches that the rows of two chunks have in each other, by position.

    `enough`: from there on counts need not be right.  For one chunk with itself the second is None.
    """
    xp, q, d, same = block_pair.xp, block_pair.q, block_pair.d, block_pair.same
    counts = [xp.zeros(all_groups(q), np.int64)]
    counts.append(counts[0] if same else xp.zeros(all_groups(d), np.int64))
    rule, joiner = block_pair.spec.rule, block_pair.joiner
    start, stop = block_pair.range
    for left, right, left_first, right_first in block_pair.comparisons(start, stop):
        one, other = joiner.counts(left, right, rule, block_pair.method)
        counts[0][left_first : left_first + len(one)] += one
        if right is not None:
            counts[1][right_first : right_first + len(other)] += other
    if block_pair.first:
        if same:
            match = matching_groups(d, block_pair.spec, xp)
            counts[0] += xp.where(match, xp.maximum(group_rows(d) - 1, 0), 0)
        else:
            found = set_matches(block_pair, len(d["weights"]), all_groups(d), False)
            xp.add.at(counts[0], found.left, group_rows(d)[found.right])
            xp.add.at(counts[1], found.right, group_rows(q)[found.left])
    return _by_position(block_pair, 0, counts), None if same else _by_position(block_pair, 1, counts)


def _by_position(block_pair: SetBlockPair, side: int, counts: list[Array]) -> Array:
    chunk, xp = (block_pair.q, block_pair.d)[side], block_pair.xp
    places = xp.arange(len(chunk["ids"]))
    group = xp.searchsorted(chunk["firsts"], places, side="right") - 1
    found = xp.empty(len(places), np.int64)
    found[chunk["order"]] = counts[side][group]
    return found


def count_block_pairs(block_pair: SetBlockPair) -> int:
    """Count the pairs of rows that `join_block` would return."""
    d, rule, joiner = block_pair.d, block_pair.spec.rule, block_pair.joiner
    start, stop = block_pair.range
    pairs = sum(
        joiner.count(left, right, rule, block_pair.method)
        for left, right, _, _ in block_pair.comparisons(start, stop)
    )
    if block_pair.first and block_pair.same:
        rows = group_rows(d)
        match = matching_groups(d, block_pair.spec, block_pair.xp)
        pairs += int((rows * (rows - 1) // 2 * match).sum())
    elif block_pair.first:
        found = set_matches(block_pair, len(d["weights"]), all_groups(d), False)
        pairs += int(found.rows.sum())
    return pairs


def whole_sets(frames: Sequence[Frame], spec: SetSpec, with_ids: bool) -> list[SetChunk]:
    """Make one chunk of each of one plain frame or two; refuses ids that repeat, where they are needed."""
    return chunks_of(read_whole(frames, spec, with_ids))


def read_whole(frames: Sequence[Frame], spec: SetSpec, with_ids: bool) -> list[ReadSets]:
    """Read one plain frame or two; see `whole_sets`."""
    sides = [spec, *([spec.right] if len(frames) > 1 else [])]
    read: list[ReadSets] = []
    for which, frame, own in zip(TABLES if len(frames) > 1 else [None], frames, sides, strict=False):
        check_rows(len(frame), 0)
        with in_table(which):
            read.append(read_sets(frame, own))
            if with_ids:
                check_summaries([summarise_ids(read[-1]["ids"], own.id)], own.id)
    return read


def chunks_of(read: Sequence[ReadSets]) -> list[SetChunk]:
    """Put the tokens of all tables in one order, and make a chunk of each."""
    merged = merge(*(one["vocabulary"] for one in read)) if len(read) > 1 else None
    whole = ranks(read[0]["vocabulary"] if merged is None else merged["vocabulary"])
    chunks = []
    for part, one in enumerate(read):
        sets = ranked(one["sets"], whole if merged is None else ranks_of(whole, merged["codes"], part))
        chunks.append(
            set_chunk(sets, len(whole), one["missing"], one["ids"], one["example"], one.get("kept"))
        )
    return chunks


def whole_block_pair(chunks: Sequence[SetChunk], spec: SetSpec) -> SetBlockPair:
    """Bring a chunk together with itself, or with the other table's."""
    return SetBlockPair(chunks[0], chunks[-1], len(chunks) == 1, spec, spec.method)


def room_check(chunks: Sequence[SetChunk], spec: SetSpec) -> Callable[[int], None]:
    """Return what refuses so many rows of a result that do not fit memory."""
    sides = chunks[0], chunks[-1]
    kept = sum(
        value_bytes(chunk["kept"][name])
        for chunk in sides
        if "kept" in chunk
        for name in chunk["kept"].columns
    )
    row_bytes = sum(id_bytes(chunk["ids"]) for chunk in sides) + kept + 8 * (spec.score is not None)
    device = frames_of_library(spec.library).memory()
    return room_now(row_bytes, spec.request, device)
