"""Count the pairs of block pairs; hash rows; find connected components of rows and of
ids.
"""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.engine.base import Frames, frames_for, host_joiner, joiner_for
from dask_simjoin.engine.compat import (
    all_of,
    count_of,
    count_up,
    module_of,
    on_gpu,
    to_host,
)
from dask_simjoin.engine.ids import (
    decoded,
    joined,
    listed_values,
    rounded_together,
    united,
)
from dask_simjoin.engine.native import native
from dask_simjoin.engine.protocols import Joiner, Rows
from dask_simjoin.engine.times import holds_times, times_of, unit_of_times
from dask_simjoin.errors import ColumnError, SourceChangedError
from dask_simjoin.metrics.norms import Array, ArrayModule, Frame, Ids, Series
from dask_simjoin.request.spec import JoinSpec, RowSpec
from dask_simjoin.sizes import FEW
from dask_simjoin.tasks.left_out import Fill, filled_frame, kept_rows
from dask_simjoin.tasks.matches import BlockPair, visit_radii
from dask_simjoin.tasks.shuffle import CELL, COUNT, POSITION

Number = Any
"""A number of pairs: an int; or, for several distances, an int64 array with one number
for each.
"""


def count_block(
    block_pair: BlockPair, enough: int | None = None, rows: Rows | None = None
) -> tuple[Array, Array | None]:
    """For each row of two chunks, count its neighbors in the other chunk. `enough`: see
    `Joiner.counts`. `rows`: as in `count_block_pairs`.

    For a chunk compared with itself, the second result is None.
    """
    counts = _counts(block_pair, rows or block_pair.rows, enough)
    return counts[0], None if block_pair.is_self_join else counts[1]


def _counts(
    block_pair: BlockPair, rows: Rows | None, enough: int | None = None
) -> list[Array]:
    """For each chunk, count the neighbors of its rows: (n,), or (n, distances) for
    several distances.

    `rows`: a range of positions in the first chunk's index. Only pairs of the rows at
    these positions are counted. None: all pairs are counted.
    """
    is_self_join, spec, joiner = (
        block_pair.is_self_join,
        block_pair.spec,
        block_pair.joiner,
    )
    if spec.directed:
        return _directed_counts(block_pair, rows)
    if spec.several:
        limits, inverse = np.unique(spec.thresholds, return_inverse=True)
        found = joiner.tally(
            *block_pair.operands,
            limits,
            is_self_join=is_self_join,
            by_row=True,
            rows=rows,
        )
        return [numbers[:, joiner.xp.asarray(inverse)] for numbers in found]
    return joiner.counts(
        *block_pair.operands,
        is_self_join=is_self_join,
        enough=enough or spec.result.enough,
        rows=rows,
    )


def _directed_counts(block_pair: BlockPair, rows: Rows | None) -> list[Array]:
    """Do the work of `_counts` if each pair has a left and a right row."""
    xp, spec = block_pair.xp, block_pair.spec
    limits = spec.thresholds or (None,)
    # one array for each distance, because the sums need contiguous arrays
    counts = [
        [xp.zeros(len(side["ids"]), xp.int64) for _ in limits]
        for side in block_pair.chunks
    ]

    def show(side: int, left: Array, right: Array, totals: Array) -> None:
        for limit, own in zip(limits, counts[side], strict=True):
            count_up(own, left if limit is None else left[totals <= limit])

    visit_radii(block_pair, show, rows)
    if spec.several:
        return [xp.stack(own, axis=1) for own in counts]
    return [own for (own,) in counts]


def count_cells(block_pair: BlockPair, offsets: np.ndarray) -> Frame:
    """Count the neighbors of rows in spatial chunks. Return updates for Dask's shuffle:
    see `scatter`.
    """
    query, _, is_self_join, spec = block_pair[:4]
    frames, rows = frames_for(query["example"]), block_pair.rows
    parts = []
    for each in block_pair.comparisons():
        counts = _counts(each, rows)
        sides = (each.query,) if spec.other is not None else (each.query, each.data)
        parts += [
            (side["position"], count)
            for side, count in zip(sides, counts, strict=False)
        ]
    xp = frames.xp
    position = xp.concatenate([part for part, _ in parts])
    count = xp.concatenate([part for _, part in parts])
    # a row without neighbors must also reach its partition, so one task sends its count
    # of 0
    sent = (count if count.ndim == 1 else count.max(axis=1)) > 0
    if spec.other is not None and block_pair.first:
        sent[:] = True
    elif is_self_join and block_pair.first:
        sent[: len(query["ids"])] = True
    return scatter(position[sent], count[sent], offsets, frames)


