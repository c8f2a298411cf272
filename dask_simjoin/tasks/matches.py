"""Find the pairs of two chunks.

The index of a chunk sorts its rows. In this module, a "place" is the position of a row
in that order. A "position" is the position of a row in the chunk, or in the whole
frame.

If each row has its own radius, a pair matches if its distance is at most the radius of
its left row.

- If radii are similar, chunks are joined within the largest radius, and each pair is
  checked in both directions.
- If a few radii are much larger than the others, left rows are split into classes of
  similar radii. Each class is joined within its own largest radius.

With a one-sided range in ``within=``, pairs of one table are checked in both directions,
too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from dask_simjoin.engine.base import frames_for, host_kernels, joiner_for
from dask_simjoin.engine.compat import module_of, tally, to_host
from dask_simjoin.engine.ids import from_id_keys, joined
from dask_simjoin.engine.protocols import Joiner, Layout, Measured, Rows
from dask_simjoin.metrics.gates import allows
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Norm, Values, box_gap
from dask_simjoin.planning.sample import merge_moments, moments
from dask_simjoin.request.spec import JoinSpec, TotalsSpec
from dask_simjoin.tasks.chunks import Chunk


class BlockPair(NamedTuple):
    """Two chunks to compare, or one chunk to compare with itself, with the options and
    the layout of the join.
    """

    # in a self-join of a chunk, `query` and `data` are the same; otherwise `data` may
    # have a halo
    query: Chunk
    data: Chunk
    # whether `query` and `data` are the same chunk; then each pair is found once
    is_self_join: bool
    spec: JoinSpec
    layout: Layout  # the layout of both indexes
    # which share of the work to do, as (index of the share, number of shares)
    part: tuple[int, int] = (0, 1)

    @property
    def rows(self) -> Rows | None:
        """Range of places in `query` that this share of the work searches from; None:
        all places.
        """
        number, parts = self.part
        if parts == 1:
            return None
        cuts = self.cuts(parts)
        return cuts[number], cuts[number + 1]

    def cuts(self, parts: int) -> list[int]:
        """Bounds of parts of `query` that take about equal work."""
        work = self.joiner.work(*self.operands, is_self_join=self.is_self_join)
        return equal_work(work, len(self.query["ids"]), self.layout.grain, parts)

    @property
    def places(self) -> Rows | None:
        """Range of places in `query` whose results are complete after this share; None:
        all places.

        It differs from `rows` for a chunk compared with itself on the host. Then each
        place is compared with both earlier and later places, so all places take equal
        work.
        """
        number, parts = self.part
        if parts == 1 or not self.is_self_join or self.xp is not np:
            return self.rows
        cuts = equal_work(np.ones(1), len(self.query["ids"]), self.layout.grain, parts)
        return cuts[number], cuts[number + 1]

    @property
    def first(self) -> bool:
        """Whether this is the first share of the work. Only this share does work that
        must be done once.
        """
        return not self.part[0]

    @property
    def joiner(self) -> Joiner:
        return joiner_for(self.query["example"])

    @property
    def xp(self) -> ArrayModule:
        return self.joiner.xp

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        return (self.query,) if self.is_self_join else (self.query, self.data)

    @property
    def operands(self) -> tuple[Index, Index, Layout]:
        """The first arguments of a joiner's functions: both indexes and their layout."""
        return cast(Index, self.query), cast(Index, self.data), self.layout

    @property
    def either_order(self) -> bool:
        """Whether in some pairs the row from `data` comes first in the frame."""
        return (
            not self.is_self_join
            and "position" in self.query
            and self.spec.other is None
        )

    def comparisons(self) -> Iterator[BlockPair]:
        """Yield the comparisons of `query`: first with the chunk `data`, then with its
        halo if it has one.
        """
        yield self
        if "halo" in self.data and len(self.data["halo"]["ids"]):
            yield self._replace(data=self.data["halo"], is_self_join=False)


def equal_work(work: np.ndarray, places: int, grain: int, parts: int) -> list[int]:
    """Split the places 0 to `places` - 1 into parts of about equal work. Return the
    bounds of the parts.

    `work`: amounts of work for consecutive ranges of equal length. Bounds are multiples
    of `grain`, and parts may be empty.
    """
    done = np.concatenate([[0.0], np.cumsum(work)])
    at = np.interp(
        np.linspace(0, done[-1], parts + 1), done, np.linspace(0, places, len(done))
    )
    cuts: list[int] = (
        np.minimum(np.rint(at / grain) * grain, places).astype(int).tolist()
    )
    return [0, *cuts[1:-1], places]


