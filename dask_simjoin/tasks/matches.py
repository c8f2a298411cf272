"""Find the pairs of two chunks, as positions in their indexes.

With a radius per row, the radius of a pair's left row decides the pair.  If radii are similar, chunks are
joined within the largest radius, and each pair is decided in both directions.  If a few radii are much
larger, left rows are joined in classes of similar radii, each within its own largest radius.
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
    """Two chunks to compare, and how."""

    # the chunk of queries and the chunk of data, or one chunk twice; `d` may have a halo
    q: Chunk
    d: Chunk
    same: bool  # whether they are one chunk, whose pairs are found once
    spec: JoinSpec
    layout: Layout  # the layout of both indexes
    part: tuple[int, int] = (0, 1)  # index and number of parts of the work

    @property
    def rows(self) -> Rows | None:
        """The places of the first chunk's index that are this part of the work; None: all."""
        number, parts = self.part
        if parts == 1:
            return None
        work = self.joiner.work(*self.operands, is_self_join=self.same)
        cuts = equal_work(work, len(self.q["ids"]), self.layout.grain, parts)
        return cuts[number], cuts[number + 1]

    @property
    def places(self) -> Rows | None:
        """The places of the first chunk whose rows get numbers by this part of the work; None: all.

        In a single chunk on the host, the pairs of a place are found from both ends, so all places take
        equally long.
        """
        number, parts = self.part
        if parts == 1 or not self.same or self.xp is not np:
            return self.rows
        cuts = equal_work(np.ones(1), len(self.q["ids"]), self.layout.grain, parts)
        return cuts[number], cuts[number + 1]

    @property
    def first(self) -> bool:
        """Whether this is the first part of the work, which also does the steps that are needed once."""
        return not self.part[0]

    @property
    def joiner(self) -> Joiner:
        """The joiner for chunks of this library."""
        return joiner_for(self.q["example"])

    @property
    def xp(self) -> ArrayModule:
        """The array module of the chunks."""
        return self.joiner.xp

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The distinct chunks."""
        return (self.q,) if self.same else (self.q, self.d)

    @property
    def operands(self) -> tuple[Index, Index, Layout]:
        """The operands of a joiner: both indexes, and their layout."""
        return cast(Index, self.q), cast(Index, self.d), self.layout

    @property
    def order_unknown(self) -> bool:
        """Whether either row of a pair may be first in the frame."""
        return not self.same and "position" in self.q and self.spec.other is None

    def comparisons(self) -> Iterator[BlockPair]:
        """Yield the comparisons: both chunks, and the first chunk with the halo of the second."""
        yield self
        if "halo" in self.d and len(self.d["halo"]["ids"]):
            yield self._replace(d=self.d["halo"], same=False)


def equal_work(work: np.ndarray, places: int, grain: int, parts: int) -> list[int]:
    """Split `places` into parts of roughly equal work, and return the ends of parts.

    `work`: the work of each of equal ranges of places.  Parts begin at multiples of `grain`, and may be
    empty.
    """
    done = np.concatenate([[0.0], np.cumsum(work)])
    at = np.interp(np.linspace(0, done[-1], parts + 1), done, np.linspace(0, places, len(done)))
    cuts = [min(round(cut / grain) * grain, places) for cut in at.tolist()]
    return [0, *cuts[1:-1], places]


def whole_block_pair(chunk: Chunk, spec: JoinSpec, layout: Layout) -> BlockPair:
    """Make the block pair of a chunk with itself."""
    return BlockPair(chunk, chunk, True, spec, layout)


RATIO = 4.0
"""Largest ratio of two radii in a class."""

CLASSES = 8
"""Largest number of classes: the last has all small radii, and 0."""

GAIN = 4.0
"""Classes must reduce candidates by this factor, because they search both directions and build indexes."""

Show = Callable[[int, Array, Array, Array], None]
"""Takes pairs within the left rows' radii: the left rows' chunk (0 or 1), positions in both, and totals."""


def visit_radii(block_pair: BlockPair, show: Show, rows: Rows | None = None) -> None:
    """Call `show` with all pairs within the left row's radius; for one table, in both directions."""
    both = block_pair.spec.other is None
    sides = (0, 1) if both and not block_pair.same else (0,)
    chunks = block_pair.q, block_pair.d
    classes = [_classes(chunks[side], block_pair.layout.norm, block_pair.xp) for side in sides]
    if all(some is None for some in classes):
        _at_once(block_pair, show, rows, both)
        return
    for side, some in zip(sides, classes, strict=True):
        _in_classes(block_pair, show, rows, side, some)


