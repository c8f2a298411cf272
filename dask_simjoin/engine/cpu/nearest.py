"""Nearest neighbors on the CPU: index a chunk, and find its rows' neighbors in another
chunk.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dask_simjoin.catalog import AUTO, HOME, Method
from dask_simjoin.engine.base import method_module, search_layout_of
from dask_simjoin.engine.cpu import gated_nearest
from dask_simjoin.engine.cpu.boxes import box_tree
from dask_simjoin.engine.cpu.kernels import nearest as kernels
from dask_simjoin.engine.cpu.kernels import pack
from dask_simjoin.engine.cpu.kernels.nearest_scan import Range
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.order import by_row, kd_order
from dask_simjoin.engine.cpu.tiles import filtered_tiles
from dask_simjoin.engine.gated import GatedSearch, PairsSearch
from dask_simjoin.engine.index import cpu_tiles
from dask_simjoin.engine.index.cpu_tiles import NearestLayout
from dask_simjoin.engine.process import numbers_apart, shared_out
from dask_simjoin.engine.protocols import MethodSearch, SearchMethod
from dask_simjoin.metrics.norms import Index, Norm


def build(
    x: np.ndarray, names: np.ndarray | None, layout: NearestLayout, threads: int = 1
) -> Index:
    """Index the points (n, d), float64, of a chunk. The index serves as queries and as
    data.

    `names` (n,), int64: the row ids that searches return. Ids are not negative, and
    unique in the frame. None: searches return positions.
    """
    n, d = x.shape
    cut = layout.cut.first(n, cpu_tiles.TILE, cpu_tiles.CUTS)
    x = by_row(x, threads)  # because this is how points are gathered
    order = kd_order(x, cut, cpu_tiles.TILE, layout.fan_out(cut), threads)
    dims = np.arange(d)
    own = order if names is None else np.asarray(names, np.int64)[order]
    index: Index = {"names": own, "order": order}
    if layout.filter is None:
        number = -(-n // cpu_tiles.TILE)
        z = cpu_tiles.aligned_empty((number, d, cpu_tiles.TILE), np.float64)
        low, high = np.empty((number, d)), np.empty((number, d))
        index |= {"z": z, "low": low, "high": high}

        def pack_some(a: int, b: int) -> None:
            # few rows at a time, to keep the scratch array small
            packed = 64 * cpu_tiles.TILE
            y, as_is = np.empty((min(packed, b - a), d)), np.zeros(d)  # `y` is scratch
            for start in range(a, b, packed):
                stop = min(start + packed, b)
                some = slice(start // cpu_tiles.TILE, -(-stop // cpu_tiles.TILE))
                pack.pack_exact(
                    x,
                    order[start:stop],
                    dims,
                    as_is,
                    1.0,
                    y,
                    z[some],
                    low[some],
                    high[some],
                )

        shared_out(pack_some, n, threads, cpu_tiles.TILE, numbers_apart(d))
    else:
        tiles = filtered_tiles(x, order, dims, layout.filter, 0.0, threads)
        index |= {
            name: tiles[name] for name in ("y", "z", "low", "high", "start", "norm")
        }
        index["half_norm"] = tiles["limit"]
    if n:
        index["lower"], index["upper"], index["levels"] = box_tree(
            index["low"], index["high"]
        )
        index["least"] = cpu_tiles.smallest_names(index["names"], index["levels"])
    return index


def points(index: Index) -> np.ndarray:
    """Return the points (n, d) of an index that `build` made, in the order of the
    index.
    """
    n = len(index["order"])
    if "y" in index:
        return np.asarray(index["y"][:n])
    z = index["z"]
    return np.ascontiguousarray(z.transpose(0, 2, 1).reshape(-1, z.shape[1])[:n])


def renamed(index: Index, names: Any) -> Index:
    """Return a copy of an index with other row ids: see `Searcher.renamed`.

    The index must have been built with positions as ids.
    """
    if isinstance(names, int) and not names:
        return index
    if isinstance(names, int):
        least = index["least"] if "least" in index else np.zeros(0, np.int64)
        least = np.where(least == cpu_tiles.NO_NAME, cpu_tiles.NO_NAME, least + names)
        return index | {"names": index["names"] + names, "least": least}
    own = np.asarray(names, np.int64)[index["order"]]
    found = index | {"names": own}
    if "nodes" in index:
        found["least"] = gated_nearest.smallest_names(own)
    # only indexes with boxes have levels; an index of Z-order lists has none
    if len(own) and "levels" in index:
        found["least"] = cpu_tiles.smallest_names(own, index["levels"])
    return found


def fresh(rows: int, k: int, threads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the neighbors of queries before any search: totals inf and ids -1, both
    (rows, k).
    """
    totals, names = np.empty((rows, k)), np.empty((rows, k), np.int64)

    def begin(start: int, stop: int) -> None:
        totals[start:stop], names[start:stop] = np.inf, -1

    shared_out(begin, rows, threads)
    return totals, names


