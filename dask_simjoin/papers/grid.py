"""The grid joins of two papers: their options, the index, and the cost model of indexed dimensions.

The index has the non-empty cells of k dimensions.  It is written once for NumPy and CuPy (`xp` is either
module).  The papers' arrays are `keys` (B), `starts` (G), the order of points (A) and `mask` (M).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dask_simjoin.catalog.methods import Method
from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.engine.index.sweep import KEY_BITS, MAX_CELL_BITS, WIDEN
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Norm, reach
from dask_simjoin.papers.options import check_batches, check_one_of, check_whole, is_word

MAX_INDEXED = 12
"""Dimensions that are indexed at most: a query looks for 3**k cells."""

USUAL_INDEXED = 6
"""Dimensions that GPU-Join indexes in all its experiments but those on their number."""

PATTERNS = ("full", "unicomp", "lid")
ORDERS = ("given", "workload", "queue")
THREADS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, kw_only=True)
class Grid(Method):
    """Look up the cells of a grid around each point: the joins of two papers, for comparison.

    They are GPU-Join (Gowanlock & Karsin 2019, "GPU Accelerated Similarity Self-Join for Multi-Dimensional
    Data") and the load balancing for few dimensions that followed it (Gallet & Gowanlock 2019, "Load
    Imbalance Mitigation Optimizations for GPU-Accelerated Similarity Joins").  Pairs are those of every
    other method.

    Parameters
    ----------
    indexed : int, "auto" or None
        Dimensions of the grid, at most 12; all, where there are fewer.  "auto": as many as the papers' cost
        model finds best on a sample (section 5.6 of the first).  None: 6.
    reorder : bool
        Whether dimensions of larger variance come first (section 4.2), so that they are indexed.
    sort : bool or None
        Whether the points of each cell are sorted by one dimension, the first that is not indexed, and only
        those within reach in it are compared (section 4.3).  None: where there is such a dimension.
    short_circuit : bool
        Whether a sum ends once it is beyond the threshold (section 4.4).
    pattern : {"full", "unicomp", "lid"}
        Which cells a query visits besides its own: all around it; those that differ from it last in a
        dimension where its own coordinate is odd (UNICOMP); or those of higher numbers (LID-UNICOMP, section
        III-B of the second).  Between two chunks it is always "full".
    order : {"given", "workload", "queue"}
        In which order queries are done: as rows are, or by the number of points in the cells that they visit,
        most first (section III-C), in strided batches; "queue": one after the other (section III-D).
    threads : int
        On GPUs: threads of a query, which share the points of each cell (section III-A): 1, 2, 4, 8, 16
        or 32.
    precision : {"float32", "float64"}
        On GPUs: what candidates are compared in, before float64 decides what float32 leaves open; other
        norms than squares always are in float64.
    buffer : int
        On GPUs: pairs of a batch at most, of which there are as many as an estimate says; a batch of more is
        done again in two.
    batches, streams : int
        Batches at least, and how many of them a GPU does at a time.
    sample : float
        On GPUs: the share of the queries of which the estimate is made; the first ones of a queue.

    Notes
    -----
    Unlike in the papers, unordered pairs are written once; cells are wider than `eps` by one part in 2**18,
    so that none is lost to rounding, or twice as wide where their numbers would not fit 62 bits; points are
    stored in the order of cells; variances are those of all rows; cells that a half pattern leaves out are
    not enumerated; a batch has a queue of its own, and one that overflows is done again in two; float32
    only leaves out, and what is near the threshold is decided in float64; ties of workloads are broken by
    cell number, ties of sorted values by position.

    Examples
    --------
    >>> import pandas as pd
    >>> from dask_simjoin import methods
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 5.0], "y": [0.0, 0.0, 0.0]})
    >>> df.simjoin.self_join(1.0, method=methods.Grid(pattern="unicomp"))
       left  right
    0     0      1
    >>> methods.Grid.balanced().threads
    8
    """

    modules: ClassVar[Mapping[str, str]] = {
        "pandas": "dask_simjoin.papers.cpu.grid",
        "cudf": "dask_simjoin.papers.gpu.grid",
    }

    indexed: int | str | None = None
    reorder: bool = True
    sort: bool | None = None
    short_circuit: bool = True
    pattern: str = "lid"
    order: str = "queue"
    threads: int = 8
    precision: str = "float32"
    buffer: int = 10**8
    batches: int = 3
    streams: int = 3
    sample: float = 0.01

    def __post_init__(self) -> None:
        if self.indexed is not None and not is_word(self.indexed, "auto"):
            check_whole("Grid", "indexed", self.indexed, 1, MAX_INDEXED, "'auto', None, or ")
        for name in ("reorder", "short_circuit"):
            check_one_of("Grid", name, getattr(self, name), (True, False))
        check_one_of("Grid", "sort", self.sort, (True, False, None))
        check_one_of("Grid", "pattern", self.pattern, PATTERNS)
        check_one_of("Grid", "order", self.order, ORDERS)
        check_one_of("Grid", "threads", self.threads, THREADS)
        check_batches("Grid", self)

    @classmethod
    def plain(cls) -> Grid:
        """Return what both papers improve on: all dimensions indexed, all cells visited, rows in order."""
        return cls(
            indexed=MAX_INDEXED, reorder=False, sort=False, short_circuit=False, pattern="full",
            order="given", threads=1, precision="float64",
        )  # fmt: skip

    @classmethod
    def balanced(cls) -> Grid:
        """Return the final configuration of the paper on load balance: LID-UNICOMP, a queue, 8 threads."""
        return cls(
            indexed=MAX_INDEXED, reorder=False, sort=False, short_circuit=False, pattern="lid",
            order="queue", threads=8, precision="float64",
        )  # fmt: skip

    @classmethod
    def gpu_join(cls, indexed: int | str = USUAL_INDEXED) -> Grid:
        """Return GPU-Join with all its optimisations, for many dimensions."""
        return cls(indexed=indexed, sort=True, pattern="full", order="given", threads=1)

    @property
    def needs_sample(self) -> bool:
        """Whether the number of indexed dimensions depends on a sample."""
        return self.indexed == "auto"

    def fitted(self, x: np.ndarray, rows: float, variance: np.ndarray, threshold: float,
               norm: Norm = 2) -> Grid:  # fmt: skip
        """Return the options with a number of dimensions instead of "auto": that of least cost on a sample.

        Candidates only become fewer with more dimensions, and lookups more: the search ends once lookups
        alone cost more than the best.
        """
        if self.indexed != "auto" or not len(x):
            return self
        best: Cost | None = None
        for cost in costs(self, x, rows, variance, threshold, norm):
            if best is not None and cost.search > best.total:
                break
            if best is None or cost.total < best.total:
                best = cost
        assert best is not None
        return replace(self, indexed=best.indexed)


@dataclass(frozen=True)
class Cells:
    """The cells of a grid; a tuple has a number for each gridded dimension.

    Attributes
    ----------
    dims : tuple of int
        The gridded dimensions.
    origin, width : tuple of float
        Where cell 1 begins, and how wide cells are, in units of `scale`.
    number : tuple of int
        Cells, with an empty one at each end: so numbers of neighbours never run over a row's end.
    scale : float
        Power of two that keeps differences of coordinates finite.
    widened : tuple of int
        Dimensions whose cells had to be wider, as their numbers would not fit 62 bits.
    """

    dims: tuple[int, ...]
    origin: tuple[float, ...]
    width: tuple[float, ...]
    number: tuple[int, ...]
    scale: float
    widened: tuple[int, ...] = ()

    @property
    def strides(self) -> tuple[int, ...]:
        """What one cell more adds to a cell's number; the first dimension is the fastest."""
        return tuple(math.prod(self.number[:k]) for k in range(len(self.number)))


