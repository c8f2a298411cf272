"""Find the pairs of two chunks.

A row's place is its number in the index of its chunk; its position is its number in the chunk or the frame.

If each row has its own radius, a pair counts if its distance is at most the radius of its left row.  If radii
are similar, chunks are joined within the largest radius, and each pair is checked in both directions.  If a
few radii are much larger than the others, left rows are split into classes of similar radii.  Each class is
joined within its largest radius.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple, cast

import numpy as np

from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.compat import tally, to_host
from dask_simjoin.engine.ids import from_id_keys, joined
from dask_simjoin.engine.protocols import Joiner, Layout, Measured, Rows
from dask_simjoin.metrics.distances import Cosine, Metric
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Norm, Values, box_gap
from dask_simjoin.planning.sample import merge_moments, moments
from dask_simjoin.request.spec import JoinSpec, TotalsSpec
from dask_simjoin.tasks.chunks import Chunk


class BlockPair(NamedTuple):
    """Two chunks that are compared, with options and layout."""

    # chunk of queries and chunk of data; both are the same object if a chunk is compared with itself.  `data`
    # may have a halo
    query: Chunk
    data: Chunk
    is_self_join: bool  # whether both are the same chunk, so that each pair is found once
    spec: JoinSpec
    layout: Layout  # the layout of both indexes
    part: tuple[int, int] = (0, 1)  # which part of the work this is: (index, number of parts)

    @property
    def rows(self) -> Rows | None:
        """The range of places in the first chunk's index that this part of the work searches; None: all."""
        number, parts = self.part
        if parts == 1:
            return None
        work = self.joiner.work(*self.operands, is_self_join=self.is_self_join)
        cuts = equal_work(work, len(self.query["ids"]), self.layout.grain, parts)
        return cuts[number], cuts[number + 1]

    @property
    def places(self) -> Rows | None:
        """The range of places in the first chunk's index whose rows get their results here; None: all.

        If a chunk on the host is compared with itself, a place's pairs with earlier and with later places are
        found.  So the work is equal for all places.
        """
        number, parts = self.part
        if parts == 1 or not self.is_self_join or self.xp is not np:
            return self.rows
        cuts = equal_work(np.ones(1), len(self.query["ids"]), self.layout.grain, parts)
        return cuts[number], cuts[number + 1]

    @property
    def first(self) -> bool:
        """Whether this is the first part of the work; it also does the steps that are needed only once."""
        return not self.part[0]

    @property
    def joiner(self) -> Joiner:
        """The joiner for the library of the chunks."""
        return joiner_for(self.query["example"])

    @property
    def xp(self) -> ArrayModule:
        """The array module of the chunks."""
        return self.joiner.xp

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks, or the only chunk if it is compared with itself."""
        return (self.query,) if self.is_self_join else (self.query, self.data)

    @property
    def operands(self) -> tuple[Index, Index, Layout]:
        """The arguments of a joiner: both indexes, and their layout."""
        return cast(Index, self.query), cast(Index, self.data), self.layout

    @property
    def order_unknown(self) -> bool:
        """Whether either row of a pair may come first in the frame."""
        return not self.is_self_join and "position" in self.query and self.spec.other is None

    def comparisons(self) -> Iterator[BlockPair]:
        """Yield the comparisons as block pairs: both chunks, then the first chunk and the second's halo."""
        yield self
        if "halo" in self.data and len(self.data["halo"]["ids"]):
            yield self._replace(data=self.data["halo"], is_self_join=False)


def equal_work(work: np.ndarray, places: int, grain: int, parts: int) -> list[int]:
    """Split the places 0 ... places-1 into parts of roughly equal work; return where parts begin and end.

    `work`: the work of each range, if places are split into ranges of equal length.  Parts begin at multiples
    of `grain`, and may be empty.
    """
    done = np.concatenate([[0.0], np.cumsum(work)])
    at = np.interp(np.linspace(0, done[-1], parts + 1), done, np.linspace(0, places, len(done)))
    cuts = [min(round(cut / grain) * grain, places) for cut in at.tolist()]
    return [0, *cuts[1:-1], places]


def whole_block_pair(chunk: Chunk, spec: JoinSpec, layout: Layout) -> BlockPair:
    """Make the block pair of a chunk with itself."""
    return BlockPair(chunk, chunk, True, spec, layout)


RATIO = 4.0
"""Largest ratio of two radii in the same class."""

CLASSES = 8
"""Number of classes: the last has all smaller radii, and 0."""

GAIN = 4.0
"""Classes must reduce candidates by this factor: they need new indexes, and search both directions."""

Show = Callable[[int, Array, Array, Array], None]
"""A function that takes pairs within the radii of left rows.

Arguments: the chunk of the left rows (0 or 1), positions of the left and of the right rows, and totals."""


