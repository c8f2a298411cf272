"""Choose and build tile indexes on GPUs, for joins and for nearest-neighbor searches.

Points lie in kd order, in tiles with boxes under a tree of boxes.  The unit of work is
a pair of tiles.  All tiles hold the same number of points, so the load is balanced.
Grids lack this property, because their cells have different numbers of points. The
successor of GPU-Join therefore sorts cells by workload (Gallet & Gowanlock 2019, "Load
imbalance mitigation optimizations for GPU-accelerated similarity joins"). The same code
runs with NumPy and CuPy; `xp` is either module.

Searches have no eps.  Each query has its own search distance, which shrinks as
neighbors are found.  So the filters' bounds are functions of this distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.filters import float16 as half
from dask_simjoin.engine.filters.bounds import Bounds, make_bounds
from dask_simjoin.engine.filters.float16 import TENSOR_DIMS
from dask_simjoin.engine.index.cpu_tiles import TILE, box_tree
from dask_simjoin.engine.index.kdtree import KdCuts, dims_to_cut, kd_order
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Norm

WARP = 32
"""Threads that a GPU runs in step."""

HOPPER_SHARED_BYTES = 227 * 1024
"""Bytes of shared memory that a block of threads can use on compute capability 9.0."""

ROW_DIMS = 6
"""In up to this many dimensions, searches on GPUs may have one thread per row: see
`spanning_rows.cu` and `nearest_rows.cu`.

In 2 to 6 dimensions, spanning trees of a million rows take 0.4 to 0.8 times as long as
with tiles. In 8 dimensions, they take 1.5 to 1.9 times as long.
"""

CUTS = 3
"""The kd order halves a dimension this many times before it cuts the next one.