@dataclass(frozen=True)
class GridLayout:
    """How the chunks of one join are indexed for the grid joins: alike, so that any two can meet.

    Attributes
    ----------
    threshold : float
        Of the float64 decision.
    options : Grid
    dims : int
        Dimensions of points.
    cells : Cells
    sort_dim : int
        The dimension by which the points of a cell are sorted; -1: none.
    norm : int or float
        Of the totals that the decision compares.
    order : tuple of int
        All dimensions, the ones of largest variance first.
    bounds : Bounds or None
        Of the float32 filter, where there is one: on GPUs.
    """

    threshold: float
    options: Grid
    dims: int
    cells: Cells
    sort_dim: int
    norm: Norm = 2
    order: tuple[int, ...] = ()
    bounds: Bounds | None = None

    @property
    def method(self) -> str:
        """The method's name."""
        return "grid"

    @property
    def grain(self) -> int:
        """Points at whose multiples queries can be cut."""
        return 1

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""
        asked = self.options
        words = [f"grid of {len(self.cells.dims)} of {self.dims} columns {names(self.cells.dims)}"]
        if self.sort_dim >= 0:
            words.append(f"sorted by {names([self.sort_dim])}")
        words += ["short circuit"] * asked.short_circuit
        if self.bounds is not None:
            words.append("float32")
        return "; ".join([*words, f"pattern {asked.pattern}", f"order {asked.order}"])


