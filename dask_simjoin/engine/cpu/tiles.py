"""Method "tiles": find pairs by comparing tiles of points whose boxes are near. See
`CpuMethod`.

There are two ways to count pairs for several thresholds. One makes a pass for each
threshold. The other makes one pass, and compares each pair that it finds with all
thresholds. If rows have many neighbors, the boxes of two tiles often show that all
their points are near. Then the first way is faster.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.catalog import Tiles
from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.cpu.boxes import box_tree
from dask_simjoin.engine.cpu.kernels import marks, pack, reductions
from dask_simjoin.engine.cpu.kernels import totals as finish
from dask_simjoin.engine.cpu.kernels.product_simd import WAYS
from dask_simjoin.engine.cpu.kernels.scan import terms_of
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.tiles import record_pairs, write_pairs
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.order import by_row, kd_order
from dask_simjoin.engine.cpu.sinks import (
    CallbackSink,
    Sides,
    Sink,
    fill,
    places_of,
)
from dask_simjoin.engine.filters.quantization import STEP, Filter, Int8Filter
from dask_simjoin.engine.index.cpu_tiles import (
    CUTS,
    FAN_OUT,
    TILE,
    TilesLayout,
    aligned,
    aligned_empty,
    aligned_index,
    make_tiles_layout,
)
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.process import numbers_apart, shared_out
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Index, Norm, box_gap

writes_names = False


def layout(
    options: Tiles,
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm,
    sample: JoinSample | None = None,
) -> TilesLayout:
    return make_tiles_layout(lower, upper, mean, variance, threshold, norm, sample)


def points(index: Index) -> np.ndarray:
    return index["y"]


def filtered_tiles(
    x: np.ndarray,
    order: np.ndarray,
    dims: np.ndarray,
    f: Filter,
    sure: float,
    threads: int,
) -> Index:
    """Return the tiles of points (n, d), C-contiguous, with the terms of the float32
    filter: see `FilterScan`.

    `sure`: the part of the bounds for sure pairs that is the same for all points: see
    `Filter.sure`.
    """
    (n, d), number, kind = x.shape, -(-len(x) // TILE), np.float32
    found: Index = {
        "y": np.empty((n, d)),
        "z": aligned_empty((number, len(dims), TILE), kind),
        "low": np.empty((number, len(dims)), kind),
        "high": np.empty((number, len(dims)), kind),
        "start": aligned_empty((number, TILE), kind),
        "limit": np.empty(n, kind),
        "sure": np.empty(n, kind),
        "tile_sure": np.empty(number, kind),
    }
    by_point, by_tile = (
        ("y", "limit", "sure"),
        ("z", "start", "tile_sure", "low", "high"),
    )

    terms = pack.FilterTerms(np.array(f.centre), f.scale, f.kappa, f.eps2, sure)

    def pack_some(a: int, b: int) -> float:
        tiles, points = slice(a // TILE, -(-b // TILE)), slice(a, b)
        y, limit, own_sure = (found[name][points] for name in by_point)
        z, start, tile_sure, low, high = (found[name][tiles] for name in by_tile)
        out = pack.FilterTiles(y, z, start, limit, own_sure, tile_sure, low, high)
        largest: float = pack.pack_filter(
            x, order[points], dims, terms, out, np.empty(TILE)
        )
        return largest

    return found | {
        "norm": max(shared_out(pack_some, n, threads, TILE, numbers_apart(d)))
    }


def build(x: np.ndarray, layout: TilesLayout, threads: int = 1) -> Index:
    n, d = x.shape
    x = by_row(x, threads)  # because this is how points are gathered
    order = kd_order(x, layout.cut.first(n, TILE, CUTS), TILE, FAN_OUT, threads)
    dims = np.arange(d) if layout.screen is None else np.array(layout.screen.dims)
    if layout.filter is None:
        number, kind, rounded = -(-n // TILE), layout.kind, layout.rounded
        y, z = np.empty((n, d)), aligned_empty((number, len(dims), TILE), kind)
        low, high = (
            np.empty((number, len(dims)), kind),
            np.empty((number, len(dims)), kind),
        )
        index: Index = {"y": y, "z": z, "low": low, "high": high}
        centre, scale = (
            (np.zeros(d), 1.0)
            if rounded is None
            else (np.array(rounded.centre), rounded.scale)
        )

        def pack_some(a: int, b: int) -> None:
            some = slice(a // TILE, -(-b // TILE))
            pack.pack_exact(
                x,
                order[a:b],
                dims,
                centre,
                scale,
                y[a:b],
                z[some],
                low[some],
                high[some],
            )

        shared_out(pack_some, n, threads, TILE, numbers_apart(d))
    else:
        index = filtered_tiles(x, order, dims, layout.filter, layout.sure, threads)
        if layout.quantized is not None and WAYS:
            index |= _quantized(index["y"], layout.quantized, WAYS[0], threads)
    if n:
        lower, upper, levels = box_tree(index["low"], index["high"])
        index |= {"lower": lower, "upper": upper, "levels": levels}
    places = np.zeros(n + SWEEP_LANES, np.int32)
    places[:n] = order
    index["order"] = places
    return index


def _quantized(y: np.ndarray, c: Int8Filter, way: str, threads: int) -> Index:
    n, d = y.shape
    tile, steps = -(-n // TILE), -(-d // STEP)
    numbers, kind = ((1,), np.int32) if way == "longs" else ((2,), np.int16)
    found = {
        "queries": np.zeros((n, steps, STEP), np.int8),
        "tiles": aligned_empty((tile, steps, TILE, STEP), np.uint8),
        "take": np.zeros((n, *numbers), kind),
        "first": aligned_empty((tile, TILE, *numbers), kind),
        "marked": np.zeros(tile, np.uint64),
    }
    found["tiles"][...] = 128
    found["first"][...] = 0

    def pack_some(a: int, b: int) -> None:
        rows, tiles = slice(a, b), slice(a // TILE, -(-b // TILE))
        out = (
            found[name][rows if name in ("queries", "take") else tiles]
            for name in found
        )
        pack.pack_quantized(
            y[rows],
            np.array(c.centre),
            c.scale,
            c.outer,
            c.max_x,
            c.bias,
            *out,
            np.empty((3, 2)),
        )

    shared_out(pack_some, n, threads, TILE, numbers_apart(d))
    return found


def part(index: Index, start: int, stop: int) -> Index:
    """Return the index of the points at places start ... stop-1; `start` is the first
    place of a tile.
    """
    some, tile = slice(start, stop), slice(start // TILE, -(-stop // TILE))
    found: Index = {
        name: index[name][tile]
        for name in (
            "z",
            "low",
            "high",
            "start",
            "tile_sure",
            "tiles",
            "first",
            "marked",
        )
        if name in index
    }
    found |= {
        name: index[name][some]
        for name in ("y", "limit", "sure", "queries", "take")
        if name in index
    }
    if "norm" in index:
        found["norm"] = index["norm"]
    if stop > start:
        lower, upper, levels = box_tree(found["low"], found["high"])
        found |= {"lower": lower, "upper": upper, "levels": levels}
    found["order"] = index["order"][start : stop + SWEEP_LANES]
    return found


MAX_NEXT, POINTS_PER_NEXT = 32, 32
"""If counts need to be exact only up to `enough`, each tile is first compared with some
tiles after it.

