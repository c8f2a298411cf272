"""The grid joins of two papers: options, index, and a cost model for the number of
indexed dimensions.

The index has the non-empty cells of a grid in k dimensions. The papers call its arrays
B (`keys`), G (`starts`), A (`order`) and M (`mask`). In this module, `xp` is NumPy or
CuPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.engine.index.grids import CELL_MARGIN, KEY_BITS, MAX_CELL_BITS
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Norm, reach
from dask_simjoin.papers.lists import BatchedMethod, check_one_of, check_whole, is_word
from dask_simjoin.sizes import SAMPLED

MAX_INDEXED = 12
"""Maximum number k of indexed dimensions. It is limited, because a query looks up 3**k
cells.
"""

USUAL_INDEXED = 6
"""Number of indexed dimensions in GPU-Join's experiments, except in the experiment that
varies it.
"""

PATTERNS = ("full", "unicomp", "lid")
ORDERS = ("given", "workload", "queue")
THREADS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, kw_only=True)
class Grid(BatchedMethod):
    """Compare each point with the points in nearby cells of a grid, as two papers do.

    This is a published method for comparison; `method="grid"` selects it with these
    defaults. The papers are GPU-Join (Gowanlock & Karsin 2019, "GPU Accelerated
    Similarity Self-Join for Multi-Dimensional Data"), and its successor, which balances
    the load in few dimensions (Gallet & Gowanlock 2019, "Load Imbalance Mitigation
    Optimizations for GPU-Accelerated Similarity Joins"). All options return the same
    pairs.

    Parameters
    ----------
    indexed : int, "auto" or None
        Number of dimensions that the grid has, at most 12. "auto": the best number on a
        sample, by the cost model of the first paper (section 5.6). None means 6.
    reorder : bool
        Whether the grid has the dimensions with the largest variances (first paper,
        section 4.2). If not, it has the first dimensions.
    sort : bool or None
        Whether to sort the points of a cell by the first dimension that is not indexed.
        Then only points within reach in that dimension are compared (first paper,
        section 4.3). None: sort if there is such a dimension.
    short_circuit : bool
        Whether to stop summing a distance once it exceeds the threshold (first paper,
        section 4.4).
    pattern : {"full", "unicomp", "lid"}
        The adjacent cells that a query visits in a self-join of a chunk. Otherwise
        "full" is used.

        - "full": all adjacent cells.
        - "unicomp": half of the adjacent cells. Consider the last dimension where an
          adjacent cell differs from the query's cell. The cell is visited if the
          query's cell has an odd coordinate there (UNICOMP).
        - "lid": adjacent cells with higher numbers (LID-UNICOMP, section III-B of the
          second paper).
    order : {"given", "workload", "queue"}
        The order of queries; sections are those of the second paper. "given": the order
        of the rows. "workload": points with the most candidates first (III-C); each
        batch takes every n-th query. "queue": the same order, but batches of
        consecutive queries (III-D).
    threads : int
        For GPUs: number of threads that share a query's candidates (III-A): 1, 2, 4, 8,
        16 or 32.
    precision, buffer, batches, streams, sample
        Options for GPUs, as in `NestedLoop`. With the order "queue", the sample has the
        first queries.

    Notes
    -----
    The differences to the papers are:

    - Each unordered pair is written once.
    - Cells are wider than `eps` by one part in 2**18, so that rounding loses no pair.
      If cell numbers do not fit into 62 bits, cells of some dimensions are twice as
      wide, or even wider.
    - Points are stored in the order of their cells. Variances are computed from all
      rows.
    - Cells that the pattern skips are not even looked up.
    - Each batch has its own queue. If a batch overflows its buffer, it is repeated in
      two halves.
    - float32 decides only pairs outside its error bounds around the threshold; float64
      decides the others.
    - Cells of equal workload are ordered by number, and points with equal sort values
      by position.
    - With sorted cells on GPUs, queries of the same cell compare the same window of
      points. If there are few queries, several groups of threads share the points of
      each query.

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

    def __post_init__(self) -> None:
        if self.indexed is not None and not is_word(self.indexed, "auto"):
            check_whole(
                "Grid", "indexed", self.indexed, 1, MAX_INDEXED, "'auto', None, or "
            )
        for name in ("reorder", "short_circuit"):
            check_one_of("Grid", name, getattr(self, name), (True, False))
        check_one_of("Grid", "sort", self.sort, (True, False, None))
        check_one_of("Grid", "pattern", self.pattern, PATTERNS)
        check_one_of("Grid", "order", self.order, ORDERS)
        check_one_of("Grid", "threads", self.threads, THREADS)
        super().__post_init__()

    @classmethod
    def plain(cls) -> Grid:
        """Return the baseline of both papers: all dimensions indexed, all adjacent
        cells, given order.
        """
        return cls(
            indexed=MAX_INDEXED,
            reorder=False,
            sort=False,
            short_circuit=False,
            pattern="full",
            order="given",
            threads=1,
            precision="float64",
        )

    @classmethod
    def balanced(cls) -> Grid:
        """Return the final configuration of the second paper: LID-UNICOMP, queue, 8
        threads per query.
        """
        return replace(cls.plain(), pattern="lid", order="queue", threads=8)

    @classmethod
    def gpu_join(cls, indexed: int | str = USUAL_INDEXED) -> Grid:
        """Return GPU-Join (the first paper) with all its optimizations, for many
        dimensions.

        Queries are sorted by workload, as in the authors' later code, GDS-Join; the
        paper has no such step. So threads that run at the same time read the same
        points.
        """
        return cls(
            indexed=indexed, sort=True, pattern="full", order="workload", threads=1
        )

    @property
    def consecutive(self) -> bool:
        return self.order == "queue"

    @property
    def needs_sample(self) -> bool:
        return self.indexed == "auto"

    def fitted(
        self,
        x: np.ndarray,
        rows: float,
        variance: np.ndarray,
        threshold: float,
        norm: Norm = 2,
    ) -> Grid:
        """Replace "auto" by the number of dimensions that is cheapest on a sample;
        return the options.

        More dimensions mean fewer candidates, but more lookups. The numbers 1, 2, ...
        are tried, until lookups alone cost more than the best number so far. `x`: the
        sample; `rows`: number of all rows.
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
    """The cells of a grid. Tuples have one value per gridded dimension; lengths are
    multiplied by `scale`.
    """

    dims: tuple[int, ...]  # the gridded dimensions
    origin: tuple[float, ...]  # start of cell 1
    width: tuple[float, ...]
    number: tuple[int, ...]  # number of cells, including one empty cell at each end
    scale: float  # power of two that keeps differences of coordinates finite
    # dimensions whose cells were widened so that cell numbers fit into 62 bits
    widened: tuple[int, ...] = ()

    @property
    def strides(self) -> tuple[int, ...]:
        """For each dimension, the difference between the numbers of two adjacent cells.

        The difference is 1 for the first dimension.
        """
        return tuple(math.prod(self.number[:k]) for k in range(len(self.number)))


@dataclass(frozen=True)
class GridLayout:
    """The layout of a grid join, shared by all its chunks; see `Layout`."""

    method: ClassVar[str] = "grid"
    grain: ClassVar[int] = 1

    threshold: float
    options: Grid
    dims: int  # number of dimensions of the points
    cells: Cells
    # the dimension that sorts the points of a cell; -1: they are not sorted
    sort_dim: int
    norm: Norm = 2
    order: tuple[int, ...] = ()  # all dimensions, largest variance first
    bounds: Bounds | None = None  # bounds of the float32 filter; on GPUs only

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        options = self.options
        words = [
            f"grid of {len(self.cells.dims)} of {self.dims} columns "
            f"{names(self.cells.dims)}"
        ]
        if self.sort_dim >= 0:
            words.append(f"sorted by {names([self.sort_dim])}")
        words += ["short circuit"] * options.short_circuit
        if self.bounds is not None:
            words.append("float32")
        return "; ".join(
            [*words, f"pattern {options.pattern}", f"order {options.order}"]
        )


def make_grid_layout(
    options: Grid,
    lower: np.ndarray,
    upper: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm = 2,
    bounds: Bounds | None = None,
) -> GridLayout:
    """Choose the cells for points in the box [lower, upper] with variances (d,)."""
    dims, order = len(lower), dims_in_order(options, variance)
    # "auto" has been replaced by `Grid.fitted` if there is a sample; without a sample,
    # use the usual number
    indexed = options.indexed if isinstance(options.indexed, int) else USUAL_INDEXED
    k = min(indexed, dims)
    sort = k < dims if options.sort is None else options.sort
    cells = make_cells(lower, upper, order[:k], reach(norm, threshold))
    widest = dims_in_order(replace(options, reorder=True), variance)
    return GridLayout(
        threshold,
        options,
        dims,
        cells,
        order[k % dims] if sort else -1,
        norm,
        widest,
        bounds,
    )


def dims_in_order(options: Grid, variance: np.ndarray) -> tuple[int, ...]:
    """Return the dimensions in an order such that the first k of them are indexed."""
    dims = range(len(variance))
    return (
        tuple(sorted(dims, key=lambda k: (-float(variance[k]), k)))
        if options.reorder
        else tuple(dims)
    )


def make_cells(
    lower: np.ndarray, upper: np.ndarray, dims: Sequence[int], max_difference: float
) -> Cells:
    """Choose cells so that the points of a pair are at most one cell apart in each
    dimension.

    `max_difference`: the largest computed difference of one coordinate in a pair. With
    cells of exactly this width, rounding would lose pairs, so cells are slightly wider.
    `dask_simjoin.engine.index.grids.make_grid` computes widths in the same way, and
    proves that no pair is lost.
    """
    span = [float(upper[k]) * 0.25 - float(lower[k]) * 0.25 for k in dims]
    scale = 1.0 if max(span) < 2.0**1020 else 0.25
    span = [s * 4 * scale for s in span]
    width = [
        max(max_difference * scale * CELL_MARGIN, s * 2.0**-MAX_CELL_BITS, 2.0**-1000)
        for s in span
    ]
    number, widened = [], set()
    for s, w in zip(span, width, strict=True):
        number.append(int(s / w) + 3 if w < math.inf else 3)
    while math.prod(number) >= 2**KEY_BITS:
        k = max(range(len(number)), key=lambda k: number[k])
        width[k] *= 2
        number[k] = int(span[k] / width[k]) + 3
        widened.add(dims[k])
    origin = tuple(float(lower[k]) * scale for k in dims)
    return Cells(
        tuple(dims), origin, tuple(width), tuple(number), scale, tuple(sorted(widened))
    )


def coordinates(x: Array, cells: Cells, xp: ArrayModule) -> Array:
    """Return the coordinates of each point's cell (n, k), int64. They start at 1,
    because cell 0 is empty.
    """
    found = xp.empty((len(x), len(cells.dims)), xp.int64)
    for j, (k, origin, width) in enumerate(
        zip(cells.dims, cells.origin, cells.width, strict=True)
    ):
        column = x[:, k] if cells.scale == 1.0 else x[:, k] * cells.scale
        found[:, j] = ((column - origin) / width).astype(xp.int64) + 1
    return found


def build(x: Array, layout: GridLayout, pad: int, xp: ArrayModule = np) -> Index:
    """Return the index of a chunk's points `x` (n, d), float64; `pad`: number of zeros
    that end ``order``.

    The index has these arrays:

    - ``order`` (n + pad,), int32: positions of the points in `x`, sorted by cell, and
      within a cell by the sort dimension or by position;
    - ``y`` (n, d), float64: the points in that order;
    - ``keys`` (cells,), int64: numbers of the non-empty cells, ascending;
    - ``starts`` (cells + 1,), int64: start of each cell in ``y``;
    - ``coords`` (cells, k), int64: coordinates of these cells;
    - ``mask``, int64: for one dimension after another, the distinct coordinates of
      these cells, ascending;
    - ``mask_starts`` (k + 1,), int64: start of each dimension in ``mask``.
    """
    n, cells = len(x), layout.cells
    coords = coordinates(x, cells, xp)
    keys = xp.zeros(n, xp.int64)
    for j, stride in enumerate(cells.strides):
        keys += coords[:, j] * stride
    if layout.sort_dim < 0 or not n:
        positions = xp.argsort(keys, kind="stable")
        keys = keys[positions]
    else:  # two stable sorts: by coordinate, then by cell
        positions = xp.argsort(
            xp.ascontiguousarray(x[:, layout.sort_dim]), kind="stable"
        )
        positions = positions[xp.argsort(keys[positions], kind="stable")]
        keys = keys[positions]
    order = xp.zeros(n + pad, xp.int32)
    order[:n] = positions
    one = xp.ones(1, bool)
    starts = xp.flatnonzero(
        xp.concatenate([one[:n], keys[1:] != keys[:-1], one])
    ).astype(xp.int64)
    first = starts[:-1]
    own = xp.ascontiguousarray(coords[positions[first]])
    mask = [xp.unique(own[:, j]) for j in range(own.shape[1])]
    mask_starts = np.cumsum([0, *(len(some) for some in mask)])
    return {
        "order": order,
        "y": xp.ascontiguousarray(x[positions]),
        "keys": keys[first],
        "starts": starts,
        "coords": own,
        "mask": xp.concatenate(mask),
        "mask_starts": xp.asarray(mask_starts, xp.int64),
    }


def part(index: Index, start: int, stop: int, pad: int, xp: ArrayModule = np) -> Index:
    """Return an index of only the points start ... stop-1 in index order, with the same
    positions.

    The mask is not reduced, so it also has coordinates of cells outside the part. They
    cost some lookups, but change no result.
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
    """Return the queries, as positions in the index (n,), int32, sorted as the option
    `order` requests.

    `work`: number of candidates of a query in each cell; not needed for the order
    "given".
    """
    n = len(index["y"])
    if options.order == "given":
        return xp.argsort(index["order"][:n], kind="stable").astype(xp.int32)
    cell = xp.searchsorted(index["starts"], xp.arange(n), side="right") - 1
    # stable, so that cells of equal workload stay in the order of their numbers
    return xp.argsort(-work[cell], kind="stable").astype(xp.int32)


@dataclass(frozen=True)
class Cost:
    """The cost of a join with `indexed` dimensions, in memory reads.

    `search` counts 3**k lookups per query; each costs the logarithm of the number of
    non-empty cells. `compare` counts the coordinates of all candidates. The paper's
    formula for `compare` is a product that our copy of the paper lacks, so this is our
    own.
    """

    indexed: int
    search: float
    compare: float

    @property
    def total(self) -> float:
        return self.search + self.compare


def costs(
    options: Grid,
    x: np.ndarray,
    rows: float,
    variance: np.ndarray,
    threshold: float,
    norm: Norm = 2,
) -> Iterator[Cost]:
    """Yield the costs of 1, 2, ... indexed dimensions for a join of `rows` points; `x`
    (m, d): a sample.
    """
    m, dims = x.shape
    order, max_difference = dims_in_order(options, variance), reach(norm, threshold)
    lower, upper = x.min(axis=0), x.max(axis=0)
    sampled = np.linspace(0, m - 1, min(m, SAMPLED)).astype(np.int64)
    near = np.ones((len(sampled), m), bool)
    for k in range(1, min(dims, MAX_INDEXED) + 1):
        cell = coordinates(
            x, make_cells(lower, upper, order[k - 1 : k], max_difference), np
        )[:, 0]
        near &= np.abs(cell[sampled, None] - cell[None, :]) <= 1
        candidates = near
        if options.sort or (options.sort is None and k < dims):
            u = x[:, order[k % dims]]
            with np.errstate(over="ignore"):
                candidates = near & (
                    np.abs(u[sampled, None] - u[None, :]) <= max_difference
                )
        share = np.count_nonzero(candidates) / candidates.size
        several = coordinates(
            x, make_cells(lower, upper, order[:k], max_difference), np
        )
        full = math.prod(len(np.unique(several[:, j])) for j in range(k))
        cells = min(rows, full, len(np.unique(several, axis=0)) * max(1.0, rows / m))
        yield Cost(
            k, rows * 3.0**k * max(1.0, math.log2(cells)), rows * share * rows * dims
        )