def _at_once(block_pair: BlockPair, show: Show, rows: Rows | None, both: bool) -> None:
    xp = block_pair.xp
    limits = [
        by_position(chunk, chunk["own_limit"], xp) for chunk in (block_pair.q, block_pair.d)[: 1 + both]
    ]

    def visitor(left: Array, right: Array, totals: Array) -> None:
        found = totals <= limits[0][left]
        show(0, left[found], right[found], totals[found])
        if both:
            found = totals <= limits[1][right]
            show(0 if block_pair.same else 1, right[found], left[found], totals[found])

    block_pair.joiner.visit(*block_pair.operands, visitor, is_self_join=block_pair.same, rows=rows)


def _classes(chunk: Chunk, norm: Norm, xp: ArrayModule) -> Array | None:
    """Return the class of each place's radius, 0 for the largest; None: classes would not save time."""
    limit = chunk["own_limit"]
    largest = float(limit.max()) if len(limit) else 0.0
    if not 0 < largest < math.inf:
        return None
    radius = (limit / largest) ** (1.0 if norm in (1, math.inf) else 1 / norm)
    steps = -xp.log(xp.maximum(radius, RATIO**-CLASSES)) / math.log(RATIO)
    number = xp.minimum(steps.astype(xp.int64), CLASSES - 1)
    rows = to_host(tally(number, CLASSES))
    # as in two dimensions: with more dimensions, classes save more
    candidates = float(rows @ RATIO ** (-2.0 * np.arange(CLASSES)))
    return number if candidates * GAIN < len(limit) else None


def _in_classes(
    block_pair: BlockPair, show: Show, rows: Rows | None, side: int, classes: Array | None
) -> None:
    joiner, xp, layout = block_pair.joiner, block_pair.xp, block_pair.layout
    own, other = (block_pair.q, block_pair.d) if side == 0 else (block_pair.d, block_pair.q)
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
        # no pair is lost: a computed gap is at most the computed total
        some = some[box_gap(layout.norm, x[some], x[some], lower, upper) <= threshold]
        if not len(some):
            continue
        _join(block_pair, show, side, threshold, x[some], y, (positions[0][some], positions[1], limits[some]))


def _join(block_pair: BlockPair, show: Show, side: int, threshold: float, x: Array, y: Array,
          sides: tuple[Array, Array, Array]) -> None:  # fmt: skip
    """Call `show` with the pairs of some left rows `x` and rows `y` of the other chunk.

    `sides`: the positions of both kinds of rows, and the threshold of each left row.
    """
    joiner, same = block_pair.joiner, block_pair.same
    given, every = block_pair.layout, merge_moments([moments(x), moments(y)])
    box = every.lower, every.upper, every.mean, every.variance
    layout = joiner.layout(given.method, *box, threshold, given.norm)
    lefts, rights, limits = sides

    def visitor(left: Array, right: Array, totals: Array) -> None:
        found = totals <= limits[left]
        if same:  # a row is not its own neighbor
            found &= lefts[left] != rights[right]
        show(side, lefts[left][found], rights[right][found], totals[found])

    joiner.visit(joiner.build(x, layout), joiner.build(y, layout), layout, visitor, is_self_join=False)