Their number is `enough` / `POINTS_PER_NEXT`, but at most `MAX_NEXT`.
"""

_NONE, _NO_NODES = np.empty(0, np.int64), np.empty(0, np.int32)


def _tile_join(
    q: Index,
    d: Index,
    layout: TilesLayout,
    is_self_join: bool,
    names: list[np.ndarray],
    scratch: tuple[np.ndarray, ...],
) -> marks.TileJoin:
    """Return what the kernels need; it is valid as long as all arrays exist."""
    q_terms, d_terms, swept = terms_of(q, d, layout)
    return marks.TileJoin(
        q_terms,
        marks.points_of(q, names[0], swept),
        d_terms,
        marks.points_of(d, names[1], swept),
        marks.boxes_of(d),
        layout.box_reach(q, d),
        layout.box_sure(q, d),
        layout.threshold,
        kind_of(layout.norm),
        is_self_join,
        marks.Scratch(*(each.ctypes.data for each in scratch)),
    )


def _align(q: Index, d: Index) -> tuple[Index, Index]:
    """Align the vectors of both indexes in memory: see `aligned_index`."""
    fixed = aligned_index(d)
    return (fixed if q is d else q | {"z": aligned(q["z"])}), fixed


def pairs(
    q: Index,
    d: Index,
    layout: TilesLayout,
    is_self_join: bool,
    names: list[np.ndarray],
    sink: Sink,
    orient_by_position: bool,
) -> tuple[int, int]:
    rows = 0, len(q["y"])
    return pairs_of(q, d, layout, is_self_join, names, sink, orient_by_position, rows)


def pairs_of(
    q: Index,
    d: Index,
    layout: TilesLayout,
    is_self_join: bool,
    names: list[np.ndarray],
    sink: Sink,
    orient_by_position: bool,
    rows: Rows,
) -> tuple[int, int]:
    q, d = _align(q, d)
    # an empty range may begin within the last tile
    first, stop = rows[0] // TILE, -(-rows[1] // TILE) if rows[1] > rows[0] else 0
    state = marks.new_state(first, stop)
    scratch = marks.scratch(len(d["low"]))
    join = _tile_join(q, d, layout, is_self_join, names, scratch)

    def write() -> tuple[int, int]:
        out = marks.Out(sink.left.ctypes.data, sink.right.ctypes.data, sink.capacity)
        n = write_pairs(join, out, state.ctypes.data)
        return n, int(state[2])

    fill(sink, write)
    return int(state[3]), int(state[4])


def layout_stats(index: Index, layout: TilesLayout) -> Numbers:
    """Count a self-join's pairs of near tiles, pairs of a query and a near tile, and
    candidates.
    """
    counters = np.zeros(3, np.int64)
    boxes = index["low"], index["high"], index["z"]
    most = np.float64(layout.box_reach(index, index))
    reductions.count_tiles(
        *boxes, len(index["y"]), most, kind_of(layout.norm), counters
    )
    tile_pairs, queries, candidates = counters.tolist()
    return {"tile_pairs": tile_pairs, "near_queries": queries, "candidates": candidates}


def _note(
    q: Index,
    d: Index,
    layout: TilesLayout,
    is_self_join: bool,
    task: int,
    values: Sides,
    *,
    low: np.ndarray = _NONE,
    parent: np.ndarray = _NO_NODES,
    enough: int = marks.ENDLESS,
    rows: Rows | None = None,
    marked: np.ndarray | None = None,
) -> np.ndarray:
    """Run a task of `kernels.marks` on all pairs without writing the pairs; return the
    field `more` of the notes.

    `values`: see `kernels.marks`. `rows`: search only from the queries at these places.
    In a self-join, only the values of these queries change. `marked`: the marks of the
    tiles of data, if they are known.
    """
    assert (
        all(each.dtype == np.int64 for each in (*values, low))
        and parent.dtype == np.int32
    )
    q, d = _align(q, d)
    tiles = len(d["z"])
    d_marks = np.zeros(tiles + len(d["lower"]), np.int64)
    if marked is not None:
        d_marks[:tiles] = marked
    q_marks = (
        d_marks
        if task == marks.LINK and is_self_join
        else np.zeros(len(q["z"]), np.int64)
    )
    more = np.zeros(tiles + 1, np.int64)
    start, stop = rows or (0, len(q["y"]))
    first, last = start // TILE, -(-stop // TILE)
    own_round = last - first if is_self_join else 0
    # whether counts may stop at `enough`, so that a second pass is needed only for the
    # points below it
    may_stop = enough != marks.ENDLESS and is_self_join
    if is_self_join:  # tiles of other ranges are not marked by their points
        d_marks[:first] = d_marks[last:tiles] = 1
    notes = marks.Notes(
        task,
        enough,
        values[0].ctypes.data,
        values[1].ctypes.data,
        q_low=low.ctypes.data,
        d_low=0,
        q_marks=q_marks.ctypes.data,
        d_marks=d_marks.ctypes.data,
        parent=parent.ctypes.data,
        more=more.ctypes.data,
        first=first,
        stop=last,
        window=1 + min(MAX_NEXT, enough // POINTS_PER_NEXT) if may_stop else 1,
        turns=own_round if may_stop else own_round + last - first,
        both=marked is None,
        later=False,
    )
    _record(q, d, layout, is_self_join, notes)
    # if most queries have enough pairs, the few others search, and each pair counts
    # only for the query
    if may_stop:
        left = np.count_nonzero(values[0][start:stop] < enough)
        both = bool(2 * left > stop - start)
        if not both:
            d_marks[:] = 1
        notes = notes._replace(turns=own_round + last - first, both=both)
        _record(q, d, layout, is_self_join, notes, own_round)
    return more


def counts(
    q: Index,
    d: Index,
    layout: TilesLayout,
    is_self_join: bool,
    q_counts: np.ndarray,
    d_counts: np.ndarray,
    enough: int | None = None,
) -> None:
    _count(q, d, layout, is_self_join, q_counts, d_counts, enough)


def _count(
    q: Index,
    d: Index,
    layout: TilesLayout,
    is_self_join: bool,
    q_counts: np.ndarray,
    d_counts: np.ndarray,
    enough: int | None,
    rows: Rows | None = None,
) -> None:
    """Count as `CpuMethod.counts` does, or as `Ranged.counts_of` does if `rows` are
    given.
    """
    most = marks.ENDLESS if enough is None else enough
    more = _note(
        q,
        d,
        layout,
        is_self_join,
        marks.COUNT,
        (q_counts, d_counts),
        enough=most,
        rows=rows,
    )
    start, stop = rows or (0, len(d["y"]))
    some = more[start // TILE : -(-stop // TILE)]
    d_counts[start:stop] += np.repeat(np.cumsum(some), TILE)[: stop - start]


one_sided = False


def weights_of(
    q: Index,
    d: Index,
    layout: TilesLayout,
    rows: Rows,
    found: np.ndarray,
    *,
    is_self_join: bool,
    enough: int | None = None,
) -> None:
    # one count for each place of whole tiles; the addresses begin at place 0
    first, last = rows[0] // TILE, -(-rows[1] // TILE)
    count = np.zeros((last - first) * TILE, np.int64)
    values = count.ctypes.data - first * TILE * count.itemsize
    marked = len(d["z"]) + len(d["lower"])
    q_marks = np.zeros(len(q["z"]), np.int64)
    d_marks = (np.zeros if is_self_join else np.ones)(marked, np.int64)
    notes = marks.Notes(
        marks.COUNT,
        marks.ENDLESS,
        values,
        values,
        q_low=0,
        d_low=0,
        q_marks=q_marks.ctypes.data,
        d_marks=d_marks.ctypes.data,
        parent=0,
        more=0,
        first=first,
        stop=last,
        window=1,
        turns=(last - first) * (1 + is_self_join),
        both=False,
        later=is_self_join,
    )
    _record(q, d, layout, is_self_join, notes)
    found += count[rows[0] - first * TILE :][: len(found)]


def counts_of(
    index: Index,
    layout: TilesLayout,
    rows: Rows,
    counts_: np.ndarray,
    enough: int | None = None,
) -> None:
    _count(index, index, layout, True, counts_, counts_, enough, rows)


def connect(
    q: Index,
    d: Index,
    layout: TilesLayout,
    is_self_join: bool,
    nodes: Sides,
    parent: np.ndarray,
) -> None:
    _note(q, d, layout, is_self_join, marks.LINK, nodes, parent=parent)


def lowest(
    q: Index,
    d: Index,
    layout: TilesLayout,
    is_self_join: bool,
    labels: Sides,
    low: Sides,
) -> None:
    _note(q, d, layout, False, marks.LOWEST, labels, low=low[0])
    if not is_self_join:
        _note(d, q, layout, False, marks.LOWEST, labels[::-1], low=low[1])


steps = 2


def shared_to_connect(index: Index, taking: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the node of each place, and the marks of all tiles and boxes."""
    boxes = len(index["z"]) + len(index["lower"])
    nodes = np.where(taking, np.arange(len(taking)), -1)
    return nodes, np.full(boxes, marks.MIXED, np.int64)