def visit_radii(block_pair: BlockPair, show: Show, rows: Rows | None = None) -> None:
    """Call `show` with all pairs within the radius of the left row; in one table, for both directions."""
    both = block_pair.spec.other is None
    sides = (0, 1) if both and not block_pair.is_self_join else (0,)
    chunks = block_pair.query, block_pair.data
    classes = [_classes(chunks[side], block_pair.layout.norm, block_pair.xp) for side in sides]
    if all(some is None for some in classes):
        _at_once(block_pair, show, rows, both)
        return
    for side, some in zip(sides, classes, strict=True):
        _in_classes(block_pair, show, rows, side, some)


def _at_once(block_pair: BlockPair, show: Show, rows: Rows | None, both: bool) -> None:
    xp = block_pair.xp
    limits = [
        by_position(chunk, chunk["own_limit"], xp)
        for chunk in (block_pair.query, block_pair.data)[: 1 + both]
    ]

    def visitor(left: Array, right: Array, totals: Array) -> None:
        found = totals <= limits[0][left]
        show(0, left[found], right[found], totals[found])
        if both:
            found = totals <= limits[1][right]
            show(0 if block_pair.is_self_join else 1, right[found], left[found], totals[found])

    block_pair.joiner.visit(*block_pair.operands, visitor, is_self_join=block_pair.is_self_join, rows=rows)


def _classes(chunk: Chunk, norm: Norm, xp: ArrayModule) -> Array | None:
    """Return the class of the radius at each place, 0 for the largest radii; None: classes save no time."""
    limit = chunk["own_limit"]
    largest = float(limit.max()) if len(limit) else 0.0
    if not 0 < largest < math.inf:
        return None
    radius = (limit / largest) ** (1.0 if norm in (1, math.inf) else 1 / norm)
    steps = -xp.log(xp.maximum(radius, RATIO**-CLASSES)) / math.log(RATIO)
    number = xp.minimum(steps.astype(xp.int64), CLASSES - 1)
    rows = to_host(tally(number, CLASSES))
    # candidates as in two dimensions; in more dimensions, classes save more of them
    candidates = float(rows @ RATIO ** (-2.0 * np.arange(CLASSES)))
    return number if candidates * GAIN < len(limit) else None


def _in_classes(
    block_pair: BlockPair, show: Show, rows: Rows | None, side: int, classes: Array | None
) -> None:
    joiner, xp, layout = block_pair.joiner, block_pair.xp, block_pair.layout
    own, other = (block_pair.query, block_pair.data) if side == 0 else (block_pair.data, block_pair.query)
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
        some = lefts if classes is None or number is None else lefts[classes[lefts] == number]
        if not len(some):
            continue
        threshold = float(limits[some].max())
        # this loses no pair, because a computed gap is at most the computed total
        some = some[box_gap(layout.norm, x[some], x[some], lower, upper) <= threshold]
        if not len(some):
            continue
        _join(block_pair, show, side, threshold, x[some], y, (positions[0][some], positions[1], limits[some]))


def _join(block_pair: BlockPair, show: Show, side: int, threshold: float, x: Array, y: Array,
          sides: tuple[Array, Array, Array]) -> None:  # fmt: skip
    """Call `show` with the pairs of left rows (points `x`) and rows of the other chunk (points `y`).

    `sides`: the positions of the left rows and of the other rows, and the threshold of each left row.
    """
    joiner, is_self_join = block_pair.joiner, block_pair.is_self_join
    given, every = block_pair.layout, merge_moments([moments(x), moments(y)])
    box = every.lower, every.upper, every.mean, every.variance
    layout = joiner.layout(given.method, *box, threshold, given.norm)
    lefts, rights, limits = sides

    def visitor(left: Array, right: Array, totals: Array) -> None:
        found = totals <= limits[left]
        if is_self_join:  # a row is not its own neighbor
            found &= lefts[left] != rights[right]
        show(side, lefts[left][found], rights[right][found], totals[found])

    joiner.visit(joiner.build(x, layout), joiner.build(y, layout), layout, visitor, is_self_join=False)


def by_position(chunk: Chunk, values: Array, xp: ArrayModule) -> Array:
    """Reorder values from index order to the order of rows in the chunk."""
    out = xp.empty_like(values)
    out[chunk["order"][: len(values)]] = values
    return out


class Matches(NamedTuple):
    """Pairs of rows, and their distances.

    `left`: places of left rows (pairs,) in the concatenated indexes of the chunks `left_of`; `right`
    likewise.
    """

    left: Array
    right: Array
    distance: Array | None
    left_of: tuple[Chunk, ...]
    right_of: tuple[Chunk, ...]


def measured(spec: JoinSpec, xp: ArrayModule) -> Measured:
    """Return the function that converts totals to distances in the unit of the result."""
    if spec.unit is None or isinstance(spec, TotalsSpec):
        return functools.partial(spec.measure.distance, xp=xp)
    return functools.partial(_in_unit, metric=spec.measure, size=spec.unit.size, xp=xp)