def scatter(
    position: Array, values: Array, offsets: np.ndarray, frames: Frames
) -> Frame:
    """Make a frame of updates for Dask's shuffle: positions and values of rows, and the
    partitions that they belong to.

    `position`: positions of the rows in the whole frame. `values`: one or k values per
    row, (n,) or (n, k). `offsets`: position of each partition's first row.
    """
    xp = frames.xp
    partition = xp.searchsorted(xp.asarray(offsets), position, side="right") - 1
    values = xp.asarray(values)
    columns = [values] if values.ndim == 1 else values.T
    named = dict(zip(update_columns(len(columns)), columns, strict=True))
    return frames.result({POSITION: position, **named, CELL: partition}, len(position))


def update_columns(number: int) -> list[str]:
    """Return the names of the columns with values in a frame of updates. `number`:
    values per row.
    """
    return [f"{COUNT}{k}" for k in range(number)]


def count_block_pairs(block_pair: BlockPair, some: Rows | None = None) -> Number:
    """Count the pairs that `join_block` would return. For several distances, return one
    number for each.

    `some`: a range of places in the first chunk's index, whose pairs are counted. None:
    the places of this share of the work.
    """
    query, _, is_self_join, spec = block_pair[:4]
    pairs: Number = np.zeros(len(spec.several), np.int64) if spec.several else 0
    rows = some or block_pair.rows
    for each in block_pair.comparisons():
        if spec.directed:
            both = sum(to_host(count.sum(axis=0)) for count in _counts(each, rows))
            pairs += both if spec.several else int(both)
            continue
        if spec.several:
            limits, inverse = np.unique(spec.thresholds, return_inverse=True)
            operands = *each.operands, limits
            (tally,) = each.joiner.tally(
                *operands, is_self_join=each.is_self_join, by_row=False, rows=rows
            )
            pairs += to_host(tally)[0, inverse] * (
                2 if spec.result.pairs == "both" else 1
            )
            continue
        found = int(
            block_pair.joiner.weights(
                *each.operands, is_self_join=each.is_self_join, rows=rows
            ).sum()
        )
        pairs += found * (2 if spec.result.pairs == "both" else 1)
    return pairs + (
        len(query["ids"])
        if spec.result.include_self
        and is_self_join
        and (block_pair.first if some is None else not some[0])
        else 0
    )


PREDECESSOR = "predecessor"
"""Name of the column in the result of OPTICS that holds row numbers."""

Groups = tuple[tuple[Hashable, ...], ...] | Callable[[Frame], Array]
"""The columns that identify a row, in groups whose values are hashed; or a function
that hashes rows.

The columns of a group are read together; a column of lists is always its own group. The
function takes a frame, and returns the hashes of its rows (rows,), uint64.
"""

SPLITMIX_STEP, SPLITMIX_FIRST, SPLITMIX_SECOND = (
    0x9E3779B97F4A7C15,
    0xBF58476D1CE4E5B9,
    0x94D049BB133111EB,
)
"""Constants of the hash function splitmix64.

See Steele, Lea & Flood (2014), "Fast splittable pseudorandom number generators".
"""

REMEDY = "persist() the frame, or write it to parquet, before you compute values for its rows."
"""End of messages: what to do if the rows of a frame differ between two computations.
"""


def fingerprints(frame: Frame, groups: Groups, spec: RowSpec | None) -> Array:
    """Return a hash of each row that gets a value (rows,), uint64.

    `spec`: if its option `dropna` is set, rows with missing coordinates get no value.
    None: all rows get one.
    """
    return _kept_fingerprints(frame, groups, kept_rows(frame, spec))


