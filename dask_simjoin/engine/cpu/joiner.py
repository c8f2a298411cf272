"""Join chunks of NumPy arrays with Numba kernels, and profile a join. Each call uses
one core.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator

import numpy as np

from dask_simjoin.catalog import AUTO, DENSE, HOME, Method, choose, name_of, options_of
from dask_simjoin.engine.base import Counters, Numbers, compared_ratio, method_module
from dask_simjoin.engine.columns import CAPACITY_PER_POINT, MAX_CAPACITY
from dask_simjoin.engine.cpu import cells, gated, gated_nearest, sinks, spanning
from dask_simjoin.engine.cpu import nearest as cpu_nearest
from dask_simjoin.engine.cpu.kernels import components, optics
from dask_simjoin.engine.cpu.kernels import totals as finish
from dask_simjoin.engine.cpu.kernels.pack import (
    Needed,
    RegionTree,
    Walls,
    find_regions,
    scratch,
)
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.spanning import WeakPairCache, rows_of_places
from dask_simjoin.engine.gated import GatedLayout, GatedSearch, PairsSearch
from dask_simjoin.engine.index import cpu_tiles
from dask_simjoin.engine.index.cpu_tiles import NearestLayout
from dask_simjoin.engine.index.grids import CellLayout, make_screened_layout
from dask_simjoin.engine.index.kdtree import Regions
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.process import shared_out
from dask_simjoin.engine.protocols import (
    Kept,
    Layout,
    Measured,
    MethodSearch,
    Pairs,
    Ranged,
    Rows,
    SearchMethod,
    Visitor,
)
from dask_simjoin.metrics.norms import Index, Norm


def comparisons(
    module: sinks.CpuMethod,
    q: Index,
    d: Index,
    layout: Layout,
    is_self_join: bool,
    rows: Rows | None,
    loose: bool = False,
) -> Iterator[tuple[Index, Index, bool]]:
    """Yield joins that together find the pairs of the places `rows`. Each is (queries,
    data, is a self-join).

    `rows`: None means all places. In a self-join, a pair belongs to the earlier of its
    two places. So the places `rows` are joined with each other, and then with later
    places that may be near. `loose`: select the later places by
    `sinks.Choosing.loose_part`, if the method has it.
    """
    if rows is None:
        yield q, d, is_self_join
        return
    start, stop = rows
    part = (
        module.loose_part
        if loose and isinstance(module, sinks.Choosing)
        else module.part
    )
    some = part(q, start, stop)
    if not is_self_join:
        yield some, d, False
        return
    yield some, some, True
    yield some, part(q, stop, module.end(q, stop, layout)), False


NO_POINTS = np.empty((0, 0), order="F")
"""Passed in place of points to sinks that write no distances."""

WORK = WeakPairCache[np.ndarray]()
"""Cache of `CpuJoiner.work`: a block pair may be split into several tasks, which all
need this estimate.
"""

PLACES = WeakPairCache[list[np.ndarray]]()
"""Cache of `sinks.places_of`, which all parts of a join need."""

WRITTEN = {np.dtype(np.int32), np.dtype(np.int64)}
"""Dtypes of labels that kernels can write."""


class CpuJoiner:
    """See `Joiner`."""

    xp = np

    def layout(
        self,
        method: str | Method,
        lower: np.ndarray,
        upper: np.ndarray,
        mean: np.ndarray,
        variance: np.ndarray,
        threshold: float,
        norm: Norm = 2,
        sample: JoinSample | None = None,
    ) -> Layout:
        name = choose(method, len(lower), HOME)
        if name_of(method) == AUTO and name == DENSE and sample is not None:
            screened = make_screened_layout(
                lower, upper, variance, threshold, norm, sample
            )
            if screened is not None:
                return screened
        moments = lower, upper, mean, variance
        return method_module(name, HOME).layout(
            options_of(method, name), *moments, threshold, norm, sample
        )

    def build(
        self,
        x: np.ndarray,
        layout: Layout | NearestLayout | MethodSearch | CellLayout,
        threads: int = 1,
    ) -> Index:
        if isinstance(layout, GatedSearch | PairsSearch):
            return gated_nearest.build(x, layout, threads)
        if isinstance(layout, MethodSearch):
            search: SearchMethod = method_module(layout.method, HOME)
            return search.build_nearest(x)
        if isinstance(layout, CellLayout):
            return cells.build(x, layout, threads)
        if isinstance(layout, NearestLayout):
            return cpu_nearest.build(x, None, layout, threads)
        return _module(layout).build(x, layout, threads)

    def points(self, index: Index, layout: Layout) -> np.ndarray:
        if isinstance(layout, GatedLayout):
            return gated.method_of(layout).every_column(index)
        return _module(layout).points(index)[: len(index["order"]) - SWEEP_LANES]

    def pairs(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        *,
        is_self_join: bool,
        distance: Measured | None = None,
        labels: tuple[np.ndarray, np.ndarray] | None = None,
        rows: Rows | None = None,
        kept: Kept | None = None,
    ) -> Pairs:
        module, one_chunk = _module(layout), is_self_join
        how = layout, one_chunk, distance, labels, kept
        if rows is None or isinstance(module, sinks.RangedPairs):
            return _pairs([(q, d, is_self_join, (0, 0))], rows, *how)
        (start, stop), end = rows, module.end(q, rows[1], layout)
        some = module.part(q, start, stop)
        if not is_self_join:
            return _pairs([(some, d, False, (start, 0))], None, *how)
        rest = module.part(q, stop, end)
        own = some, some, True, (start, start)
        return _pairs([own, (some, rest, False, (start, stop))], None, *how)

    def visit(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        visitor: Visitor,
        *,
        is_self_join: bool,
        rows: Rows | None = None,
    ) -> None:
        for one, other, within in comparisons(
            _module(layout), q, d, layout, is_self_join, rows
        ):
            self._visit(one, other, layout, visitor, within)

    def _visit(
        self, q: Index, d: Index, layout: Layout, visitor: Visitor, is_self_join: bool
    ) -> None:
        places = sinks.places_of(q, d)
        if not all(len(some) > SWEEP_LANES for some in places):
            return
        if isinstance(layout, GatedLayout):
            gated.method_of(layout).show(
                *(q, d, layout, is_self_join),
                lambda left, right, totals: visitor(
                    q["order"][left], d["order"][right], totals
                ),
            )
            return
        y = [_module(layout).points(s) for s in (q, d)]

        def show(left: np.ndarray, right: np.ndarray) -> None:
            totals = np.empty(len(left))
            finish.measure(*y, left, right, kind_of(layout.norm), totals)
            visitor(q["order"][left], d["order"][right], totals)

        _module(layout).pairs(
            q, d, layout, is_self_join, places, sinks.CallbackSink(show), False
        )

    def totals_from(
        self, d: Index, layout: Layout, places: np.ndarray, n: int
    ) -> np.ndarray:
        """Return the totals (places, n) of the rows at some places to all `n` rows, and
        infinity for a row and itself. Columns are places, too.
        """
        totals = np.empty((len(places), n))
        y = _module(layout).points(d)
        optics.totals_from(y, places, kind_of(layout.norm), totals)
        return totals

    def connect(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        parent: np.ndarray,
        taking: tuple[np.ndarray, np.ndarray],
        offset: int,
        *,
        is_self_join: bool,
        rows: Rows | None = None,
    ) -> None:
        module, shared = _module(layout), parent.dtype == np.int32
        for one, other, within in comparisons(
            module, q, d, layout, is_self_join, rows, shared
        ):
            if len(one["order"]) > SWEEP_LANES and len(other["order"]) > SWEEP_LANES:
                spanning.connect(
                    module,
                    one,
                    other,
                    layout,
                    parent,
                    taking,
                    offset,
                    within,
                )

    def link(self, parent: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
        components.link_nodes(parent, left, right)

    def roots(self, parent: np.ndarray, threads: int = 1) -> None:
        if threads == 1 or parent.dtype != np.int32:
            components.roots(parent)
            return
        shared_out(
            lambda start, stop: components.roots_of(parent, start, stop),
            len(parent),
            threads,
        )

    def numbers(
        self,
        parent: np.ndarray,
        rows: tuple[np.ndarray, np.ndarray] | None = None,
        threads: int = 1,
    ) -> np.ndarray:
        if rows is not None:
            return spanning.numbers(parent, *rows, threads)
        first = parent == np.arange(len(parent), dtype=parent.dtype)
        return np.cumsum(first, dtype=np.int64)[parent] - 1

    def least_rows(
        self, parent: np.ndarray, order: np.ndarray, threads: int = 1
    ) -> np.ndarray:
        return spanning.least_rows(parent, order, threads)

    def foresee(
        self,
        layout: Layout,
        *,
        shown: bool = False,
        counted: bool = False,
        connected: bool = False,
    ) -> None:
        """Do nothing: Numba compiles one function at a time, so an early start would
        not help.
        """

    def ranged(self, layout: Layout) -> Ranged | None:
        module = _module(layout)
        return module if isinstance(module, Ranged) else None

    def lowest(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        labels: tuple[np.ndarray, np.ndarray],
        low: tuple[np.ndarray, np.ndarray],
        *,
        is_self_join: bool,
        rows: Rows | None = None,
    ) -> None:
        module = _module(layout)
        if rows is not None and is_self_join and isinstance(module, Ranged):
            spanning.lowest(module, q, d, layout, labels, low, True, rows)
            return
        for one, other, within in comparisons(
            module, q, d, layout, is_self_join, rows, True
        ):
            if len(one["order"]) > SWEEP_LANES and len(other["order"]) > SWEEP_LANES:
                spanning.lowest(module, one, other, layout, labels, low, within)

    def counts(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        *,
        is_self_join: bool,
        enough: int | None = None,
        rows: Rows | None = None,
    ) -> list[np.ndarray]:
        module, sides = _module(layout), (q,) if is_self_join else (q, d)
        if rows is None:
            found = _counts(module, q, d, layout, is_self_join, enough)
            return [
                _by_position(side, count)
                for side, count in zip(sides, found, strict=True)
            ]
        by_position = [np.zeros(len(order), np.int64) for order in _orders(*sides)]
        # these methods can count only the neighbors of the places `rows`, in one call.
        # Some then find each pair from both sides, which is faster only if they may
        # stop early
        if (
            is_self_join
            and isinstance(module, Ranged)
            and (module.one_sided or enough is not None)
        ):
            some = slice(*rows)
            count = np.zeros(len(q["order"]), np.int64)
            if rows[1] > rows[0]:
                module.counts_of(q, layout, rows, count, enough)
            if isinstance(rows_of_places(q), slice):
                return [count[: len(by_position[0])]]
            by_position[0][q["order"][some]] = count[some]
            return by_position
        for one, other, within in comparisons(module, q, d, layout, is_self_join, rows):
            found = _counts(module, one, other, layout, within, enough)
            for k, (order, count) in enumerate(
                zip(_orders(one, other), found, strict=False)
            ):
                by_position[0 if is_self_join else k][order] += count[: len(order)]
        return by_position

    def weights(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        *,
        is_self_join: bool,
        enough: int | None = None,
        rows: Rows | None = None,
    ) -> np.ndarray:
        module = _module(layout)
        start, stop = rows or (0, len(q["order"]) - SWEEP_LANES)
        pairs = np.zeros(stop - start, np.int64)
        if isinstance(module, Ranged):
            if stop > start and len(d["order"]) > SWEEP_LANES:
                how = q, d, layout, (start, stop), pairs
                module.weights_of(*how, is_self_join=is_self_join, enough=enough)
            return pairs
        for one, other, within in comparisons(module, q, d, layout, is_self_join, rows):
            # `both` separates the counts at earlier places, which are the result, from
            # those at later places
            pairs += _counts(module, one, other, layout, within, both=True)[0][
                : len(pairs)
            ]
        return pairs

    def tally(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        limits: np.ndarray,
        *,
        is_self_join: bool,
        by_row: bool,
        rows: Rows | None = None,
    ) -> list[np.ndarray]:
        module = _module(layout)
        sizes = (
            [len(some) for some in _orders(*((q,) if is_self_join else (q, d)))]
            if by_row
            else [1]
        )
        found = [np.zeros((n, len(limits)), np.int64) for n in sizes]
        if not isinstance(module, sinks.Tallying) or not module.tallies(
            q, d, layout, limits
        ):

            def add(left: np.ndarray, right: np.ndarray, totals: np.ndarray) -> None:
                finish.tally(left, right, totals, limits, by_row, found[0], found[-1])

            self.visit(q, d, layout, add, is_self_join=is_self_join, rows=rows)
            return [np.cumsum(numbers, axis=1) for numbers in found]
        for one, other, within in comparisons(module, q, d, layout, is_self_join, rows):
            sides = (one,) if within or not by_row else (one, other)
            some = [
                np.zeros((len(order) if by_row else 1, len(limits)), np.int64)
                for order in _orders(*sides)
            ]
            if all(len(order) for order in _orders(one, other)):
                module.tally(
                    one, other, layout, limits, within, by_row, some[0], some[-1]
                )
            for k, (order, numbers) in enumerate(
                zip(_orders(*sides), some, strict=True)
            ):
                found[0 if is_self_join else k][order if by_row else slice(None)] += (
                    numbers
                )
        return found

    def work(
        self, q: Index, d: Index, layout: Layout, *, is_self_join: bool
    ) -> np.ndarray:
        settings = layout.method, layout.threshold, layout.norm, is_self_join
        return WORK.find(
            q,
            d,
            settings,
            lambda: _module(layout).work(q, d, layout, is_self_join),
        )

    def regions(
        self,
        x: np.ndarray,
        regions: Regions,
        reach: float,
        threshold: float,
        norm: Norm = 2,
        *,
        everywhere: bool = False,
        mutual: bool = False,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        own = np.empty(len(x), np.int64)
        tree, walls = RegionTree(*regions.arrays), Walls(*regions.walls)
        capacity, work = (
            len(x) * (1 + everywhere) // 4 + 64,
            scratch(len(regions.arrays[0])),
        )
        while True:
            rows, needing = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
            n = find_regions(
                x,
                tree,
                regions.depth,
                walls,
                everywhere,
                mutual,
                reach,
                threshold,
                kind_of(norm),
                own,
                Needed(rows, needing),
                work,
            )
            if n <= capacity:
                return own, rows[:n], needing[:n]
            capacity = n


JOINER = CpuJoiner()


def _module(layout: Layout) -> sinks.CpuMethod:
    if isinstance(layout, GatedLayout):
        return gated.method_of(layout)
    method: sinks.CpuMethod = method_module(layout.method, HOME)
    return method


Comparison = tuple[Index, Index, bool, Rows]
"""Two indexes, or parts of indexes; whether they are the same; and for each, the place
of its first row in the whole index.
"""


def _pairs(
    comparisons: list[Comparison],
    rows: Rows | None,
    layout: Layout,
    one_chunk: bool,
    distance: Measured | None,
    labels: tuple[np.ndarray, np.ndarray] | None,
    kept: Kept | None,
) -> Pairs:
    """Return the pairs of some comparisons.

    `rows`: only pairs of these places of the first index, for methods that take them.
    `one_chunk`: all indexes are from the same chunk, so the smaller position of a pair
    is on the left. `labels`, `kept`: see `Joiner.pairs`.
    """
    module = _module(layout)
    named, capacity = [_names(one, labels) for one in comparisons], 0
    for q, d, *_ in comparisons:
        if all(len(s["order"]) > SWEEP_LANES for s in (q, d)):
            queries = rows[1] - rows[0] if rows else len(q["order"])
            most = max(queries, 0 if rows else len(d["order"]))
            capacity = max(capacity, min(CAPACITY_PER_POINT * most, MAX_CAPACITY))
    capacity += cpu_tiles.TILE**2
    kinds = {side.dtype for names in named for side in names}
    kind = named[0][0].dtype if kinds < WRITTEN else None
    sink: sinks.NamedPairs | sinks.LabelColumns
    if labels is None and distance is None:
        sink = sinks.NamedPairs(capacity, np.int32)
    elif kind is not None and not any(kept or ()) and module.writes_names:
        sink = sinks.NamedPairs(capacity // 2, kind, distance)
    else:  # the kernel writes places, and the sink looks up their labels and values
        sink = sinks.LabelColumns(
            capacity // 2,
            [side.dtype for side in named[0]],
            is_self_join=one_chunk,
            distance=distance,
            norm=kind_of(layout.norm),
            kept=kept or ((), ()),
            with_totals=isinstance(layout, GatedLayout),
        )
    decided = refused = 0
    for (q, d, is_self_join, firsts), names in zip(comparisons, named, strict=True):
        if isinstance(sink, sinks.LabelColumns):
            measured = distance is not None
            sides = [
                (module.points(s) if measured else NO_POINTS, s["order"], label)
                for s, label in zip((q, d), names, strict=True)
            ]
            sink.compare(sides, firsts)
            names = PLACES.find(q, d, None, functools.partial(sinks.places_of, q, d))
        if any(len(s["order"]) <= SWEEP_LANES for s in (q, d)):
            continue
        # with `LabelColumns` the kernel need not put the smaller position on the left:
        # the sink does it
        orient = one_chunk and not isinstance(sink, sinks.LabelColumns)
        how = q, d, layout, is_self_join, names, sink, orient
        if rows is not None and isinstance(module, sinks.RangedPairs):
            found = module.pairs_of(*how, rows)
        else:
            found = module.pairs(*how)
        decided, refused = decided + found[0], refused + found[1]
    left, right, *more = sink.take_columns()
    away = more.pop(0) if distance is not None else None
    # kernels need not put the smaller position of two parts on the left
    if one_chunk and len(comparisons) > 1 and labels is None and distance is None:
        left, right = np.minimum(left, right), np.maximum(left, right)
    return Pairs(left, right, away, decided, refused, more)


def _names(
    comparison: Comparison, labels: tuple[np.ndarray, np.ndarray] | None
) -> list[np.ndarray]:
    """Return what a kernel writes for the rows of two indexes: labels or positions."""
    *sides, _, firsts = comparison
    if labels is None:
        return [side["order"] for side in sides]
    return [
        label[first : first + max(0, len(side["order"]) - SWEEP_LANES)]
        for side, label, first in zip(sides, labels, firsts, strict=True)
    ]


def _counts(
    module: sinks.CpuMethod,
    q: Index,
    d: Index,
    layout: Layout,
    is_self_join: bool,
    enough: int | None = None,
    both: bool = False,
) -> list[np.ndarray]:
    """Return the number of pairs of each row, in index order, as one array for each
    index.

    In a self-join, return one array. `both`: return two arrays also in a self-join. The
    first one then counts each pair at the earlier of its places, and the second one at
    the later.
    """
    counts = [
        np.zeros(len(s["order"]), np.int64)
        for s in ((q,) if is_self_join and not both else (q, d))
    ]
    if all(len(side["order"]) > SWEEP_LANES for side in (q, d)):
        module.counts(q, d, layout, is_self_join, counts[0], counts[-1], enough)
    return counts


def _by_position(side: Index, count: np.ndarray) -> np.ndarray:
    """Reorder values from index order to the order of positions."""
    n = len(count) - SWEEP_LANES
    if isinstance(rows_of_places(side), slice):
        return count[:n]
    out = np.empty(n, np.int64)
    finish.scatter(side["order"], count[:n], out)
    return out


def _orders(*sides: Index) -> list[np.ndarray]:
    """Return the positions of each index's rows, in index order."""
    return [side["order"][: len(side["order"]) - SWEEP_LANES] for side in sides]