Among 2, 3 and 4, this was fastest or second fastest in 6 to 64 dimensions.
"""


@dataclass(frozen=True)
class GpuChoice:
    """How GPUs compare the points of two tiles, before float64 decides the remaining
    candidates.
    """

    tile: int  # points per tile
    grain: int  # parts of the queries begin at multiples of this number of points
    compared: tuple[str, ...]  # names of the index arrays that the comparison reads
    tensor: bool = False  # whether the comparison runs on tensor cores
    # True if the comparison is a filter with error bounds; False if it is exact and
    # decides pairs itself
    filters: bool = True


ENGINES = {
    "float16": GpuChoice(
        half.TILE, 2 * half.TILE, ("vectors", "vectors_sure"), tensor=True
    ),
    "float32": GpuChoice(TILE, TILE, ("z",)),
    "float64": GpuChoice(TILE, TILE, ("z",), filters=False),
}
"""Name of an engine -> its comparison; the fastest comes first."""


@dataclass(frozen=True, kw_only=True)
class TilesOnDevice:
    """Index settings of one join or search on GPUs. All its chunks use them."""

    dims: int
    # {"float16", "float32", "float64"}: how candidates are compared, a key of `ENGINES`
    engine: str
    bounds: Bounds | None  # error bounds of the filter; None if the engine is exact
    cut: KdCuts  # dimensions whose cuts give the kd order
    norm: Norm = 2  # norm of the distances

    @property
    def method(self) -> str:
        return "tiles"

    @property
    def tile(self) -> int:
        return ENGINES[self.engine].tile

    @property
    def parts(self) -> tuple[int, int]:
        """Number of parts that a cut divides a block into, and maximum number of
        halvings per sort of a large block.

        In 16 dimensions, a join took 1.4 times as long with four halvings per sort as
        with two.
        """
        # this halves the time of sorting, and boxes do not become larger
        if self.dims <= 3:
            return 4, 4
        return 2, 2 if ENGINES[self.engine].tensor else 3

    @property
    def has_boxes(self) -> bool:
        """Whether an index has tiles, and a tree of their boxes."""
        return True

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        return f"tiles, in order of {names(self.cut.dims)}"


@dataclass(frozen=True, kw_only=True)
class DeviceLayout(TilesOnDevice):
    """Index settings of one join on GPUs."""

    threshold: float  # threshold of the float64 decision

    @property
    def grain(self) -> int:
        return ENGINES[self.engine].grain

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        return f"tiles on GPUs, in {self.engine}, in order of {names(self.cut.dims)}"


def make_device_layout(
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    engine: str = "auto",
    shared: int = HOPPER_SHARED_BYTES,
    norm: Norm = 2,
) -> DeviceLayout:
    """Choose the engine and the index settings of a join. All its chunks use them.

    `lower`, `upper`, `mean`, `variance` (d,): moments of all points.  `engine`: a key
    of `ENGINES`, or "auto" for the fastest engine whose filter pays.  A requested
    engine is replaced by "float64" if its error bounds do not hold, or if it needs too
    much shared memory.  `shared`: bytes of shared memory that a block of threads can
    have.  Filters support only norm 2.
    """
    dims = len(lower)
    bounds = make_bounds(lower, upper, mean, threshold) if norm == 2 else None
    tensor = half.program(dims, shared) is not None
    if engine == "auto":
        engine = _fastest(bounds, variance, dims, tensor)
    elif bounds is None or (engine == "float16" and not tensor):
        engine = "float64"
    return DeviceLayout(
        threshold=threshold,
        dims=dims,
        engine=engine,
        bounds=bounds if ENGINES[engine].filters else None,
        cut=dims_to_cut(variance),
        norm=norm,
    )


def _fastest(
    bounds: Bounds | None, variance: np.ndarray, dims: int, tensor: bool
) -> str:
    # a filter pays if its error is small: then few candidates pass that are not pairs
    if bounds is None or bounds.rho > bounds.outer / 4:
        return "float64"
    typical = math.sqrt(float(np.einsum("i->", variance * bounds.scale**2)))
    if dims > half.MAX_DIMS:
        pays = half.pays(dims, bounds.outer, typical)
    else:
        pays = dims >= TENSOR_DIMS and 2 * 2.0**-12 * typical <= bounds.outer / 16
    return "float16" if tensor and pays else "float32"


def rows_at(x: Array, places: Array) -> Array:
    return np.ascontiguousarray(x[places])


def boxed(y: Array, bounds: Bounds | None, tile: int, tiled: bool) -> Index:
    """Return the tree of boxes over the points `y` (n, d), float64.

    With `bounds`, points are first centered, scaled and rounded to float32, as the
    filter requires. With `tiled`, the result also has ``z``, the points by tile: see
    `build`.
    """
    n, d = y.shape
    z = y if bounds is None else bounds.scaled(y).astype(np.float32)
    number = -(-n // tile)
    padded = np.empty((number * tile, d), z.dtype)
    padded[:n], padded[n:] = z, z[-1]
    padded = padded.reshape(number, tile, d)
    index = dict(
        zip(
            ("lower", "upper", "levels"),
            box_tree(padded.min(axis=1), padded.max(axis=1)),
            strict=True,
        )
    )
    if tiled:
        index["z"] = np.ascontiguousarray(padded.transpose(0, 2, 1))
    return index


@dataclass(frozen=True)
class Builder:
    """The functions that build an index, on the host or on a GPU."""

    xp: ArrayModule  # NumPy or CuPy
    # `dask_simjoin.engine.index.kdtree.kd_order`, or an equivalent
    order: Callable[[Array, KdCuts, int, int, int], Array]
    rows: Callable[[Array, Array], Array]  # `rows_at`, or an equivalent
    # `boxed`, or an equivalent
    boxed: Callable[[Array, Bounds | None, int, bool], Index]
    # `dask_simjoin.engine.filters.float16.make_vectors` and `make_nearest_vectors`, or
    # equivalents
    vectors: Callable[[Array, Bounds], Index]
    nearest_vectors: Callable[[Array, Bounds], Index]


HOST = Builder(
    np, kd_order, rows_at, boxed, half.make_vectors, half.make_nearest_vectors
)
"""Functions that build the same index with NumPy, for tests without a GPU."""


def build(x: Array, layout: DeviceLayout, builder: Builder = HOST) -> Index:
    """Return the index of a chunk with the points `x` (n, d), float64, for joins.

    ``order`` (n,), int32: positions of the points in `x`, in kd order.  ``y`` (n, d),
    float64: the points in that order.  ``lower``, ``upper`` and ``levels``: the tree of
    boxes over the tiles.  Kernels compare ``z`` (tiles, d, 64), float32 or float64, or
    ``vectors`` and ``vectors_sure`` (see
    `dask_simjoin.engine.filters.float16.make_vectors`).
    """
    index = begin(x, layout, builder)
    if len(x) and ENGINES[layout.engine].tensor and layout.bounds is not None:
        index |= builder.vectors(index["y"], layout.bounds)
    return index


def begin(x: Array, layout: TilesOnDevice, builder: Builder) -> Index:
    """Build the parts that indexes for joins and for searches share: order, points and
    boxes.
    """
    xp, tile = builder.xp, layout.tile
    order = builder.order(x, layout.cut.first(len(x), tile, CUTS), tile, *layout.parts)
    y = builder.rows(x, order)
    index = {"order": order.astype(xp.int32, copy=False), "y": y}
    if not len(x) or not layout.has_boxes:
        return index
    return index | builder.boxed(
        y, layout.bounds, tile, not ENGINES[layout.engine].tensor
    )


CLEAR = {"float16": 16.0, "float32": 4.0}
"""Filter -> minimum ratio of the typical distance of nearest neighbors to the filter's
error.