def connect_of(
    index: Index,
    layout: TilesLayout,
    rows: Rows,
    shared: tuple[np.ndarray, ...],
    parent: np.ndarray,
    step: int,
) -> None:
    """First connect the rows of each tile, then rows of different tiles.

    When most tiles are in one set, most comparisons of tiles can be left out.
    """
    nodes, marked = shared
    first, last = rows[0] // TILE, -(-rows[1] // TILE)
    notes = marks.Notes(
        marks.LINK,
        marks.ENDLESS,
        nodes.ctypes.data,
        nodes.ctypes.data,
        q_low=0,
        d_low=0,
        q_marks=marked.ctypes.data,
        d_marks=marked.ctypes.data,
        parent=parent.ctypes.data,
        more=0,
        first=first,
        stop=last,
        window=1,
        turns=(last - first) * (step + 1),
        both=True,
        later=False,
    )
    _record(index, index, layout, True, notes, (last - first) * step)


def _record(
    q: Index,
    d: Index,
    layout: TilesLayout,
    is_self_join: bool,
    notes: marks.Notes,
    turn: int = 0,
) -> None:
    """Do a task from one of its turns on."""
    q, d = _align(q, d)
    state, scratch = marks.new_state(turn), marks.scratch(len(d["low"]))
    names = [q["order"], d["order"]]
    join = _tile_join(q, d, layout, is_self_join, names, scratch)
    record_pairs(join, notes, state.ctypes.data)