def _in_unit(totals: Array, metric: Metric, size: float, xp: ArrayModule) -> Array:
    """Convert totals to distances in a unit, which may overwrite the totals; `size`: see `DistanceUnit`."""
    if metric.name == Cosine.name:
        away = xp.sqrt(totals, out=totals)  # length of the chord between the unit vectors
        away *= 0.5
        xp.minimum(away, 1.0, out=away)
        xp.arcsin(away, out=away)
        away *= 2.0
    else:
        away = metric.distance(totals, xp)
    away /= size
    return away


def matches(block_pair: BlockPair, distance: bool, rows: Rows | None) -> Matches:
    """Find each pair of two chunks once; in one table, the left row comes first in the frame.

    With a radius per row, see `_within_radius`.
    """
    query, data, is_self_join, spec = block_pair[:4]
    if spec.radius is not None:
        return _within_radius(block_pair, distance, rows)
    joiner = block_pair.joiner
    xp = joiner.xp
    made = measured(spec, xp) if distance else None
    places = tuple(xp.arange(len(side["ids"]), dtype=xp.int64) for side in (query, data))
    found = joiner.pairs(
        *block_pair.operands,
        is_self_join=is_self_join,
        distance=made,
        labels=(places[0], places[1]),
        rows=rows,
    )
    left, right = found.left, found.right
    if not block_pair.order_unknown:
        return Matches(left, right, found.distance, (query,), (data,))
    swap = data["position"][data["order"][right]] < query["position"][query["order"][left]]
    right = right + len(query["ids"])
    left, right = xp.where(swap, right, left), xp.where(swap, left, right)
    return Matches(left, right, found.distance, (query, data), (query, data))


def _within_radius(block_pair: BlockPair, distance: bool, rows: Rows | None) -> Matches:
    """Find pairs within the radius of the left row; in one table, check each direction of a pair."""
    query, data, is_self_join, spec = block_pair[:4]
    xp, both = block_pair.xp, spec.other is None
    # in one table, the left row of a pair may be in either chunk
    sides = ((query, data), (query, data)) if both and not is_self_join else ((query,), (data,))
    first = len(query["ids"]) if both and not is_self_join else 0
    parts: list[tuple[Array, Array, Array]] = []

    def show(side: int, left: Array, right: Array, totals: Array) -> None:
        parts.append((left + first, right, totals) if side else (left, right + first, totals))

    visit_radii(block_pair, show, rows)
    kinds = xp.int64, xp.int64, xp.float64
    left, right, totals = (
        xp.concatenate([xp.zeros(0, kind), *(part[k] for part in parts)]) for k, kind in enumerate(kinds)
    )
    away = measured(spec, xp)(totals) if distance else None
    places = [xp.concatenate(_ranks(chunks, xp)) for chunks in sides]
    return Matches(places[0][left], places[1][right], away, *sides)


def _ranks(chunks: tuple[Chunk, ...], xp: ArrayModule) -> list[Array]:
    """Return the place of each row in the concatenated indexes of all chunks, for each chunk."""
    firsts = [0, *(len(chunk["ids"]) for chunk in chunks[:-1])]
    return [rank(chunk, xp) + first for chunk, first in zip(chunks, firsts, strict=True)]


def rank(chunk: Chunk, xp: ArrayModule) -> Array:
    """Return the place of each row in the index of its chunk (n,), int64."""
    return by_position(chunk, xp.arange(len(chunk["ids"]), dtype=xp.int64), xp)


def ids_of(chunks: tuple[Chunk, ...], places: Array) -> Values:
    """Return the ids of rows, as an array or an index; `places`: in the concatenated indexes of chunks."""
    xp = frames_for(chunks[0]["example"]).xp
    keys = [chunk["id_keys"] for chunk in chunks]
    if all(some is not None for some in keys):
        return from_id_keys(_whole(keys, xp)[places], chunks[0]["ids"])
    firsts = [0, *(len(chunk["ids"]) for chunk in chunks[:-1])]
    orders = [
        chunk["order"][: len(chunk["ids"])] + start for chunk, start in zip(chunks, firsts, strict=True)
    ]
    return joined([chunk["ids"] for chunk in chunks]).take(_whole(orders, xp)[places])


def kept_values(chunks: tuple[Chunk, ...], column: Hashable, places: Array) -> Values:
    """Return the values of rows in a kept column, for `Frames.result`; `places`: see `ids_of`."""
    frames = frames_for(chunks[0]["example"])
    parts = [chunk["kept"] for chunk in chunks]
    whole = parts[0] if len(parts) == 1 else frames.stacked([part[[column]] for part in parts])
    return frames.values(whole, column, places)


def _whole(parts: list[Array], xp: ArrayModule) -> Array:
    return parts[0] if len(parts) == 1 else xp.concatenate(parts)