class CpuProfiler:
    """See `Profiler`."""

    def profile(self, x: np.ndarray, layout: Layout) -> Counters:
        module: sinks.CpuMethod = _module(layout)
        if not len(x):
            return Counters({"pairs": 0.0}, {})
        # a first join of few points compiles or loads the kernels, and is not timed
        self._run(module, x[:100], layout)
        numbers, seconds, index = self._run(module, x, layout)
        numbers |= module.layout_stats(index, layout)
        return Counters(numbers | compared_ratio(numbers, len(x)), seconds)

    def _run(
        self, module: sinks.CpuMethod, x: np.ndarray, layout: Layout
    ) -> tuple[Numbers, dict[str, float], Index]:
        """Join the points with themselves once; return counters, seconds by step, and
        the index.
        """
        found = np.zeros(1, np.int64)

        def add(left: np.ndarray, right: np.ndarray) -> None:
            found[0] += len(left)

        begin = time.perf_counter()
        index = module.build(x, layout)
        built = time.perf_counter()
        decided, refused = module.pairs(
            index,
            index,
            layout,
            True,
            sinks.places_of(index, index),
            sinks.CallbackSink(add),
            False,
        )
        seconds = {"index": built - begin, "join": time.perf_counter() - built}
        numbers: Numbers = {
            "decided": decided,
            "refused": refused,
            "pairs": int(found[0]),
        }
        numbers["selectivity"] = 2 * numbers["pairs"] / len(x)
        return numbers, seconds, index


PROFILER = CpuProfiler()
