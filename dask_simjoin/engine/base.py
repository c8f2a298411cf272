"""Load the modules that serve a data frame library; counters and timings of a profiled
run.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from dask_simjoin.catalog import (
    HOME,
    METHODS,
    Method,
    as_method,
    check_library,
    library,
    name_of,
)
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.process import not_collecting
from dask_simjoin.engine.protocols import (
    Joiner,
    Layout,
    MethodSearch,
    Searcher,
    SearchMethod,
    Spanner,
)
from dask_simjoin.metrics.norms import (
    Array,
    ArrayModule,
    ArrowTable,
    DType,
    Frame,
    Ids,
    Norm,
    Series,
    Values,
)

ABOUT = {
    "tokens": "tokens of all rows, each counted once per row",
    "distinct_tokens": "distinct tokens",
    "characters": "code points of all texts",
    "values": "distinct sets or texts, without empty sets",
    "cells": "cells that are not empty",
    "grid_cells": "cells of the whole grid, with the empty ones",
    "largest_cell": "points in the fullest cell",
    "lookups": "lookups of neighboring cells, or of neighboring rows of cells",
    "found": "lookups whose cell or row of cells has points",
    "tile_pairs": "pairs of tiles whose boxes are near enough for a pair",
    "near_queries": "queries near enough to a tile's box, summed over tiles",
    "listed": "index entries that were read, or pairs of sets or texts of admissible sizes",
    "candidates": "pairs of points, sets or texts that no filter could exclude",
    "comparisons": "candidates whose distance or similarity was computed, at least in part",
    "compared_ratio": "comparisons (or else candidates) divided by the number of all pairs of rows",
    "terms": "coordinate differences that were added up",
    "decided": "candidates that only float64 could decide",
    "refused": "candidates that float64 decided not to be pairs",
    "distinct_pairs": "pairs of distinct sets or texts that match",
    "pairs": "pairs of rows found, each counted once",
    "neighbors": "nearest rows found, summed over all rows",
    "recall": "share of the true pairs or neighbors that was found",
    "recall_low": "lower bound of the recall, with 95 % confidence",
    "recall_high": "upper bound of the recall, with 95 % confidence",
    "recall_pairs": "true pairs that the recall was measured on; below 1,000 the recall is unreliable",
    "selectivity": "mean number of neighbors per row, without the row itself",
    "clusters": "clusters that are not empty",
    "largest_cluster": "rows in the largest cluster",
    "copies": "rows copied to another cluster because they are near its border",
    "lists": "lists of all rows, each sorted in Z-order",
    "walked_lists": "lists that were searched: each row searches the list with its shortest interval",
    "half_walk": "1 if all rows search one list, and each only the part after itself; else 0",
    "interval_mean": "mean number of rows in an interval",
    "interval_median": "median number of rows in an interval",
    "interval_p99": "99th percentile of the number of rows in an interval",
    "interval_max": "number of rows in the longest interval",
    "search_ops": "reads to find cells: queries x 3^(indexed dimensions) x log2(cells)",
    "compare_ops": "coordinates read to compare: dimensions x comparisons",
    "batches": "batches of queries",
    "repeated_batches": "batches that were repeated, because they had too many pairs",
    "largest_batch": "pairs in the largest batch",
    "estimated_pairs": "number of pairs, estimated from a sample",
    "warp_efficiency": "share of a warp's lanes that are busy while candidates are compared",
    "warp_efficiency_model": "warp efficiency, estimated as if each warp waits for its slowest query",
}
"""Counter name -> meaning, as shown in reports. Reports list the counters in this
order.
"""

Numbers = dict[str, float]
"""Counter name -> value: see `ABOUT`."""


def compared_ratio(numbers: Numbers, rows: int) -> Numbers:
    """Return a dict with the counter `compared_ratio`; empty if the method counts no
    comparisons or candidates.
    """
    compared = numbers.get("comparisons", numbers.get("candidates"))
    return (
        {}
        if compared is None or rows < 2
        else {"compared_ratio": compared / (rows * (rows - 1) / 2)}
    )


@dataclass(frozen=True)
class Counters:
    """Counters and timings of one run."""

    numbers: Numbers  # the method's counters: name -> value. `ABOUT` describes them
    seconds: dict[str, float]  # step -> its time in seconds, in the order of the steps


class Frames(Protocol):
    """Converts between data frames of one library and arrays."""

    xp: ArrayModule  # module of the arrays in the frames' columns: NumPy or CuPy

    def coordinates(
        self, frame: Frame, columns: tuple[Hashable, ...], buffer: Array | None = None
    ) -> Array:
        """Return columns as an array of float64 (n, d); missing values become NaN.

        `columns`: d columns of numbers, or one column of lists of d numbers. Lists of
        different lengths raise `ListError`. `buffer`: array of at least n * d float64
        numbers; if possible, the result is a view of it.
        """

    def numbers(self, frame: Frame, column: Hashable) -> Array:
        """Return a column of numbers as float64 (n,); missing values become NaN.

        Raise `NumberError` if a value is not a number.
        """

    def result(self, columns: dict[Any, Values], rows: int) -> Frame:
        """Return a data frame with these columns. It has `rows` rows, even without
        columns.
        """

    def values(self, frame: Frame, name: Hashable, places: Array) -> Values:
        """Return the values of a column at the positions `places`, in a form that
        `result` accepts.
        """

    def columns_at(
        self, frame: Frame, names: Mapping[Any, Hashable], places: Array
    ) -> dict[Any, Values]:
        """Return the `values` of several columns. `names`: name in the result -> name in
        the frame.
        """

    def ids(self, ids: Ids, positions: Array) -> Values:
        """Return the ids at these positions, in a form that `result` accepts."""

    def plain(self, frame: Frame, name: Hashable) -> Array | None:
        """Return a column as an array (n,), so that `Joiner.pairs` can gather its
        values.

        Return None if columns of this dtype have no such array.
        """

    def stacked(self, frames: list[Frame]) -> Frame:
        """Concatenate frames with the same columns; the result has a new index from 0."""

    def optional(self, dtype: DType) -> DType:
        """Return the nullable dtype for values of `dtype`, so that a column can have
        missing values.
        """

    def missing(self, dtype: DType, rows: int) -> Values:
        """Return `rows` missing values of a nullable dtype, in a form that `result`
        accepts.
        """

    def series(self, values: Array, index: Ids, name: Hashable) -> Series:
        """Return a Series of the library with these values (n,), index and name."""

    def rows(self, values: Array, index: Ids, example: Frame) -> Frame:
        """Return values (n,) as a Series, or values (n, k) as a data frame.

        `values` has dtype int64. Its numbers are reinterpreted as the 8-byte dtypes of
        `example`. The result has the names and dtypes of `example`.
        """

    def index(self, values: Values) -> Ids:
        """Return an index of the library with these labels."""

    def to_arrow(self, frame: Frame) -> ArrowTable:
        """Return a frame, without its index, as an Arrow table on the host. Column
        names become strings.
        """

    def from_arrow(self, table: ArrowTable, dtypes: Mapping[str, str]) -> Frame:
        """Convert an Arrow table to a frame.

        `dtypes`: column -> dtype name, because several dtypes of pandas have the same
        Arrow type.
        """

    def memory(self) -> int | None:
        """Return the size of the GPU's memory in bytes.

        None for libraries of the host, whose memory Dask reports.
        """

    def speed(self) -> float:
        """Return the memory bandwidth of the GPU, relative to an H200.

        1.0 for libraries of the host.
        """


class Profiler(Protocol):
    """Runs self-joins on arrays of one library, and measures them."""

    def profile(self, x: Array, layout: Layout) -> Counters:
        """Join points (n, d) with themselves, discard the pairs, and return counters
        and timings.
        """


MODULES = {
    (HOME, "frames"): "dask_simjoin.engine.cpu.frames",
    (HOME, "join"): "dask_simjoin.engine.cpu.joiner",
    (HOME, "search"): "dask_simjoin.engine.cpu.nearest",
    (HOME, "span"): "dask_simjoin.engine.cpu.spanning",
    (HOME, "density"): "dask_simjoin.engine.cpu.cells",
    (HOME, "profile"): "dask_simjoin.engine.cpu.joiner",
    (HOME, "sets"): "dask_simjoin.sets.cpu.joiner",
    (HOME, "strings"): "dask_simjoin.strings.joiner",
    (HOME, "segments"): "dask_simjoin.strings.search",
    (HOME, "encoding"): "dask_simjoin.sets.cpu.encoding",
    (HOME, "splitting"): "dask_simjoin.sets.cpu.encoding",
    ("cudf", "frames"): "dask_simjoin.engine.gpu.frames",
    ("cudf", "join"): "dask_simjoin.engine.gpu.joiner",
    ("cudf", "search"): "dask_simjoin.engine.gpu.nearest",
    ("cudf", "span"): "dask_simjoin.engine.gpu.spanning",
    ("cudf", "density"): "dask_simjoin.engine.gpu.dense_boxes",
    ("cudf", "profile"): "dask_simjoin.engine.gpu.joiner",
    ("cudf", "sets"): "dask_simjoin.sets.gpu.joiner",
    ("cudf", "memory"): "dask_simjoin.engine.gpu.pool",
}
"""(Library, job) -> name of the module that does this job.