def nearest(
    q: Index,
    d: Index,
    layout: NearestLayout,
    best_d2: np.ndarray,
    best_name: np.ndarray,
    *,
    is_self_join: bool,
    least2: float = 0.0,
    bound2: float = math.inf,
) -> None:
    """Update the k nearest neighbors of the queries with nearer points of another
    chunk, in place.

    Neighbors are ordered by (total, id). So the result of searches in several chunks
    does not depend on the chunks or on their order. A point whose total overflows to
    inf can still be a neighbor.

    `q`, `d`: indexes of the queries and of the data. `best_d2`, `best_name` (queries,
    k), C-contiguous, float64 and int64: totals and ids of each query's neighbors so
    far, in ascending order; `fresh` makes them for the first search. `is_self_join`:
    queries and data are rows of one frame, so that a row is not its own neighbor.
    `least2`, `bound2`: smallest and largest total that a neighbor may have.
    """
    if not (len(q["names"]) and len(d["names"]) and best_d2.shape[1]):
        return
    own = q is d
    d = cpu_tiles.aligned_index(d)
    q_z = d["z"] if own else cpu_tiles.aligned(q["z"])
    f = layout.filter
    if f is None:
        q_terms, d_terms, terms = (q_z,), (d["z"],), (0.0,) * 5
    else:
        q_terms, d_terms = (q_z, q["half_norm"], q["y"]), (d["z"], d["start"], d["y"])  # type: ignore[assignment]
        terms = (
            f.scale * f.scale,
            f.kappa,
            layout.dims * 2.0**-140,
            8.0 * layout.dims,
            float(max(q["norm"], d["norm"])),
        )
    work = kernels.scratch(
        len(d["low"]),
        len(d["lower"]),
        layout.dims,
        d["lower"].dtype,
        best_d2.shape[1],
    )
    kernels.search(
        q_terms,
        d_terms,
        kernels.Queries(q["low"], q["high"], q["names"], q["order"]),
        kernels.Data(
            d["low"],
            d["high"],
            (d["lower"], d["upper"], d["levels"]),
            d["least"],
            d["names"],
        ),
        terms,
        is_self_join,
        own,
        Range(float(least2), float(bound2)),
        kind_of(layout.norm),
        kernels.Best(best_d2, best_name),
        work,
    )


def part(index: Index, start: int, stop: int) -> Index:
    """Return the queries at places start ... stop-1 of an index, without copying
    arrays.
    """
    places, boxes = (
        slice(start, stop),
        slice(start // cpu_tiles.TILE, -(-stop // cpu_tiles.TILE)),
    )
    cut = {"z": boxes, "low": boxes, "high": boxes, "start": boxes}
    cut |= dict.fromkeys(
        ("names", "order", "y", "half_norm", "points", "values"), places
    )
    found = {name: index[name][some] for name, some in cut.items() if name in index}
    return found | {name: index[name] for name in ("norm",) if name in index}


def layout(
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    sample: np.ndarray,
    norm: Norm = 2,
    method: str | Method = AUTO,
    approximate: bool = False,
) -> NearestLayout | MethodSearch:
    """Choose the layout of all chunks: the method's layout if the method has its own
    search, else tiles.
    """
    own = search_layout_of(method, HOME, lower, upper, variance, norm, approximate)
    return own or cpu_tiles.make_nearest_layout(
        lower, upper, mean, variance, sample, norm
    )


def improved(
    q: Index,
    d: Index,
    layout: NearestLayout | MethodSearch,
    best_d2: np.ndarray,
    best_name: np.ndarray,
    *,
    is_self_join: bool,
    least2: float = 0.0,
    bound2: float = math.inf,
) -> None:
    """Update neighbors as `nearest` does, but by the method of the layout.

    Only tiles and searches with gates support `least2`. For other methods a smallest
    distance has been refused before, so there is no check here.
    """
    limits: dict[str, Any] = {"least2": least2, "bound2": bound2}
    limits["is_self_join"] = is_self_join
    if isinstance(layout, GatedSearch | PairsSearch):
        gated_nearest.nearest(q, d, layout, best_d2, best_name, **limits)
    elif isinstance(layout, MethodSearch):
        module: SearchMethod = method_module(layout.method, HOME)
        module.nearest(
            q, d, layout, best_d2, best_name, is_self_join=is_self_join, bound2=bound2
        )
    else:
        nearest(q, d, layout, best_d2, best_name, **limits)


class CpuSearcher:
    """See `Searcher`."""

    grain = cpu_tiles.TILE

    layout = staticmethod(layout)
    renamed = staticmethod(renamed)
    fresh = staticmethod(fresh)
    part = staticmethod(part)
    nearest = staticmethod(improved)

    @staticmethod
    def prepare() -> None:
        """Do nothing: Numba compiles one function at a time, so an early start would
        not help.
        """

    @staticmethod
    def at_once(k: int) -> int:
        # the neighbors of more queries would need more than 1 MiB
        return max(4096, 2**16 // max(k, 1) // cpu_tiles.TILE * cpu_tiles.TILE)


SEARCHER = CpuSearcher()