With a smaller ratio the filter is not used, because too many candidates would pass it.
"""


@dataclass(frozen=True, kw_only=True)
class NearestDeviceLayout(TilesOnDevice):
    """Index settings of one nearest-neighbor search on GPUs.

    Searches use only center, scale and rho from `bounds`. After scaling, no squared
    distance between points exceeds 2**15.
    """

    @property
    def has_boxes(self) -> bool:
        return self.dims > ROW_DIMS


def make_nearest_device_layout(
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    sample: np.ndarray | None = None,
    engine: str = "auto",
    shared: int = HOPPER_SHARED_BYTES,
    norm: Norm = 2,
) -> NearestDeviceLayout:
    """Choose the engine and the index settings of a search. All its chunks use them.

    The choice affects speed, but not results.  `lower`, `upper` (d,): a box that holds
    all queries and all data points.  `mean`, `variance` (d,): approximate moments of
    all points.  `sample` (m, d): points to check whether a filter pays; without a
    sample, it is assumed to pay.  For `engine`, `shared` and `norm` see
    `make_device_layout`; a requested engine is replaced by a slower one.
    """
    dims = len(lower)
    bounds = _bounds(lower, upper, mean) if norm == 2 else None
    tensor = dims <= half.MAX_DIMS and half.shared_in_search(dims) <= shared
    if bounds is None:
        engine = "float64"
    elif engine == "auto" and dims < 5:
        engine = "float64"  # alone, it is as fast as with a filter
    elif engine == "auto":
        blur = _relative_errors(bounds, sample)
        if tensor and dims >= TENSOR_DIMS and blur["float16"] * CLEAR["float16"] <= 1:
            engine = "float16"
        elif blur["float32"] * CLEAR["float32"] <= 1:
            engine = "float32"
        else:
            engine = "float64"
    elif engine == "float16" and not tensor:
        engine = "float32"
    return NearestDeviceLayout(
        dims=dims,
        engine=engine,
        bounds=bounds if ENGINES[engine].filters else None,
        cut=dims_to_cut(variance, sample),
        norm=norm,
    )


def _bounds(lower: np.ndarray, upper: np.ndarray, mean: np.ndarray) -> Bounds | None:
    """Return bounds with a scale that brings all points within 2**6.5 of the center."""
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.maximum(upper - mean, mean - lower) * (1 + 2.0**-50)
        # an `eps2` of twice the largest squared norm leaves half of the scaled range to
        # squared norms
        return make_bounds(
            lower,
            upper,
            mean,
            2 * float(np.einsum("i,i->", most, most)) * (1 + 2.0**-40),
        )


def _relative_errors(bounds: Bounds, sample: np.ndarray | None) -> dict[str, float]:
    """For each filter, return the error of a distance, divided by a typical
    nearest-neighbor distance.
    """
    # 512 points show how a filter's error compares with distances of neighbors
    some = (
        np.zeros((0, 1)) if sample is None else sample[:: -(-len(sample) // 512) or 1]
    )
    if len(some) < 2:
        return {"float16": 0.0, "float32": 0.0}
    a = (some.astype(np.float64) - np.array(bounds.centre)) * bounds.scale
    norm = np.einsum("ik,ik->i", a, a)
    squared = norm[:, None] + norm[None, :] - 2 * (a @ a.T)
    np.fill_diagonal(squared, np.inf)
    near = float(np.median(np.sqrt(np.maximum(squared.min(axis=1), 0.0))))
    # below this limit, `near` is mostly the rounding error of `squared` and of the
    # vectors' last numbers
    if not near > 2.0**-20:
        return {"float16": np.inf, "float32": np.inf}
    norm, rounded = float(np.median(norm)), 3 * half.width(a.shape[1]) * 2.0**-23
    # 2.0**-12: about the relative rounding error of float16
    vectors, sums = 2 * 2.0**-12 * np.sqrt(norm) / near, 2 * rounded * norm / near**2
    return {"float16": max(vectors, sums), "float32": bounds.rho / near}


def build_nearest(
    x: Array, layout: NearestDeviceLayout, builder: Builder = HOST
) -> Index:
    """Return the index of a chunk for nearest-neighbor searches.

    ``order``, ``y``, ``lower``, ``upper``, ``levels`` and ``z`` are as in `build`.
    With tensor cores there is no ``z``, but ``vectors``, ``norm``, ``error`` and
    ``most_error``: see `dask_simjoin.engine.filters.float16.make_nearest_vectors`. In
    up to `ROW_DIMS` dimensions there are only ``order`` and ``y``.
    """
    index = begin(x, layout, builder)
    return index | _vectors(index["y"], layout, builder) if layout.has_boxes else index


def _vectors(y: Array, layout: NearestDeviceLayout, builder: Builder) -> Index:
    if not (len(y) and ENGINES[layout.engine].tensor and layout.bounds is not None):
        return {}
    return builder.nearest_vectors(y, layout.bounds)


def with_tiles(index: Index, layout: NearestDeviceLayout, builder: Builder) -> Index:
    """Return an index with ids that can be searched by tiles. In few dimensions, their
    boxes are built here, and stored in `index` for further searches.
    """
    if "lower" in index:
        return index
    if "tiled" not in index:
        y, tiled = index["y"], not ENGINES[layout.engine].tensor
        boxes = builder.boxed(y, layout.bounds, layout.tile, tiled)
        found = index | boxes | _vectors(y, layout, builder)
        found["least"] = _least_names(index["names"], builder.xp)
        index["tiled"] = found
    tiles: Index = index["tiled"]
    return tiles


def part(index: Index, start: int, stop: int) -> Index:
    """Return the points start ... stop-1 (in kd order) of an index as queries, without
    a copy.

    `start`: a multiple of the number of points in a group of boxes.
    """
    found = {name: index[name][start:stop] for name in ("order", "names", "y")}
    if "lower" not in index:
        return found
    tile = TILE if "z" in index else half.TILE
    group = start // (tile * index["lower"].shape[2])
    found |= {name: index[name][group:] for name in ("lower", "upper")}
    if "z" in index:
        return found | {"z": index["z"][start // tile : -(-stop // tile)]}
    found |= {name: index[name][start:stop] for name in ("norm", "error")}
    return found | {
        "vectors": index["vectors"][start : start + half.rows(stop - start)]
    }


def relabelled(index: Index, names: Array | int, xp: ArrayModule = np) -> Index:
    """Return the index with row ids.

    `names`: the ids (n,), int64, or a number that is added to positions in the chunk.

    The result also has ``names`` (n,), the ids in kd order. If the index has boxes, it
    also has ``least``, the smallest id in each run of 64 points.
    """
    if isinstance(names, int):
        own = index["order"].astype(xp.int64)
        own = own + names if names else own
    else:
        own = xp.ascontiguousarray(xp.asarray(names, xp.int64)[index["order"]])
    found = index | {"names": own}
    return found | {"least": _least_names(own, xp)} if "lower" in index else found


def _least_names(names: Array, xp: ArrayModule) -> Array:
    number = -(-len(names) // TILE)
    padded = xp.full(number * TILE, np.iinfo(np.int64).max, xp.int64)
    padded[: len(names)] = names
    return padded.reshape(number, TILE).min(axis=1)