The module has an object for the job, such as FRAMES or JOINER, or kernels.
"""


def pooled(name: str) -> AbstractContextManager[None]:
    """Return a context where arrays are allocated fast."""
    if name != "cudf":
        return contextlib.nullcontext()
    made: AbstractContextManager[None] = _module(name, "memory").pooled()
    return made


def frames_of_library(name: str) -> Frames:
    """Return the object that converts frames of a library."""
    return _module(name, "frames").FRAMES


def frames_for(frame: Frame) -> Frames:
    """Return the object that converts frames of `frame`'s library.

    `frame` may also be a column or an index.
    """
    return frames_of_library(library(frame))


def joiner_of_library(name: str) -> Joiner:
    """Return the joiner for chunks of a library."""
    return _module(name, "join").JOINER


def joiner_for(frame: Frame) -> Joiner:
    """Return the joiner for the library of `frame`."""
    return joiner_of_library(library(frame))


def searcher_of_library(name: str) -> Searcher:
    """Return the nearest-neighbor searcher for chunks of a library."""
    return _module(name, "search").SEARCHER


def searcher_for(frame: Frame) -> Searcher:
    """Return the nearest-neighbor searcher for the library of `frame`."""
    return searcher_of_library(library(frame))


def spanner_of_library(name: str) -> Spanner:
    """Return the object that finds spanning trees for chunks of a library."""
    return _module(name, "span").SPANNER


def spanner_of(array: Array) -> Spanner:
    """Return the object that finds spanning trees on the device of `array`."""
    return spanner_of_library(HOME if module_of(array) is np else "cudf")


def spanner_for(frame: Frame) -> Spanner:
    """Return the object that finds spanning trees for the library of `frame`."""
    return spanner_of_library(library(frame))


def density_of(array: Array) -> Any:
    """Return the module that finds density clusters of one chunk without a join, on the
    device of `array`.
    """
    return _module(HOME if module_of(array) is np else "cudf", "density")


def profiler_of_library(name: str) -> Profiler:
    """Return the profiler for joins of a library."""
    return _module(name, "profile").PROFILER


@functools.cache
def method_module(name: str, library: str) -> Any:
    """Load the module, a `CpuMethod` or `GpuMethod`, that implements a method for a
    library.
    """
    return _load(METHODS[name].modules[library])


def search_layout_of(
    method: str | Method,
    library: str,
    lower: np.ndarray,
    upper: np.ndarray,
    variance: np.ndarray,
    norm: Norm,
    approximate: bool,
) -> MethodSearch | None:
    """Return the layout for a neighbor search by this method.

    None: the method has no search of its own, so the caller uses tiles.
    """
    options = as_method(method)
    if options is None or not options.has_search:
        return None
    module: SearchMethod = method_module(name_of(options), library)
    return module.search_layout(options, lower, upper, variance, norm, approximate)


def recall_module(method: str | Method) -> Any:
    """Load the module that estimates the recall of a method that may miss pairs or
    neighbors.
    """
    options = as_method(method)
    assert options is not None and options.recall_module is not None
    return _load(options.recall_module)


def host_joiner() -> Joiner:
    """Return the joiner for NumPy arrays; the client joins small data with it."""
    return joiner_of_library(HOME)


def host_search() -> ModuleType:
    """Return the module that indexes chunks on the host for nearest neighbors."""
    return _load("dask_simjoin.engine.cpu.nearest")


def host_kernels(name: str) -> ModuleType:
    """Return a module of CPU kernels, for work that never runs on a GPU."""
    return _load(f"dask_simjoin.engine.cpu.kernels.{name}")


def spreader_of(x: Array) -> ModuleType:
    """Return the module whose functions `bounds` and `spread` support this array."""
    return _load(
        f"dask_simjoin.engine.{'cpu.frames' if module_of(x) is np else 'gpu.arrays'}"
    )


def narrowing_of(x: Array) -> ModuleType:
    """Return the module whose functions `narrowed` and `widened` support this array."""
    return _load(
        f"dask_simjoin.engine.{'compat' if module_of(x) is np else 'gpu.build'}"
    )


def set_joiner_of_library(name: str) -> Any:
    """Return the `SetJoiner` for a library, which joins blocks of sets."""
    return _module(name, "sets").JOINER


def edit_joiner() -> Any:
    """Return the joiner for blocks of strings. It runs on the host only."""
    return _module(HOME, "strings").JOINER


def segment_kernels() -> ModuleType:
    """Return the CPU kernels that index strings by their segments."""
    return _module(HOME, "segments")


def encoding_kernels() -> ModuleType:
    """Return the CPU kernels that encode sets."""
    return _module(HOME, "encoding")


def splitting_kernels() -> ModuleType:
    """Return the CPU kernels that split texts into tokens."""
    return _module(HOME, "splitting")


def _module(name: str, job: str) -> ModuleType:
    check_library(name)
    return _load(MODULES[name, job])


def _load(name: str) -> ModuleType:
    loaded = sys.modules.get(name)
    if loaded is not None and not getattr(loaded.__spec__, "_initializing", False):
        return loaded
    with not_collecting():
        return importlib.import_module(name)