def _kept_fingerprints(frame: Frame, groups: Groups, kept: Array | None) -> Array:
    found = groups(frame) if callable(groups) else hash_columns(frame, groups)
    return found if kept is None else found[kept]


def hash_columns(frame: Frame, groups: tuple[tuple[Hashable, ...], ...]) -> Array:
    """Hash the numbers or times in each row (rows,), uint64. Equal rows have equal
    hashes.
    """
    frames = frames_for(frame)
    xp = frames.xp
    found = xp.zeros(len(frame), np.uint64)
    for columns in groups:
        if holds_times(frame[columns[0]]):
            (name,) = columns
            column = native(frame[name])
            times, missing = times_of(column, unit_of_times(column.dtype), "keep")
            bits = xp.where(missing, np.iinfo(np.int64).min, times).view(np.uint64)
            found = mixed_bits(found, bits)
            continue
        x = frames.coordinates(frame, columns)
        for k in range(x.shape[1]):
            # adding 0.0 turns -0.0 into 0.0, so that their hashes are equal
            numbers = xp.where(xp.isnan(x[:, k]), np.nan, x[:, k] + 0.0)
            found = mixed_bits(found, xp.ascontiguousarray(numbers).view(np.uint64))
    return found


def mixed_bits(state: Array, bits: Array) -> Array:
    """Mix 64-bit values into the hashes `state`; both are arrays (n,), uint64."""
    state = (state ^ bits) + np.uint64(SPLITMIX_STEP)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(SPLITMIX_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(SPLITMIX_SECOND)
    return state ^ (state >> np.uint64(31))


def earlier_positions(now: Array, then: Array) -> Array | None:
    """For each row of a partition, return its position in an earlier computation; None
    if no position has changed.

    `now`, `then`: hashes of the rows (rows,), now and in the earlier computation. Rows
    with equal hashes are taken to be in the same order.
    """
    xp = module_of(now)
    if len(now) == len(then):
        if all_of(now == then):
            return None
        new, old = xp.argsort(now, kind="stable"), xp.argsort(then, kind="stable")
        if all_of(now[new] == then[old]):
            places = xp.empty(len(now), np.int64)
            places[new] = old
            return places
    raise _other_rows(len(now), len(then))


def _other_rows(now: int, then: int) -> SourceChangedError:
    return SourceChangedError(
        f"A partition of {now} rows differs from the {then} rows that its values were "
        "computed for. "
        "Dask computed the frame twice, as it may after a shuffle, and got different "
        "rows "
        f"the second time. {REMEDY}"
    )


def values_beside(
    frame: Frame,
    values: Frame | Series,
    then: Array,
    groups: Groups,
    spec: RowSpec | None,
    fill: Fill | None = None,
) -> Frame | Series:
    """Put values into the order that a partition's rows have now, and give them the
    labels of the rows.

    `then`: hashes of the rows from when the values were computed. A frame that is
    computed again may have another order. `fill`: see `relabelled`.
    """
    kept = kept_rows(frame, spec)
    places = earlier_positions(_kept_fingerprints(frame, groups, kept), then)
    if places is not None and PREDECESSOR in getattr(values, "columns", ()):
        raise SourceChangedError(
            f"The column {PREDECESSOR!r} holds row numbers across all partitions. Dask "
            "computed the frame "
            "twice and got its rows in another order. Use the result without this "
            "column, "
            f"or {REMEDY}"
        )
    return _labelled(
        values.copy(deep=False) if places is None else values.take(places),
        frame,
        kept,
        fill,
    )


def relabelled(
    frame: Frame, values: Frame | Series, spec: RowSpec | None, fill: Fill | None = None
) -> Frame | Series:
    """Give values the labels of a partition's rows. Both are in the same order.

    `fill`: values of the rows that `dropna` leaves out; None: it leaves out no row.
    """
    return _labelled(values.copy(deep=False), frame, kept_rows(frame, spec), fill)


def _labelled(
    values: Frame | Series, frame: Frame, kept: Array | None, fill: Fill | None
) -> Frame | Series:
    rows = len(frame) if kept is None else count_of(kept)
    if rows != len(values):
        raise _other_rows(rows, len(values))
    if kept is not None and fill is not None:
        return filled_frame(values, frame, kept, fill)
    values.index = frame.index if kept is None else frame.index[kept]
    return values


CHUNK = 1 << 32
"""Row numbers of a chunk are within a range of this many, a power of two."""

RowNumbers = int | Array
"""The row numbers of a chunk. For the chunk with number c, an int c stands for ``c *
CHUNK + position``; an array has all row numbers.

Spatial chunks use the array: it has the positions of the rows in the whole frame,
ascending.
"""


def row_numbers(rows: Array, own: RowNumbers) -> Array:
    """Return the row numbers of the rows at positions `rows` in a chunk. `own`: the
    chunk's `RowNumbers`.
    """
    return rows.astype(np.int64) + own * CHUNK if isinstance(own, int) else own[rows]


ID, COMPONENT = "id", "component"


def new_nodes(number: int, xp: ArrayModule = np) -> Array:
    """Return the parents of `number` nodes for union-find, where each node is its own
    parent; int32 if they fit.
    """
    return xp.arange(
        number, dtype=np.int32 if number <= np.iinfo(np.int32).max else np.int64
    )


def component_roots(
    nodes: int, left: Array, right: Array, joiner: Joiner | None = None
) -> Array:
    """For each node, return the smallest node of its connected component. Nodes are 0
    to `nodes` - 1.

    `left`, `right`: both ends of each edge. `joiner`: the joiner for the library of the
    arrays; None: they are on the host.
    """
    joiner = joiner or host_joiner()
    parent = new_nodes(nodes, joiner.xp)
    joiner.link(parent, left, right)
    joiner.roots(parent)
    return parent


Edges = tuple[Array, Array]
"""Edges between rows: row numbers at the left ends, and at the right ends, each (k,),
int64.
"""


def no_edges(xp: ArrayModule = np) -> Edges:
    return xp.zeros(0, np.int64), xp.zeros(0, np.int64)


def spanning_forest(parts: Sequence[Edges], joiner: Joiner) -> Edges:
    """Reduce edges to a spanning forest: as few edges as possible with the same
    connected components.

    Each edge of the result leads from a row to the smallest row of its component. The
    left ends are distinct, and edges are sorted by them.
    """
    xp = joiner.xp
    left, right = (
        xp.concatenate([xp.asarray(side) for side in sides])
        for sides in zip(*parts, strict=True)
    )
    if xp is np and len(left):
        found = _forest_of_ranges(left, right, joiner)
        if found is not None:
            return found
    names, places = xp.unique(xp.concatenate([left, right]), return_inverse=True)
    places = places.reshape(-1)
    root = component_roots(len(names), places[: len(left)], places[len(left) :], joiner)
    other = xp.flatnonzero(root != xp.arange(len(names)))
    return names[other], names[root[other]]


def _forest_of_ranges(
    left: np.ndarray, right: np.ndarray, joiner: Joiner
) -> Edges | None:
    """Compute `spanning_forest` without sorting. Return None if that would be slower.

    Nodes are the row numbers of each chunk, up to its largest one. If most rows have an
    edge, this takes a fifth of the time.
    """
    if min(int(left.min()), int(right.min())) < 0:
        return None
    sides = [
        (side >> (CHUNK.bit_length() - 1), side & (CHUNK - 1)) for side in (left, right)
    ]
    ends = np.zeros(1 + max(int(chunks.max()) for chunks, _ in sides), np.int64)
    for chunks, places in sides:
        np.maximum.at(ends, chunks, places + 1)
    starts = np.concatenate([[0], np.cumsum(ends)])
    nodes = int(starts[-1])
    if nodes > FEW * len(left):
        return None
    one, other = (starts[chunks] + places for chunks, places in sides)
    root = component_roots(nodes, one, other, joiner)
    tied = np.flatnonzero(root != np.arange(nodes, dtype=root.dtype))

    def numbered(some: np.ndarray) -> np.ndarray:
        chunks = np.searchsorted(starts, some, side="right") - 1
        return some + (np.arange(len(starts)) * CHUNK - starts)[chunks]

    return numbered(tied), numbered(root[tied])


def forest_of_ids(pairs: Frame) -> Frame:
    """Reduce pairs of ids to a spanning forest: one row per id, with the id that
    represents its component.

    Partitions without pairs are reduced as well: dtypes must not differ between
    partitions.
    """
    frames, joiner = frames_for(pairs), joiner_for(pairs)
    ids, left, right = _ids_and_ends(pairs, frames)
    root = component_roots(len(ids), left, right, joiner)
    return frames.result({"left": ids, "right": ids.take(root)}, len(ids))


def components_of_ids(pairs: Frame) -> Frame:
    """Find connected components of ids, and number the components in the order of their
    smallest ids.
    """
    frames, joiner = frames_for(pairs), joiner_for(pairs)
    ids, left, right = _ids_and_ends(pairs, frames)
    xp = frames.xp
    order = xp.asarray(_order(ids))
    rank = xp.empty(len(ids), np.int64)
    rank[order] = xp.arange(len(ids))
    root = component_roots(len(ids), rank[left], rank[right], joiner)
    return frames.result(
        {ID: ids.take(order), COMPONENT: joiner.numbers(root)}, len(ids)
    )


def _order(ids: Ids) -> Array:
    """Return an order of ids that does not depend on partitions.

    If ids cannot be compared because their types differ, they are sorted by type first.
    """
    if isinstance(ids.dtype, pd.CategoricalDtype) and not ids.dtype.ordered:
        ids = decoded(ids)  # the order of categories depends on partitions
    with contextlib.suppress(TypeError):
        return ids.argsort()
    kinds = [
        "" if isinstance(value, numbers.Number) else type(value).__name__
        for value in ids
    ]
    with contextlib.suppress(TypeError):
        return np.array(sorted(range(len(ids)), key=lambda k: (kinds[k], ids[k])))
    return np.array(sorted(range(len(ids)), key=lambda k: (kinds[k], repr(ids[k]))))


def _ids_and_ends(pairs: Frame, frames: Frames) -> tuple[Ids, Array, Array]:
    """Return the distinct ids, and for each pair the positions of its left and its
    right id among them.

    A row with a missing id, such as an unmatched row of a left join, adds its other id,
    but no pair.
    """
    left, right = united([frames.index(pairs[side]) for side in ("left", "right")])
    if left.dtype != right.dtype or not isinstance(
        left.dtype, (np.dtype, pd.CategoricalDtype)
    ):
        left, right = decoded(left), decoded(right)
    if rounded_together(left, right):
        if on_gpu(left):
            raise ColumnError(
                f"Columns 'left' and 'right' are of dtypes {left.dtype} and "
                f"{right.dtype}, and no dtype "
                "can hold the numbers of both columns; convert one of the columns."
            )
        left, right = (
            pd.Index(listed_values(side), dtype=object) for side in (left, right)
        )
    n = len(pairs)
    # without pairs, too, ids get a dtype that holds the ids of both sides
    codes, ids = (joined([left, right]) if n else left.append(right)).factorize()
    codes = frames.xp.asarray(codes)
    if not left.hasnans and not right.hasnans:
        return ids, codes[:n], codes[n:]
    both = (codes[:n] >= 0) & (codes[n:] >= 0)
    return ids, codes[:n][both], codes[n:][both]


def no_components(pairs: Frame) -> Frame:
    """Return an empty result of `components_of_ids`, as an example for Dask."""
    return components_of_ids(pairs.iloc[:0])


PAIRS, EPS = "pairs", "eps"
"""Name of a Series with the number of pairs for each distance, and name of its index.
"""


def pairs_by_eps(numbers: Array | int, spec: JoinSpec, meta: Frame) -> Series:
    """Return a Series with the number of pairs for each distance. `meta`: an example of
    the frame.
    """
    frames = frames_for(meta)
    values = frames.xp.zeros(len(spec.several), np.int64) + frames.xp.asarray(numbers)
    index = frames.index(np.array(spec.several)).rename(EPS)
    return frames.series(values, index, PAIRS)