CLASSES = 8
"""Rows with their own distances are compared in at most this many classes."""

CLASS_RATIO = 4.0
"""The radii of a class differ at most by this factor."""

MIN_GAIN = 4.0
"""Rows are split into classes only if this divides the number of candidates by at least
this factor.

Otherwise classes cost more than they save: each needs an index, and pairs are searched
in both directions.
"""

ShowPairs = Callable[[int, Array, Array, Array], None]
"""A function that receives pairs whose distance is at most the radius of the left row.

Its arguments: the chunk of the left rows (0 or 1), positions of left rows, positions of
right rows, totals.
"""


def visit_radii(
    block_pair: BlockPair, show: ShowPairs, rows: Rows | None = None
) -> None:
    """Call `show` for all pairs within the radius of the left row; in a self-join, for
    both directions.
    """
    both = block_pair.spec.other is None
    sides = (0, 1) if both and not block_pair.is_self_join else (0,)
    chunks = block_pair.query, block_pair.data
    gated = block_pair.spec.gated
    norm, xp = block_pair.layout.norm, block_pair.xp
    classes = [None if gated else _classes(chunks[side], norm, xp) for side in sides]
    if all(some is None for some in classes):
        _within_largest_radius(block_pair, show, rows, both)
        return
    for side, some in zip(sides, classes, strict=True):
        _by_radius_class(block_pair, show, rows, side, some)


def _within_largest_radius(
    block_pair: BlockPair, show: ShowPairs, rows: Rows | None, both: bool
) -> None:
    xp, spec = block_pair.xp, block_pair.spec
    chunks = block_pair.query, block_pair.data
    limits = [
        None
        if spec.radius is None and "own_limit" not in chunk  # searches for ties have it
        else by_position(chunk, chunk["own_limit"], xp)
        for chunk in chunks[: 1 + both]
    ]
    rules = [
        (g, rule)
        for g, rule in enumerate(spec.coordinates.gates.rules)
        if both and rule.one_sided
    ]
    indexes = cast(tuple[Index, Index], chunks)
    values = [
        by_position(chunk, index["values"], xp)
        for chunk, index in zip(chunks, indexes, strict=True)
        if rules
    ]

    def is_pair(side: int, left: Array, right: Array, totals: Array) -> Array:
        limit = limits[side]
        found = xp.ones(len(left), bool) if limit is None else totals <= limit[left]
        for g, rule in rules:
            own, other = values[side], values[1 - side]
            found &= allows(rule, own[left, g], other[right, g])
        return found

    def visitor(left: Array, right: Array, totals: Array) -> None:
        found = is_pair(0, left, right, totals)
        show(0, left[found], right[found], totals[found])
        if both:
            found = is_pair(1, right, left, totals)
            show(
                0 if block_pair.is_self_join else 1,
                right[found],
                left[found],
                totals[found],
            )

    block_pair.joiner.visit(
        *block_pair.operands, visitor, is_self_join=block_pair.is_self_join, rows=rows
    )


def _classes(chunk: Chunk, norm: Norm, xp: ArrayModule) -> Array | None:
    """Return for each place the radius class of its row, where class 0 has the largest
    radii. Return None if classes would save no time.
    """
    limit = chunk["own_limit"]
    largest = float(limit.max()) if len(limit) else 0.0
    if not 0 < largest < math.inf:
        return None
    radius = (limit / largest) ** (1.0 if norm in (1, math.inf) else 1 / norm)
    steps = -xp.log(xp.maximum(radius, CLASS_RATIO**-CLASSES)) / math.log(CLASS_RATIO)
    number = xp.minimum(steps.astype(xp.int64), CLASSES - 1)
    rows = to_host(tally(number, CLASSES))
    # the estimate is for two dimensions; in more dimensions, classes save more
    # comparisons than estimated
    candidates = float(rows @ CLASS_RATIO ** (-2.0 * np.arange(CLASSES)))
    return number if candidates * MIN_GAIN < len(limit) else None