def make_grid_layout(options: Grid, lower: np.ndarray, upper: np.ndarray, variance: np.ndarray,
                     threshold: float, norm: Norm = 2,
                     bounds: Bounds | None = None) -> GridLayout:  # fmt: skip
    """Choose the cells for points within the box [lower, upper], of this variance (d,)."""
    dims, order = len(lower), dims_in_order(options, variance)
    # "auto" is decided where there is a sample: see `grid_choice`
    asked = options.indexed if isinstance(options.indexed, int) else USUAL_INDEXED
    k = min(asked, dims)
    sort = k < dims if options.sort is None else options.sort
    cells = make_cells(lower, upper, order[:k], reach(norm, threshold))
    widest = dims_in_order(replace(options, reorder=True), variance)
    return GridLayout(threshold, options, dims, cells, order[k % dims] if sort else -1, norm, widest, bounds)


def dims_in_order(options: Grid, variance: np.ndarray) -> tuple[int, ...]:
    """Return the dimensions, the ones to index first."""
    dims = range(len(variance))
    return tuple(sorted(dims, key=lambda k: (-float(variance[k]), k))) if options.reorder else tuple(dims)


def make_cells(lower: np.ndarray, upper: np.ndarray, dims: Sequence[int], most: float) -> Cells:
    """Choose cells in which points of a pair lie one cell apart at most in each dimension.

    `most`: the largest difference of one coordinate, as computed, that a pair can have. Cells of exactly
    that width lose pairs to rounding; that these do not is shown in
    `dask_simjoin.engine.index.sweep.make_grid`, whose cells are as wide and whose coordinates, of 30 bits at
    most, are computed alike.
    """
    span = [float(upper[k]) * 0.25 - float(lower[k]) * 0.25 for k in dims]
    scale = 1.0 if max(span) < 2.0**1020 else 0.25
    span = [s * 4 * scale for s in span]
    width = [max(most * scale * WIDEN, s * 2.0**-MAX_CELL_BITS, 2.0**-1000) for s in span]
    number, widened = [], set()
    for s, w in zip(span, width, strict=True):
        number.append(int(s / w) + 3 if w < math.inf else 3)
    while math.prod(number) >= 2**KEY_BITS:
        k = max(range(len(number)), key=lambda k: number[k])
        width[k] *= 2
        number[k] = int(span[k] / width[k]) + 3
        widened.add(dims[k])
    origin = tuple(float(lower[k]) * scale for k in dims)
    return Cells(tuple(dims), origin, tuple(width), tuple(number), scale, tuple(sorted(widened)))


def coordinates(x: Array, cells: Cells, xp: ArrayModule) -> Array:
    """Return the cells' coordinates (n, k), int64, of points (n, d); they count from 1."""
    found = xp.empty((len(x), len(cells.dims)), xp.int64)
    for j, (k, origin, width) in enumerate(zip(cells.dims, cells.origin, cells.width, strict=True)):
        column = x[:, k] if cells.scale == 1.0 else x[:, k] * cells.scale
        found[:, j] = ((column - origin) / width).astype(xp.int64) + 1
    return found


def build(x: Array, layout: GridLayout, pad: int, xp: ArrayModule = np) -> Index:
    """Index one chunk.

    Parameters
    ----------
    x : array (n, d), float64
    layout : GridLayout
    pad : int
        How many points more `order` holds than there are.
    xp : module
        NumPy or CuPy.

    Returns
    -------
    dict of arrays
        ``order`` (n + pad, int32): positions of the points in `x`, by cell, and within one by the sort
        dimension or else by position; ``y`` (n, d, float64): the points in that order; ``keys`` (cells,
        int64): numbers of non-empty cells, ascending; ``starts`` (cells + 1, int64): places at which they
        begin; ``coords`` (cells, k, int64): their coordinates; ``mask`` (int64): coordinates that there
        are, ascending, of one dimension after the other, which begin at ``mask_starts`` (k + 1, int64).
    """
    n, cells = len(x), layout.cells
    coords = coordinates(x, cells, xp)
    keys = xp.zeros(n, xp.int64)
    for j, stride in enumerate(cells.strides):
        keys += coords[:, j] * stride
    if layout.sort_dim < 0 or not n:
        positions = xp.argsort(keys, kind="stable")
        keys = keys[positions]
    else:  # two stable sorts
        positions = xp.argsort(xp.ascontiguousarray(x[:, layout.sort_dim]), kind="stable")
        positions = positions[xp.argsort(keys[positions], kind="stable")]
        keys = keys[positions]
    order = xp.zeros(n + pad, xp.int32)
    order[:n] = positions
    one = xp.ones(1, bool)
    starts = xp.flatnonzero(xp.concatenate([one[:n], keys[1:] != keys[:-1], one])).astype(xp.int64)
    first = starts[:-1]
    own = xp.ascontiguousarray(coords[positions[first]])
    mask = [xp.unique(own[:, j]) for j in range(own.shape[1])]
    mask_starts = np.cumsum([0, *(len(some) for some in mask)])
    return {
        "order": order, "y": xp.ascontiguousarray(x[positions]), "keys": keys[first], "starts": starts,
        "coords": own, "mask": xp.concatenate(mask), "mask_starts": xp.asarray(mask_starts, xp.int64),
    }  # fmt: skip


