"""Select the modules for a frame's library; counters and timings of a profiled run."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from dask_simjoin.catalog import HOME, METHODS, Method, as_method, check_library, library, name_of
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
    "cells": "cells that are not empty",
    "grid_cells": "cells of the whole grid",
    "largest_cell": "points of the fullest cell",
    "lookups": "cells, or rows of cells, that were looked up",
    "found": "looked-up cells, or rows of cells, that have points",
    "tile_pairs": "pairs of tiles whose boxes are near",
    "near_queries": "queries near a tile's box",
    "candidates": "pairs of points that cells, windows or boxes could not exclude",
    "comparisons": "pairs of points whose distance was computed, at least in part",
    "compared_ratio": "share of all pairs of points that was compared, or that were candidates",
    "terms": "coordinates whose differences were summed",
    "decided": "pairs that only float64 could decide",
    "refused": "decided pairs that were refused",
    "pairs": "pairs that were found, each once",
    "neighbors": "nearest rows found, summed over all rows",
    "recall": "share of the true pairs or neighbors that was found",
    "recall_low": "lower bound of the recall, with 95 % confidence",
    "recall_high": "upper bound of the recall, with 95 % confidence",
    "recall_pairs": "true pairs that the recall was measured on; fewer than 1,000 are too few",
    "selectivity": "mean number of neighbors of a point, without itself",
    "clusters": "clusters that are not empty",
    "largest_cluster": "rows of the largest cluster",
    "copies": "copies of rows in other clusters whose borders are near",
    "lists": "lists in Z-order",
    "walked_lists": "lists in Z-order that rows searched: each row takes the list with its shortest interval",
    "half_walk": "1 if all rows search one list, with intervals that begin after the row itself; else 0",
    "interval_mean": "mean rows of an interval",
    "interval_median": "median rows of an interval",
    "interval_p99": "99th percentile of the rows of an interval",
    "interval_max": "rows of the largest interval",
    "search_ops": "reads to find cells: queries x 3^indexed x log2(cells)",
    "compare_ops": "coordinates read to compare: dimensions x comparisons",
    "batches": "batches of queries",
    "repeated_batches": "batches that were repeated, because they had too many pairs",
    "largest_batch": "pairs of the largest batch",
    "estimated_pairs": "pairs, estimated from a sample",
    "warp_efficiency": "share of a warp's lanes at work while candidates are compared",
    "warp_efficiency_model": "warp efficiency by a model: a warp waits for its slowest query",
}
"""Name -> meaning of each counter, in the order of reports."""

Numbers = dict[str, float]
"""Values of counters by name: see `ABOUT`."""


def compared_ratio(numbers: Numbers, rows: int) -> Numbers:
    """Return the share of all pairs of points that was compared, if the method counts it."""
    compared = numbers.get("comparisons", numbers.get("candidates"))
    return {} if compared is None or rows < 2 else {"compared_ratio": compared / (rows * (rows - 1) / 2)}


@dataclass(frozen=True)
class Counters:
    """Counters and timings of one run.

    Attributes
    ----------
    numbers : dict
        Values of the counters that the method keeps, by name: see `ABOUT`.
    seconds : dict
        Seconds of each step, in the order of the steps.
    """

    numbers: Numbers
    seconds: dict[str, float]


class Frames(Protocol):
    """Reads and makes the data frames of one library."""

    xp: ArrayModule
    """The array module of the frames' columns."""

    def coordinates(self, frame: Frame, columns: tuple[Hashable, ...], buffer: Array | None = None) -> Array:
        """Return columns as an array (n, d) of float64, NaN for missing values.

        The columns hold numbers, or one column holds lists of d numbers; otherwise it raises `ListError`.
        `buffer`: memory for at least n * d float64, used for the result if possible.
        """

    def result(self, columns: dict[Any, Values], rows: int) -> Frame:
        """Return a data frame of these columns. It has `rows` rows, even without columns."""

    def values(self, frame: Frame, name: Hashable, places: Array) -> Values:
        """Return the values of a column at some places, as `result` takes them."""

    def ids(self, ids: Ids, positions: Array) -> Values:
        """Return the ids at some positions, as `result` takes them."""

    def plain(self, frame: Frame, name: Hashable) -> Array | None:
        """Return a column as an array (n,) that `Joiner.pairs` can gather; None: it has no such form."""

    def stacked(self, frames: list[Frame]) -> Frame:
        """Return the concatenation of frames with the same columns, with a new index from 0."""

    def optional(self, dtype: DType) -> DType:
        """Return the dtype for values of `dtype` that may be missing."""

    def missing(self, dtype: DType, rows: int) -> Values:
        """Return `rows` missing values of an optional dtype, as `result` takes them."""

    def series(self, values: Array, index: Ids, name: Hashable) -> Series:
        """Return a Series of the library."""

    def rows(self, values: Array, index: Ids, example: Frame) -> Frame:
        """Return a Series of values (n,), or a data frame of values (n, k), like an example.

        All values are int64; values of other 8-byte types are passed as their bits.
        """

    def index(self, values: Values) -> Ids:
        """Return an index of the library."""

    def to_arrow(self, frame: Frame) -> ArrowTable:
        """Return the columns of a frame, named by strings, as a table on the host, without its index."""

    def from_arrow(self, table: ArrowTable, dtypes: Mapping[str, str]) -> Frame:
        """Return a frame of a table.

        `dtypes`: dtype names by column, for libraries with several dtypes per type.
        """

    def memory(self) -> int | None:
        """Return the bytes of device memory; None: arrays lie on the host. Clusters report their memory."""