def by_position(chunk: Chunk, values: Array, xp: ArrayModule) -> Array:
    """Reorder values from index order to row order."""
    out = xp.empty_like(values)
    out[chunk["order"][: len(values)]] = values
    return out


class Matches(NamedTuple):
    """Pairs as places (pairs,) in the concatenated indexes of `left_of` and `right_of`, and distances."""

    left: Array
    right: Array
    distance: Array | None
    left_of: tuple[Chunk, ...]
    right_of: tuple[Chunk, ...]


def measured(spec: JoinSpec, xp: ArrayModule) -> Measured:
    """Return the function that converts totals to distances, in the unit of the result."""
    if spec.unit is None or isinstance(spec, TotalsSpec):
        return functools.partial(spec.measure.distance, xp=xp)
    return functools.partial(_in_unit, metric=spec.measure, size=spec.unit.size, xp=xp)


def _in_unit(totals: Array, metric: Metric, size: float, xp: ArrayModule) -> Array:
    """Convert totals to distances, whose memory may be reused; `size`: see `DistanceUnit`."""
    if metric.name == Cosine.name:
        away = xp.sqrt(totals, out=totals)  # the chord of the angle
        away *= 0.5
        xp.minimum(away, 1.0, out=away)
        xp.arcsin(away, out=away)
        away *= 2.0
    else:
        away = metric.distance(totals, xp)
    away /= size
    return away


def matches(block_pair: BlockPair, distance: bool, rows: Rows | None) -> Matches:
    """Find all pairs of two chunks, or of one with itself, each once; left rows come first in the frame."""
    q, d, same, spec = block_pair[:4]
    if spec.radius is not None:
        return _within_radius(block_pair, distance, rows)
    joiner = block_pair.joiner
    xp = joiner.xp
    made = measured(spec, xp) if distance else None
    places = tuple(xp.arange(len(side["ids"]), dtype=xp.int64) for side in (q, d))
    found = joiner.pairs(
        *block_pair.operands, is_self_join=same, distance=made, labels=(places[0], places[1]), rows=rows
    )
    left, right = found.left, found.right
    if not block_pair.order_unknown:
        return Matches(left, right, found.distance, (q,), (d,))
    swap = d["position"][d["order"][right]] < q["position"][q["order"][left]]
    right = right + len(q["ids"])
    left, right = xp.where(swap, right, left), xp.where(swap, left, right)
    return Matches(left, right, found.distance, (q, d), (q, d))


def _within_radius(block_pair: BlockPair, distance: bool, rows: Rows | None) -> Matches:
    """Find pairs within the left row's radius; for one table, each direction is decided by itself."""
    q, d, same, spec = block_pair[:4]
    xp, both = block_pair.xp, spec.other is None
    # with one table, a row of either chunk may be the left one
    sides = ((q, d), (q, d)) if both and not same else ((q,), (d,))
    first = len(q["ids"]) if both and not same else 0
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
    """Return the places of each chunk's rows in the concatenated indexes of all chunks."""
    firsts = [0, *(len(chunk["ids"]) for chunk in chunks[:-1])]
    return [rank(chunk, xp) + first for chunk, first in zip(chunks, firsts, strict=True)]


def rank(chunk: Chunk, xp: ArrayModule) -> Array:
    """Return the place of each row in the index (n,) int64."""
    return by_position(chunk, xp.arange(len(chunk["ids"]), dtype=xp.int64), xp)


def ids_of(chunks: tuple[Chunk, ...], places: Array) -> Values:
    """Return the ids of rows: an array or an Index."""
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
    """Return the values of a kept column of rows, in a form for `Frames.result`."""
    frames = frames_for(chunks[0]["example"])
    parts = [chunk["kept"] for chunk in chunks]
    whole = parts[0] if len(parts) == 1 else frames.stacked([part[[column]] for part in parts])
    return frames.values(whole, column, places)


def _whole(parts: list[Array], xp: ArrayModule) -> Array:
    return parts[0] if len(parts) == 1 else xp.concatenate(parts)