def _by_radius_class(
    block_pair: BlockPair,
    show: ShowPairs,
    rows: Rows | None,
    side: int,
    classes: Array | None,
) -> None:
    joiner, xp, layout = block_pair.joiner, block_pair.xp, block_pair.layout
    own, other = (
        (block_pair.query, block_pair.data)
        if side == 0
        else (block_pair.data, block_pair.query)
    )
    limits = own["own_limit"]
    positions = [chunk["order"][: len(chunk["ids"])] for chunk in (own, other)]
    x, y = (joiner.points(cast(Index, chunk), layout) for chunk in (own, other))
    lefts = xp.arange(len(limits))
    if rows is not None and side == 0:
        lefts = lefts[rows[0] : rows[1]]
    elif rows is not None:
        y, positions[1] = y[rows[0] : rows[1]], positions[1][rows[0] : rows[1]]
    if not len(y):
        return
    lower, upper = y.min(axis=0), y.max(axis=0)
    for number in range(CLASSES) if classes is not None else (None,):
        some = (
            lefts
            if classes is None or number is None
            else lefts[classes[lefts] == number]
        )
        if not len(some):
            continue
        threshold = float(limits[some].max())
        # no pair is lost, because rounding never makes the computed gap larger than a
        # computed total
        some = some[box_gap(layout.norm, x[some], x[some], lower, upper) <= threshold]
        if not len(some):
            continue
        _join_class(
            block_pair,
            show,
            side,
            threshold,
            x[some],
            y,
            (positions[0][some], positions[1], limits[some]),
        )


def _join_class(
    block_pair: BlockPair,
    show: ShowPairs,
    side: int,
    threshold: float,
    x: Array,
    y: Array,
    sides: tuple[Array, Array, Array],
) -> None:
    """Call `show` for the pairs between left rows, with points `x`, and rows of the
    other chunk, with points `y`.

    `sides`: positions of the left rows, positions of the other rows, and for each left
    row its threshold.
    """
    joiner, is_self_join = block_pair.joiner, block_pair.is_self_join
    given, every = block_pair.layout, merge_moments([moments(x), moments(y)])
    box = every.lower, every.upper, every.mean, every.variance
    layout = joiner.layout(given.method, *box, threshold, given.norm)
    lefts, rights, limits = sides

    def visitor(left: Array, right: Array, totals: Array) -> None:
        found = totals <= limits[left]
        # both sides have the rows of one chunk, so skip pairs of a row with itself
        if is_self_join:
            found &= lefts[left] != rights[right]
        show(side, lefts[left][found], rights[right][found], totals[found])

    joiner.visit(
        joiner.build(x, layout),
        joiner.build(y, layout),
        layout,
        visitor,
        is_self_join=False,
    )


def by_position(chunk: Chunk, values: Array, xp: ArrayModule) -> Array:
    """Return values, given in index order, in the order of the chunk's rows."""
    out = xp.empty_like(values)
    out[chunk["order"][: len(values)]] = values
    return out


class Matches(NamedTuple):
    """Pairs of rows, with distances if they were requested.

    `left` (pairs,): the left rows, as places in the index of the chunk `left_of`.
    `right`: the right rows, likewise as places in the index of the chunk `right_of`.
    """

    left: Array
    right: Array
    distance: Array | None
    left_of: Chunk
    right_of: Chunk


def measured(spec: JoinSpec, xp: ArrayModule) -> Measured:
    """Return a function that converts totals to distances in the unit of the result."""
    metric, unit = spec.measure, spec.result.unit
    how = {"xp": xp, "kernels": host_kernels("distances") if xp is np else None}
    if unit is None or isinstance(spec, TotalsSpec):
        return functools.partial(metric.distance, **how)
    return functools.partial(metric.in_unit, size=unit.size, **how)