class Profiler(Protocol):
    """Run methods on arrays of one library and count their work."""

    def profile(self, x: Array, layout: Layout) -> Counters:
        """Join points (n, d) with themselves without keeping pairs; return counters and timings."""


MODULES = {
    (HOME, "frames"): "dask_simjoin.engine.cpu.frames",
    (HOME, "join"): "dask_simjoin.engine.cpu.joiner",
    (HOME, "search"): "dask_simjoin.engine.cpu.nearest",
    (HOME, "span"): "dask_simjoin.engine.cpu.spanning",
    (HOME, "profile"): "dask_simjoin.engine.cpu.joiner",
    (HOME, "sets"): "dask_simjoin.sets.cpu.joiner",
    (HOME, "strings"): "dask_simjoin.strings.cpu.joiner",
    (HOME, "segments"): "dask_simjoin.strings.cpu.kernels.search",
    (HOME, "encoding"): "dask_simjoin.sets.cpu.kernels.encoding",
    (HOME, "splitting"): "dask_simjoin.sets.cpu.kernels.encoding",
    ("cudf", "frames"): "dask_simjoin.engine.gpu.frames",
    ("cudf", "join"): "dask_simjoin.engine.gpu.joiner",
    ("cudf", "search"): "dask_simjoin.engine.gpu.nearest",
    ("cudf", "span"): "dask_simjoin.engine.gpu.spanning",
    ("cudf", "profile"): "dask_simjoin.engine.gpu.joiner",
    ("cudf", "sets"): "dask_simjoin.sets.gpu.joiner",
}
"""(Library, job) -> module that has the object for the job (FRAMES, JOINER, ...), or its kernels."""


def frames_of_library(name: str) -> Frames:
    """Return the reader and writer of frames of a library."""
    return _module(name, "frames").FRAMES


def frames_for(frame: Frame) -> Frames:
    """Return the reader and writer for frames like `frame`: a frame, column or index, which may be empty."""
    return frames_of_library(library(frame))


def joiner_of_library(name: str) -> Joiner:
    """Return the joiner for chunks of a library."""
    return _module(name, "join").JOINER


def joiner_for(frame: Frame) -> Joiner:
    """Return the joiner for chunks of frames like `frame`."""
    return joiner_of_library(library(frame))


def searcher_of_library(name: str) -> Searcher:
    """Return the nearest-neighbor searcher for chunks of a library."""
    return _module(name, "search").SEARCHER


def searcher_for(frame: Frame) -> Searcher:
    """Return the nearest-neighbor searcher for chunks of frames like `frame`."""
    return searcher_of_library(library(frame))


def spanner_for(frame: Frame) -> Spanner:
    """Return the spanning-tree engine for chunks of frames like `frame`."""
    return _module(library(frame), "span").SPANNER


def cell_clusters() -> Any:
    """Return the host module that finds density clusters by cells."""
    return _load("dask_simjoin.engine.cpu.cells")


def profiler_of_library(name: str) -> Profiler:
    """Return the profiler of a library's joins."""
    return _module(name, "profile").PROFILER


@functools.cache
def method_module(name: str, library: str) -> Any:
    """Load a method's module for a library: a `CpuMethod` or a `GpuMethod`."""
    return _load(METHODS[name].modules[library])


def search_layout_of(method: str | Method, library: str, lower: np.ndarray, upper: np.ndarray,
                     variance: np.ndarray, norm: Norm, approximate: bool) -> MethodSearch | None:  # fmt: skip
    """Return the layout for a search by the method's module, a `SearchMethod`; None: use tiles instead."""
    options = as_method(method)
    if options is None or not options.has_search:
        return None
    module: SearchMethod = method_module(name_of(options), library)
    return module.search_layout(options, lower, upper, variance, norm, approximate)


def recall_module(method: str | Method) -> Any:
    """Load the recall estimator of a method that may miss pairs or neighbors."""
    options = as_method(method)
    assert options is not None and options.recall_module is not None
    return _load(options.recall_module)


def host_joiner() -> Joiner:
    """Return the joiner for NumPy arrays, for small data on the client."""
    return joiner_of_library(HOME)


def host_kernels(name: str) -> ModuleType:
    """Return a module of host kernels, for work that always runs on the host."""
    return _load(f"dask_simjoin.engine.cpu.kernels.{name}")


def spreader_of(x: Array) -> ModuleType:
    """Return the module with `bounds` and `spread` for an array's library."""
    return _load(f"dask_simjoin.engine.{'cpu.frames' if module_of(x) is np else 'gpu.arrays'}")


def set_joiner_of_library(name: str) -> Any:
    """Return the joiner for blocks of sets of a library: a `SetJoiner`."""
    return _module(name, "sets").JOINER


def edit_joiner() -> Any:
    """Return the joiner for blocks of strings, which are always on the host."""
    return _module(HOME, "strings").JOINER


def segment_kernels() -> ModuleType:
    """Return the host kernels that index strings."""
    return _module(HOME, "segments")


def encoding_kernels() -> ModuleType:
    """Return the host kernels that encode sets."""
    return _module(HOME, "encoding")


def splitting_kernels() -> ModuleType:
    """Return the host kernels that split texts into tokens."""
    return _module(HOME, "splitting")


def _module(name: str, job: str) -> ModuleType:
    check_library(name)
    return _load(MODULES[name, job])


def _load(name: str) -> ModuleType:
    with not_collecting():
        return importlib.import_module(name)
