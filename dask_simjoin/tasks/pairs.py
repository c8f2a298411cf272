"""Make rows of a result from the pairs of two chunks: the work of one task."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from dask_simjoin.engine.base import Frames, frames_for
from dask_simjoin.engine.columns import (
    MIN_TAKEN_AT_ONCE,
    GrowingColumns,
    appended,
    longer,
)
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.engine.ids import from_id_keys
from dask_simjoin.engine.process import together
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Array, Frame, Values
from dask_simjoin.request.spec import JoinSpec, RowSpec
from dask_simjoin.sizes import MIN_PART
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.matches import (
    BlockPair,
    ids_of,
    kept_columns,
    matches,
    measured,
    row_places,
    visit_radii,
)

PLACE = object()
"""Stands for the places of the rows in the list of arrays to gather. Columns that are
not plain arrays need the places.
"""


class SideColumns:
    """Gathers the columns of the result for one side: for the left, or for the right
    rows of pairs.

    `names`: name in the result -> kept column of the chunk. The arrays to gather are in
    index order. `labels` (n,) has the ids, as integers of the same size, or else
    positions in the chunk. `kept` has the kept columns (n,).
    """

    def __init__(self, chunk: Chunk, names: Mapping[Any, Hashable]) -> None:
        self._chunk, self._names = chunk, names
        frames, n = frames_for(chunk["example"]), len(chunk["ids"])
        # many columns are taken together, at the end
        one_by_one = names if len(names) < MIN_TAKEN_AT_ONCE else {}
        plain = {
            name: frames.plain(chunk["kept"], column)
            for name, column in one_by_one.items()
        }
        found: dict[Any, Array] = {
            name: values for name, values in plain.items() if values is not None
        }
        if len(found) < len(names):
            found[PLACE] = frames.xp.arange(n, dtype=frames.xp.int32)
        self._found, self.kept = list(found), list(found.values())
        keys = chunk["id_keys"]
        self._keyed = keys is not None
        if keys is None:
            keys = chunk["order"][:n]
        elif isinstance(keys, np.ndarray):
            keys = keys.astype(f"i{chunk['ids'].dtype.itemsize}", copy=False)
        self.labels = keys

    @property
    def tables(self) -> list[Array]:
        return [self.labels, *self.kept]

    def columns(self, arrays: list[Array], id_name: str) -> dict[Any, Values]:
        """Convert gathered arrays to columns of the result.

        `arrays`: labels and kept columns, gathered for the rows of pairs. The list is
        emptied, so that memory is freed early.
        """
        chunk, found = self._chunk, {}
        for name in reversed(self._found):
            found[name] = arrays.pop()
        labels = arrays.pop()
        if PLACE in found:
            others = {
                name: column
                for name, column in self._names.items()
                if name not in found
            }
            frames = frames_for(chunk["example"])
            found |= frames.columns_at(chunk["kept"], others, found[PLACE])
        found.pop(PLACE, None)
        if self._keyed:
            found[id_name] = from_id_keys(labels, chunk["ids"])
        else:
            found[id_name] = frames_for(chunk["example"]).ids(chunk["ids"], labels)
        return found


class PairColumns:
    """Collects the columns of pairs of two chunks on the host. Pairs are appended in
    batches.

    `names`: for each chunk, its kept columns, see `SideColumns`. `measures`: names of
    further float64 columns.
    """

    def __init__(
        self,
        chunks: Sequence[Chunk],
        names: Sequence[Mapping[Any, Hashable]],
        measures: Sequence[str],
    ) -> None:
        self._sides = [
            SideColumns(chunk, own) for chunk, own in zip(chunks, names, strict=True)
        ]
        self._tables = [side.tables for side in self._sides]
        dtypes = [table.dtype for tables in self._tables for table in tables]
        self._measures = measures
        self._columns = GrowingColumns(
            [*dtypes, *[np.float64] * len(measures)], MIN_PART
        )

    def add(
        self, left: np.ndarray, right: np.ndarray, *measures: np.ndarray | None
    ) -> None:
        """Append pairs. `left`, `right`: places of their rows in the index of the first
        and of the second chunk.
        """
        n = len(left)
        self._columns.advance(0, n)
        out = iter(self._columns.free())
        for tables, places in zip(self._tables, (left, right), strict=True):
            for table in tables:
                next(out)[:n] = table[places]
        for values, column in zip(measures, out, strict=False):
            column[:n] = values
        self._columns.advance(n)

    def rows(self) -> tuple[int, dict[str, Values]]:
        found = list(self._columns.end())
        number, first = len(found[0]), len(self._tables[0])
        columns = dict(
            zip(self._measures, found[first + len(self._tables[1]) :], strict=True)
        )
        arrays = found[:first], found[first : first + len(self._tables[1])]
        del found
        for side, own, name in zip(self._sides, arrays, ("left", "right"), strict=True):
            columns |= side.columns(own, name)
        return number, columns


def both_directions(
    left: Sequence[Array], right: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """Append the same pairs with left and right exchanged. The memory of the inputs is
    reused.
    """
    sides: tuple[list[Array], list[Array]] = [], []
    for one, other in zip(left, right, strict=True):
        n = len(one)
        a = longer(one, 2 * n)
        a[n:] = other
        b = longer(other, 2 * n)
        b[n:] = a[:n]
        sides[0].append(a)
        sides[1].append(b)
    return sides


def twice(values: Array) -> Array:
    """Return the values followed by a copy of them. The memory of the input is reused."""
    n = len(values)
    extended = longer(values, 2 * n)
    extended[n:] = extended[:n]
    return extended


def join_block(
    block_pair: BlockPair,
    columns: list[str],
    cuts: np.ndarray | int | None = None,
    number: int = 0,
    like: Frame | None = None,
    unmatched_left: ResultRows | None = None,
) -> Frame:
    """Find all pairs of two chunks, or within one chunk. Return rows of the result.

    `columns`: names of the result's columns. `cuts`: where the first chunk is cut into
    parts, see `cut_block`; or an int, the number of parts with equal work. `number`:
    index of the part to join. `like`: an empty result, if columns must be converted to
    its dtypes. `unmatched_left`: rows to append, see `concat_results`.
    """
    frames = frames_for(block_pair.query["example"])
    rows = None
    if cuts is not None:
        if isinstance(cuts, int):
            rows = block_pair._replace(part=(number, cuts)).rows
        else:
            rows = int(cuts[number]), int(cuts[number + 1])
    parts = result_rows(block_pair, columns, rows)
    if unmatched_left is not None and like is not None:
        return concat_results(parts, columns, frames, like, unmatched_left)
    found = concat_results(parts, columns, frames)
    return found if like is None else cast_like(found, like)


def result_rows(
    block_pair: BlockPair, columns: list[str], rows: Rows | None
) -> list[ResultRows]:
    """Find the pairs of the places `rows`; None: of all places. Return rows of the
    result, in parts.
    """
    query, _, is_self_join, spec = block_pair[:4]
    parts: list[ResultRows] = []
    for each in block_pair.comparisons():
        parts += _pairs(each, columns, rows)
    if spec.result.include_self and is_self_join and block_pair.xp is not np:
        parts.append(_self_pairs(query, spec, columns, rows))
    return parts


def concat_results(
    parts: list[ResultRows],
    columns: list[str],
    frames: Frames,
    like: Frame | None = None,
    unmatched_left: ResultRows | None = None,
    threads: int = 1,
) -> Frame:
    """Concatenate parts of a result to a frame. The memory of the parts is reused.

    `unmatched_left`: left rows without a match, to append. They get missing values in
    the columns of right rows. `like`: an empty result with the dtypes to use.
    `threads`: number of threads that copy the columns.
    """
    if threads > 1:
        parts = _concat_arrays(parts, columns, threads)
    total = sum(number for number, _ in parts)
    shared = collections.Counter(
        id(_memory_owner(values)) for _, part in parts for values in part.values()
    )
    made: dict[str, Values] = {}
    dtypes = {} if like is None else dict(zip(like.columns, like.dtypes, strict=True))
    for name in columns:
        values = [part.pop(name) for _, part in parts]
        own = shared[id(_memory_owner(values[0]))] == 1
        if unmatched_left is not None and name in unmatched_left[1]:
            values.append(unmatched_left[1][name])
        made[name] = values.pop() if len(values) == 1 else _concat(values, frames, own)
        if (
            unmatched_left is not None
            and like is not None
            and name not in unmatched_left[1]
        ):
            made[name] = _append_missing(
                made[name], unmatched_left[0], like, name, dtypes[name], frames
            )
    return frames.result(
        made, total if unmatched_left is None else total + unmatched_left[0]
    )


def _concat_arrays(
    parts: list[ResultRows], columns: list[str], threads: int
) -> list[ResultRows]:
    """Concatenate parts by several threads if all columns are NumPy arrays. Each part
    is freed once it is copied.
    """
    if len(parts) == 1 or not all(
        isinstance(part[name], np.ndarray)
        and part[name].dtype == parts[0][1][name].dtype
        for _, part in parts
        for name in columns
    ):
        return parts
    ends = np.cumsum([number for number, _ in parts]).tolist()
    made = {name: np.empty(ends[-1], parts[0][1][name].dtype) for name in columns}

    def copy(part: dict[str, Values], start: int, stop: int) -> None:
        for name in columns:
            made[name][start:stop] = part.pop(name)

    calls = [
        functools.partial(copy, part, end - number, end)
        for (number, part), end in zip(parts, ends, strict=True)
    ]
    together(calls, threads)
    return [(ends[-1], dict(made))]


def cast_like(found: Frame, like: Frame) -> Frame:
    """Convert a result to the dtypes of an example. Categorical columns keep their
    categories, because the example may lack some, and get the dtype of the example's
    categories.
    """
    kinds: dict[str, Any] = {}
    for name, kind in like.dtypes.items():
        if not hasattr(kind, "categories"):
            kinds[name] = kind
            continue
        own, wanted = found[name].dtype, kind.categories.dtype
        if hasattr(own, "categories") and own.categories.dtype != wanted:
            kinds[name] = type(kind)(own.categories.astype(wanted), own.ordered)
    return found.astype(kinds)


def unmatched(
    chunk: Chunk, counts: Array | int, spec: RowSpec, like: Frame, side: str = "left"
) -> Frame:
    """Make rows of the result for rows without a match. `counts`: number of pairs for
    each row. `side`: whether they are "left" or "right" rows.
    """
    return partnerless(chunk, unmatched_places(chunk, counts), spec, like, side)


def rows_without_right(parts: Sequence[Chunk], spec: RowSpec, like: Frame) -> Frame:
    """Make rows of the result for all rows of some chunks, without right rows."""
    found = [unmatched(part, 0, spec, like) for part in parts]
    return found[0] if len(found) == 1 else frames_for(like).stacked(found)


def partnerless(
    chunk: Chunk, places: Array, spec: RowSpec, like: Frame, side: str = "left"
) -> Frame:
    """Make rows of the result for the rows at these places, without partners. `side`:
    see `unmatched`.
    """
    frames = frames_for(chunk["example"])
    rows, own = _columns_of_side(chunk, places, spec, like, side)
    columns = {
        c: own[c] if c in own else frames.missing(like[c].dtype, rows)
        for c in like.columns
    }
    return cast_like(frames.result(columns, rows), like)


def unmatched_rows(
    query: Chunk, counts: Array | int, spec: RowSpec, like: Frame
) -> ResultRows:
    """Return only the ids and kept columns of left rows without a match, not the
    columns of right rows.
    """
    places = unmatched_places(query, counts)
    return _columns_of_side(query, places, spec, like, "left")


def unmatched_places(query: Chunk, counts: Array | int) -> Array:
    """Return the places of left rows without a match, in row order. `counts`: see
    `unmatched`.
    """
    xp, n = frames_for(query["example"]).xp, len(query["ids"])
    order = query["order"][:n]
    places = (
        xp.arange(n)
        if isinstance(counts, int)
        else xp.flatnonzero(xp.asarray(counts)[order] == 0)
    )
    return places[xp.argsort(order[places])]


def _columns_of_side(
    chunk: Chunk, places: Array, spec: RowSpec, like: Frame, side: str
) -> ResultRows:
    kept = spec.kept_left if side == "left" else spec.kept_right
    names = [c for c in like.columns if c == side or c in kept]
    own = (chunk,), places
    left, right = (own, None) if side == "left" else (None, own)
    return len(places), pair_columns(left, right, spec, names)


def with_right_rows(found: Frame, alone: Frame) -> Frame:
    """Append rows of the result that have only a right row. `found`: the other rows,
    whose left columns get the dtypes of `alone`, which may be missing.
    """
    return frames_for(alone).stacked([cast_like(found, alone), alone])


ResultRows = tuple[int, dict[str, Values]]
"""Rows of a result: their number, and their columns by name."""

Side = tuple[tuple[Chunk, ...], Array]
"""The left or the right rows of pairs: chunks, and places in the concatenation of the
chunks' indexes.
"""


def _pairs(
    block_pair: BlockPair, columns: list[str], rows: Rows | None
) -> list[ResultRows]:
    """Return the pairs of two chunks as parts of the result; in both directions if the
    options request it.
    """
    query, data, _, spec = block_pair[:4]
    keyed = query["id_keys"] is not None and data["id_keys"] is not None
    # if pairs have a direction, and both chunks belong to one table, the left row may be
    # in either
    in_order = not block_pair.either_order and not (
        spec.directed and spec.other is None and not block_pair.is_self_join
    )
    if in_order and spec.directed and block_pair.xp is np:
        return [_within_radius(block_pair, columns, rows)]
    if in_order and not spec.directed and (keyed or block_pair.xp is np):
        return _written_by_joiner(block_pair, columns, rows)
    distance = "distance" in columns
    parts: list[ResultRows] = []
    for found in matches(block_pair, distance, rows):
        sides: list[Side] = [
            ((found.left_of,), found.left),
            ((found.right_of,), found.right),
        ]
        directions = [sides]
        if spec.result.pairs == "both" and not spec.directed:
            directions.append(sides[::-1])
        for left, right in directions:
            part = pair_columns(left, right, spec, columns)
            if distance:
                part["distance"] = found.distance
            parts.append((len(found.left), part))
    return parts


def _written_by_joiner(
    block_pair: BlockPair, columns: list[str], rows: Rows | None
) -> list[ResultRows]:
    """Return the pairs of two chunks. The joiner itself writes the columns of the
    result while it finds pairs.
    """
    query, data, is_self_join, spec = block_pair[:4]
    made = measured(spec, block_pair.xp) if "distance" in columns else None
    both, wanted_names = spec.result.pairs == "both", {*columns}
    names = [
        {n: column for n, column in of_side.items() if n in wanted_names or both}
        for of_side in (spec.kept_left, spec.kept_right)
    ]
    one, other = (
        SideColumns(chunk, kept)
        for chunk, kept in zip((query, data), names, strict=True)
    )
    labels, kept = (one.labels, other.labels), [one.kept, other.kept]
    operands, wanted = block_pair.operands, kept if any(kept) else None
    found = block_pair.joiner.pairs(
        *operands,
        is_self_join=is_self_join,
        distance=made,
        labels=labels,
        rows=rows,
        kept=wanted,
    )
    number, away = len(found.left), found.distance
    left = [found.left, *found.kept[: len(one.kept)]]
    right = [found.right, *found.kept[len(one.kept) :]]
    del found
    if both and is_self_join and block_pair.xp is np:
        number, (left, right) = 2 * number, both_directions(left, right)
        away = None if away is None else twice(away)
        both = False
    if spec.result.include_self and is_self_join and block_pair.xp is np:
        places = _places_in_frame_order(query, rows)
        left, right = (
            [
                appended([values, table[places]])
                for values, table in zip(found, tables, strict=True)
            ]
            for found, tables in ((left, one.tables), (right, other.tables))
        )
        away = None if away is None else appended([away, np.zeros(len(places))])
        number += len(places)
    own = one.columns(left, "left") | other.columns(right, "right")
    parts = [own]
    if both:
        names_of = [("left", "right"), *zip(*names, strict=True)]
        parts.append({a: own[b] for pair in names_of for a, b in (pair, pair[::-1])})
    if away is not None:
        parts = [part | {"distance": away} for part in parts]
    return [(number, part) for part in parts]


def _within_radius(
    block_pair: BlockPair, columns: list[str], rows: Rows | None
) -> ResultRows:
    """Return the pairs within the radius of the left row, on the host. All left rows
    must be in the first chunk.
    """
    spec, chunks = block_pair.spec, (block_pair.query, block_pair.data)
    wanted = {*columns}
    names = [
        {name: column for name, column in kept.items() if name in wanted}
        for kept in (spec.kept_left, spec.kept_right)
    ]
    made = measured(spec, block_pair.xp) if "distance" in columns else None
    written = PairColumns(chunks, names, [] if made is None else ["distance"])
    ranks = [row_places(chunk) for chunk in chunks]

    def show(side: int, left: Array, right: Array, totals: Array) -> None:
        written.add(
            ranks[0][left], ranks[1][right], *([] if made is None else [made(totals)])
        )

    visit_radii(block_pair, show, rows)
    if spec.result.include_self and block_pair.is_self_join:
        places = _places_in_frame_order(block_pair.query, rows)
        written.add(places, places, np.zeros(len(places)))
    return written.rows()


def pair_columns(
    left: Side | None, right: Side | None, spec: RowSpec, columns: list[str]
) -> dict[str, Values]:
    """Return the columns of pairs, except the distance. None: the columns of this side
    are not wanted.
    """
    part: dict[str, Values] = {}
    for side, id_name, columns_of in (
        (left, "left", spec.kept_left),
        (right, "right", spec.kept_right),
    ):
        if side is None:
            continue
        if id_name in columns:
            part[id_name] = ids_of(*side)
        names = {name: columns_of[name] for name in columns if name in columns_of}
        part |= kept_columns(side[0], names, side[1])
    return {name: part[name] for name in columns if name in part}


def _places_in_frame_order(query: Chunk, rows: Rows | None) -> Array:
    """Return places in a chunk's index, sorted by the order of their rows in the frame.

    `rows`: the range of places to return; None: all places.
    """
    xp, n = frames_for(query["example"]).xp, len(query["ids"])
    start, stop = rows or (0, n)
    return start + xp.argsort(query["order"][:n][start:stop])


def _self_pairs(
    query: Chunk, spec: JoinSpec, columns: list[str], rows: Rows | None
) -> ResultRows:
    places = _places_in_frame_order(query, rows)
    part = pair_columns(((query,), places), ((query,), places), spec, columns)
    if "distance" in columns:
        part["distance"] = frames_for(query["example"]).xp.zeros(len(places))
    return len(places), part


def _memory_owner(values: Values) -> Any:
    """Return the array that owns the memory of a column: the column itself, or the
    array that it is a view of.
    """
    base = getattr(values, "base", None)
    return values if base is None else base


def _append_missing(
    values: Values, rows: int, like: Frame, name: str, dtype: Any, frames: Frames
) -> Values:
    """Append `rows` missing values to a column, reusing its memory.

    `like`: an empty frame that has the column `name` with this dtype.
    """
    n = len(values)
    # NumPy's bools and integers have no missing value, so use the nullable dtypes of
    # pandas
    if isinstance(values, np.ndarray) and values.dtype.kind in "iub":
        mask = np.zeros(n + rows, np.bool_)
        mask[n:] = True
        return dtype.construct_array_type()(longer(values, n + rows), mask)
    if isinstance(values, np.ndarray) and values.dtype == dtype and dtype.kind in "fmM":
        extended = longer(values, n + rows)
        extended[n:] = np.array("NaT" if dtype.kind in "mM" else np.nan, dtype)
        return extended
    made = cast_like(frames.result({name: values}, n), like[[name]])
    return frames.stacked(
        [made, frames.result({name: frames.missing(dtype, rows)}, rows)]
    )[name]


def _concat(parts: list[Values], frames: Frames, reuse_first: bool) -> Values:
    """Concatenate parts of a column. `reuse_first`: whether the first part may grow in
    its own memory.

    This is allowed only if no other column uses that memory.
    """
    if all(isinstance(part, np.ndarray) for part in parts) and reuse_first:
        return appended(parts)
    if all(isinstance(part, frames.xp.ndarray) for part in parts):
        return frames.xp.concatenate(parts)
    return frames.stacked([frames.result({"part": part}, len(part)) for part in parts])[
        "part"
    ]


def cut_block(block_pair: BlockPair, parts: int) -> np.ndarray:
    """Cut the index of the first chunk into parts with equal numbers of pairs. Return
    the bounds of the parts.
    """
    return cut_weighed(block_pair.layout.grain, parts, weigh_block(block_pair))


def weigh_block(block_pair: BlockPair) -> Array:
    """For each place in the first chunk's index, return the number of pairs up to and
    including it (int64).

    Only the places in this share of the work are covered.
    """
    joiner, rows = block_pair.joiner, block_pair.rows
    start, stop = rows or (0, len(block_pair.query["ids"]))
    pairs = joiner.xp.zeros(stop - start, joiner.xp.int64)
    for each in block_pair.comparisons():
        pairs += joiner.weights(
            *each.operands, is_self_join=each.is_self_join, rows=rows
        )
    return joiner.xp.cumsum(pairs, out=pairs)


def cut_weighed(grain: int, parts: int, *weights: Array) -> np.ndarray:
    """Compute the result of `cut_block` from the results of `weigh_block` for all
    shares of the work.
    """
    xp, n = module_of(weights[0]), sum(map(len, weights))
    before = np.cumsum([0, *(int(some[-1]) if len(some) else 0 for some in weights)])
    wanted = before[-1] * (np.arange(1, parts) / parts)
    cuts, first = np.zeros(parts - 1, np.int64), 0
    for some, (start, stop) in zip(
        weights, itertools.pairwise(before.tolist()), strict=True
    ):
        here = (wanted > start) & (wanted <= stop)
        if here.any():
            cuts[here] = first + to_host(
                xp.searchsorted(some, xp.asarray(wanted[here] - start))
            )
        first += len(some)
    return np.concatenate([[0], np.minimum(-(-cuts // grain) * grain, n), [n]]).astype(
        np.int64
    )