def shared_to_label(labels: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the mark of each tile of data for `LOWEST`."""
    known = np.where(labels < 0, marks.ENDLESS, labels)
    starts = np.arange(0, len(known), TILE)
    return (np.minimum.reduceat(known, starts) if len(known) else known,)


def lowest_of(
    index: Index,
    layout: TilesLayout,
    rows: Rows,
    labels: np.ndarray,
    low: np.ndarray,
    shared: tuple[np.ndarray, ...],
) -> None:
    _note(
        index,
        index,
        layout,
        False,
        marks.LOWEST,
        (labels, labels),
        low=low,
        rows=rows,
        marked=shared[0],
    )


TALLY_NEIGHBORS = 24
"""If rows have more neighbors than this per limit on average, one pass per limit is
used.

It is then faster than one pass that finds each pair. The value was measured in 4 to 16
dimensions.
"""

QUANTIZED = ("queries", "tiles", "take", "first", "marked")
"""Arrays of the 8-bit filter. They are valid for one threshold only."""


def tallies(q: Index, d: Index, layout: TilesLayout, limits: np.ndarray) -> bool:
    if not len(q["z"]) or not len(d["z"]):
        return False
    rows = pairs = 0
    # a sample of 8 tiles shows how many neighbors a row has
    for tile in np.unique(np.linspace(0, len(q["z"]) - 1, 8).astype(np.int64)).tolist():
        some = part(q, tile * TILE, min((tile + 1) * TILE, len(q["y"])))
        found = np.zeros(len(some["y"]), np.int64)
        counts(some, d, layout, False, found, np.zeros(len(d["y"]), np.int64))
        rows, pairs = rows + len(found), pairs + int(found.sum())
    return pairs > TALLY_NEIGHBORS * len(limits) * rows


def tally(
    q: Index,
    d: Index,
    layout: TilesLayout,
    limits: np.ndarray,
    is_self_join: bool,
    by_row: bool,
    q_found: np.ndarray,
    d_found: np.ndarray,
) -> None:
    passes = [layout.narrowed(limit) for limit in limits.tolist()]
    norms = _norms(q) if layout.filter is not None else np.empty(0)
    # number of limits that are too small for the filter; limits ascend, so these come
    # first
    few = sum(each is None for each in passes)
    for k, each in enumerate(passes):
        if each is None:
            continue
        one = _narrowed(q, each, norms)
        other = one if is_self_join else d
        if k == few and few:
            _tally_few(
                one,
                other,
                each,
                limits[: few + 1],
                is_self_join,
                by_row,
                q_found,
                d_found,
            )
        found = np.zeros(len(q["y"]), np.int64)
        others = found if is_self_join and by_row else np.zeros(len(d["y"]), np.int64)
        counts(one, other, each, is_self_join, found, others)
        if by_row:
            q_found[:, k] += found
            if not is_self_join:
                d_found[:, k] += others
        else:
            q_found[0, k] += found.sum()


def _tally_few(
    q: Index,
    d: Index,
    layout: TilesLayout,
    limits: np.ndarray,
    is_self_join: bool,
    by_row: bool,
    q_found: np.ndarray,
    d_found: np.ndarray,
) -> None:
    """Count pairs for all limits except the last: find each pair within the last limit,
    and compare its total.

    One pass per limit is not possible here, because these limits are too small for the
    filter.
    """
    few = len(limits) - 1
    some = [
        np.zeros((len(found), len(limits)), np.int64)
        for found in (q_found, d_found)[: 2 - is_self_join]
    ]

    def add(left: np.ndarray, right: np.ndarray) -> None:
        totals = np.empty(len(left))
        finish.measure(q["y"], d["y"], left, right, kind_of(layout.norm), totals)
        finish.tally(left, right, totals, limits, by_row, some[0], some[-1])

    pairs(q, d, layout, is_self_join, places_of(q, d), CallbackSink(add), False)
    for found, numbers in zip((q_found, d_found), some, strict=False):
        found[:, :few] += np.cumsum(numbers, axis=1)[:, :few]


def _norms(index: Index) -> np.ndarray:
    """Return the squared norm of each point's filter vector, in index order (n,)."""
    z = index["z"]
    norms = np.zeros((len(z), TILE))
    for k in range(z.shape[1]):
        own = z[:, k].astype(np.float64)
        norms += own * own
    return norms.ravel()[: len(index["y"])]


def _narrowed(index: Index, layout: TilesLayout, norms: np.ndarray) -> Index:
    """Return the index with the filter's limits for a layout with a smaller threshold.

    The limits are the same as `kernels.pack.pack_filter` would compute. `norms`: see
    `_norms`. The bounds for sure pairs are not recomputed. This is safe: the old bounds
    are stricter than necessary.
    """
    if layout.filter is None:
        return index
    f = layout.filter
    found = {name: values for name, values in index.items() if name not in QUANTIZED}
    found["limit"] = -_above(-0.5 * (norms * (1 - f.kappa) - f.eps2))
    return found


def _above(values: np.ndarray) -> np.ndarray:
    """Round up to float32. Results exceed `values` by less than 2**-22 * abs(values) +
    2**-147.
    """
    return (values + np.abs(values) * 2.0**-23 + 2.0**-148).astype(np.float32)


MAX_SAMPLES, MANY_DIMS, MIN_SAMPLES = 128, 64, 16
"""To estimate work, at most `MAX_SAMPLES` tiles of queries are sampled, in up to
`MANY_DIMS` dimensions.

In more dimensions there are fewer samples, but at least `MIN_SAMPLES`, because the time
per sample is proportional to the number of dimensions. In 384 dimensions, `MAX_SAMPLES`
samples took more time than the estimate saved, because boxes exclude few tiles there.
"""


def work(q: Index, d: Index, layout: TilesLayout, is_self_join: bool) -> np.ndarray:
    """Estimate work: 1 for each near tile, plus 1/40 for each tile whose box must be
    tested.
    """
    number = len(q["low"])
    if not number or not len(d["low"]):
        return np.ones(1)
    samples = max(
        MIN_SAMPLES, MAX_SAMPLES * MANY_DIMS // max(MANY_DIMS, q["low"].shape[1])
    )
    some = np.unique(np.linspace(0, number - 1, samples).astype(np.int64))
    most = layout.box_reach(q, d)
    found = np.empty(len(some))
    for n, tile in enumerate(some.tolist()):
        first = tile if is_self_join else 0
        gap = box_gap(
            layout.norm,
            q["low"][tile],
            q["high"][tile],
            d["low"][first:],
            d["high"][first:],
        )
        found[n] = np.count_nonzero(gap <= most) + len(gap) / 40
    return found


def end(index: Index, stop: int, layout: TilesLayout) -> int:
    return len(index["y"])