def matches(block_pair: BlockPair, distance: bool, rows: Rows | None) -> list[Matches]:
    """Find each pair of two chunks once. In a self-join, the left row is the row that
    comes first in the frame. If it may be in either chunk, return the pairs in two
    parts.

    If each row has its own radius, see `_within_radius`.
    """
    query, data, is_self_join, spec = block_pair[:4]
    if spec.directed:
        return _within_radius(block_pair, distance, rows)
    joiner = block_pair.joiner
    xp = joiner.xp
    made = measured(spec, xp) if distance else None
    every = 0, len(query["ids"])
    start, stop = every if rows is None or is_self_join else rows
    # memory outside `rows` is not touched, because a halo may have few rows
    places = xp.empty(every[1], xp.int64)
    places[start:stop] = xp.arange(start, stop, dtype=xp.int64)
    found = joiner.pairs(
        *block_pair.operands,
        is_self_join=is_self_join,
        distance=made,
        labels=(places, xp.arange(len(data["ids"]), dtype=xp.int64)),
        rows=rows,
    )
    left, right, away = found.left, found.right, found.distance
    if not block_pair.either_order:
        return [Matches(left, right, away, query, data)]
    swap = (
        data["position"][data["order"][right]] < query["position"][query["order"][left]]
    )
    return [
        Matches(
            (right if swapped else left)[here],
            (left if swapped else right)[here],
            None if away is None else away[here],
            data if swapped else query,
            query if swapped else data,
        )
        for swapped, here in enumerate((~swap, swap))
    ]


def _within_radius(
    block_pair: BlockPair, distance: bool, rows: Rows | None
) -> list[Matches]:
    """Find the pairs within the radius of the left row. In a self-join, check both
    directions of a pair. If the left row may be in either chunk, return the pairs in two
    parts.
    """
    query, data, _, spec = block_pair[:4]
    xp = block_pair.xp
    parts: tuple[list[tuple[Array, Array, Array]], ...] = [], []

    def show(side: int, left: Array, right: Array, totals: Array) -> None:
        parts[side].append((left, right, totals))

    visit_radii(block_pair, show, rows)
    kinds = xp.int64, xp.int64, xp.float64
    found: list[Matches] = []
    for shown, of in zip(parts, ((query, data), (data, query)), strict=True):
        if not shown and found:
            continue
        left, right, totals = (
            xp.concatenate([xp.zeros(0, kind), *(part[k] for part in shown)])
            for k, kind in enumerate(kinds)
        )
        away = measured(spec, xp)(totals) if distance else None
        places = row_places(of[0])[left], row_places(of[1])[right]
        found.append(Matches(*places, away, *of))
    return found


def row_places(chunk: Chunk) -> Array:
    """Return the place of each row in the index of its chunk (n,), int64."""
    xp = module_of(chunk["order"])
    return by_position(chunk, xp.arange(len(chunk["ids"]), dtype=xp.int64), xp)


def ids_of(chunks: tuple[Chunk, ...], places: Array) -> Values:
    """Return the ids of rows. `places`: places of the rows in the concatenation of the
    chunks' indexes.
    """
    xp = frames_for(chunks[0]["example"]).xp
    keys = [chunk["id_keys"] for chunk in chunks]
    if all(some is not None for some in keys):
        return from_id_keys(_concat(keys, xp)[places], chunks[0]["ids"])
    firsts = [0, *(len(chunk["ids"]) for chunk in chunks[:-1])]
    orders = [
        chunk["order"][: len(chunk["ids"])] + start
        for chunk, start in zip(chunks, firsts, strict=True)
    ]
    return joined([chunk["ids"] for chunk in chunks]).take(_concat(orders, xp)[places])


def kept_columns(
    chunks: tuple[Chunk, ...], names: Mapping[Any, Hashable], places: Array
) -> dict[Any, Values]:
    """Return the `kept_values` of several columns. `names`: name in the result -> name
    in the chunks.
    """
    if len(chunks) == 1 and names:
        frames = frames_for(chunks[0]["example"])
        return frames.columns_at(chunks[0]["kept"], names, places)
    return {called: kept_values(chunks, name, places) for called, name in names.items()}


def kept_values(chunks: tuple[Chunk, ...], column: Hashable, places: Array) -> Values:
    """Return the values of a kept column, in a form that `Frames.result` accepts.
    `places`: see `ids_of`.
    """
    frames = frames_for(chunks[0]["example"])
    parts = [chunk["kept"] for chunk in chunks]
    whole = (
        parts[0]
        if len(parts) == 1
        else frames.stacked([part[[column]] for part in parts])
    )
    return frames.values(whole, column, places)


def _concat(parts: list[Array], xp: ArrayModule) -> Array:
    return parts[0] if len(parts) == 1 else xp.concatenate(parts)