def part(index: Index, start: int, stop: int, pad: int, xp: ArrayModule = np) -> Index:
    """Return the index of the points at places start ... stop-1, with the same positions.

    The mask stays that of all points: it may let cells through that are not there, and leaves out none.
    """
    starts = index["starts"]
    first = int(xp.searchsorted(starts, start, side="right")) - 1
    last = max(int(xp.searchsorted(starts, stop, side="left")), first)
    return {
        "order": index["order"][start : stop + pad],
        "y": index["y"][start:stop],
        "keys": index["keys"][first:last],
        "starts": starts[first : last + 1].clip(start, stop) - start,
        "coords": index["coords"][first:last],
        "mask": index["mask"],
        "mask_starts": index["mask_starts"],
    }


def queries(index: Index, work: Array, options: Grid, xp: ArrayModule = np) -> Array:
    """Return the places (n,), int32, in the order in which they are queries (P2, III-C and III-D).

    `work`: points that the queries of each cell visit; the order "given" asks for none.
    """
    n = len(index["y"])
    if options.order == "given":
        return xp.argsort(index["order"][:n], kind="stable").astype(xp.int32)
    cell = xp.searchsorted(index["starts"], xp.arange(n), side="right") - 1
    # stable, so that of equal workloads the cell of the lower number comes first
    return xp.argsort(-work[cell], kind="stable").astype(xp.int32)


QUERIES = 1024
"""Points of the sample that are queries, all of it being candidates."""


@dataclass(frozen=True)
class Cost:
    """What a join costs that indexes so many dimensions, in reads of memory.

    Attributes
    ----------
    indexed : int
    search : float
        3**k lookups of a query, each of the logarithm of the number of non-empty cells.
    compare : float
        Coordinates of the candidates of all queries.  The paper weighs them by a factor that is lost in our
        copy: coordinates read are ours.
    """

    indexed: int
    search: float
    compare: float

    @property
    def total(self) -> float:
        """Both."""
        return self.search + self.compare


def costs(options: Grid, x: np.ndarray, rows: float, variance: np.ndarray, threshold: float,
          norm: Norm = 2) -> Iterator[Cost]:  # fmt: skip
    """Give the costs of 1, 2, ... indexed dimensions for `rows` points, of which `x` (m, d) are a sample."""
    m, dims = x.shape
    order, most = dims_in_order(options, variance), reach(norm, threshold)
    lower, upper = x.min(axis=0), x.max(axis=0)
    asked = np.linspace(0, m - 1, min(m, QUERIES)).astype(np.int64)
    near = np.ones((len(asked), m), bool)
    for k in range(1, min(dims, MAX_INDEXED) + 1):
        cell = coordinates(x, make_cells(lower, upper, order[k - 1 : k], most), np)[:, 0]
        near &= np.abs(cell[asked, None] - cell[None, :]) <= 1
        candidates = near
        if options.sort or (options.sort is None and k < dims):
            u = x[:, order[k % dims]]
            with np.errstate(over="ignore"):
                candidates = near & (np.abs(u[asked, None] - u[None, :]) <= most)
        share = np.count_nonzero(candidates) / candidates.size
        several = coordinates(x, make_cells(lower, upper, order[:k], most), np)
        full = math.prod(len(np.unique(several[:, j])) for j in range(k))
        cells = min(rows, full, len(np.unique(several, axis=0)) * max(1.0, rows / m))
        yield Cost(k, rows * 3.0**k * max(1.0, math.log2(cells)), rows * share * rows * dims)
