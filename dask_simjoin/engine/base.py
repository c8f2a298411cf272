"""Choose the modules that serve a frame by its library; numbers and seconds of a profiled run."""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.methods import METHODS, Method, as_method, name_of
from dask_simjoin.engine.protocols import (
    Frames,
    Joiner,
    Layout,
    MethodSearch,
    Searcher,
    SearchMethod,
    Spanner,
)
from dask_simjoin.engine.threads import not_collecting
from dask_simjoin.errors import UnsupportedFrameError
from dask_simjoin.metrics.norms import Array, Frame, Norm

ABOUT = {
    "cells": "cells that are not empty",
    "grid_cells": "cells of the grid in all",
    "largest_cell": "points of the fullest cell",
    "lookups": "cells, or rows of cells, that were looked for",
    "found": "cells, or rows of cells, that were there",
    "tile_pairs": "pairs of tiles whose boxes are near",
    "near_queries": "queries near a tile's box",
    "candidates": "pairs of points that cells, windows or boxes left",
    "comparisons": "pairs of points of which a distance was begun",
    "compared_ratio": "of all pairs of points, those that were compared, or left to be",
    "terms": "coordinates whose differences were summed",
    "decided": "pairs that only float64 could tell",
    "refused": "of those, pairs that were none",
    "pairs": "pairs that were found, each once",
    "neighbours": "nearest rows that were found, of all rows together",
    "recall": "of the true pairs or neighbours, those that were found",
    "recall_low": "the least that it is with a chance of 95 %",
    "recall_high": "the most that it is so",
    "recall_pairs": "true ones by which it was measured, too few below 1,000 unless all are known",
    "selectivity": "neighbours of a point, on average, itself left out",
    "clusters": "clusters that are not empty",
    "largest_cluster": "rows of the largest cluster",
    "copies": "rows of other clusters that the rows of each meet",
    "lists": "lists in Z-order",
    "walked_lists": "of them, those in which a row has its interval",
    "half_walk": "1, where intervals begin behind the row itself, all in one list; else 0",
    "interval_mean": "rows of an interval",
    "interval_median": "the same, of half of the rows at most",
    "interval_p99": "the same, of 99 of 100 rows at most",
    "interval_max": "the same, of any row at most",
    "search_ops": "reads to find cells: queries x 3^indexed x log2(cells)",
    "compare_ops": "coordinates read to compare: dimensions x comparisons",
    "batches": "batches of queries",
    "repeated_batches": "batches that were done again, as their pairs were too many",
    "largest_batch": "pairs of the largest batch",
    "estimated_pairs": "pairs, as they were estimated from a sample",
    "warp_efficiency": "share of a warp's lanes at work while candidates are compared",
    "warp_efficiency_model": "the same, told from workloads alone, if a warp waits for its slowest query",
}
"""The numbers, in the order in which they are told, and what they count."""

Numbers = dict[str, float]
"""Some of those of `ABOUT`, by name."""


def compared_ratio(numbers: Numbers, rows: int) -> Numbers:
    """Return the share of all pairs of points that was compared, where a method tells it."""
    compared = numbers.get("comparisons", numbers.get("candidates"))
    return {} if compared is None or rows < 2 else {"compared_ratio": compared / (rows * (rows - 1) / 2)}


@dataclass(frozen=True)
class Counters:
    """What one run did.

    Attributes
    ----------
    numbers : dict
        By name, see `ABOUT`; what a method does not tell is not there.
    seconds : dict
        Of each step, in the order of the steps.
    """

    numbers: Numbers
    seconds: dict[str, float]


class Profiler(Protocol):
    """Runs methods on arrays of one library, and counts what they do."""

    def profile(self, x: Array, layout: Layout) -> Counters:
        """Join points (n, d) with themselves, keep no pair, and tell what was done."""


HOME = "pandas"
"""The library whose frames and arrays lie on the host."""

MODULES = {
    (HOME, "frames"): "dask_simjoin.engine.cpu.frames",
    (HOME, "join"): "dask_simjoin.engine.cpu.joiner",
    (HOME, "search"): "dask_simjoin.engine.cpu.nearest",
    (HOME, "span"): "dask_simjoin.engine.cpu.spanning",
    (HOME, "profile"): "dask_simjoin.engine.cpu.profile",
    (HOME, "sets"): "dask_simjoin.sets.cpu.joiner",
    (HOME, "encoding"): "dask_simjoin.sets.cpu.kernels.encoding",
    (HOME, "splitting"): "dask_simjoin.sets.cpu.kernels.encoding",
    ("cudf", "frames"): "dask_simjoin.engine.gpu.frames",
    ("cudf", "join"): "dask_simjoin.engine.gpu.joiner",
    ("cudf", "search"): "dask_simjoin.engine.gpu.nearest",
    ("cudf", "span"): "dask_simjoin.engine.gpu.spanning",
    ("cudf", "profile"): "dask_simjoin.engine.gpu.joiner",
    ("cudf", "sets"): "dask_simjoin.sets.gpu.joiner",
}
"""What does a job for a data frame library: its module's FRAMES, JOINER, ..., or kernels."""

LIBRARIES = tuple(name for name, job in MODULES if job == "frames")


def library(frame: Frame) -> str:
    """The data frame library that a frame's class is of, or derived from."""
    names = [base.__module__.partition(".")[0] for base in type(frame).__mro__]
    return next((name for name in names if name in LIBRARIES), names[0])


def frames_of_library(name: str) -> Frames:
    """What reads and makes frames of a data frame library."""
    frames: Frames = _module(name, "frames").FRAMES
    return frames


def frames_for(frame: Frame) -> Frames:
    """What reads and makes frames like one (a partition, a column or an index, or an empty example)."""
    return frames_of_library(library(frame))


def joiner_of_library(name: str) -> Joiner:
    """What joins chunks of a data frame library."""
    joiner: Joiner = _module(name, "join").JOINER
    return joiner


def joiner_for(frame: Frame) -> Joiner:
    """What joins chunks of frames like one."""
    return joiner_of_library(library(frame))


def searcher_of_library(name: str) -> Searcher:
    """What searches chunks of a data frame library for nearest neighbors."""
    searcher: Searcher = _module(name, "search").SEARCHER
    return searcher


def searcher_for(frame: Frame) -> Searcher:
    """What searches chunks of frames like one for nearest neighbors."""
    return searcher_of_library(library(frame))


def spanner_for(frame: Frame) -> Spanner:
    """What finds spanning trees of chunks of frames like one."""
    spanner: Spanner = _module(library(frame), "span").SPANNER
    return spanner


def profiler_of_library(name: str) -> Profiler:
    """What counts what joins of chunks of a data frame library do."""
    profiler: Profiler = _module(name, "profile").PROFILER
    return profiler


@functools.cache
def method_module(name: str, library: str) -> Any:
    """Load what a method does with chunks of a library: a `CpuMethod` or a `GpuMethod`."""
    return _load(METHODS[name].modules[library])


def search_layout_of(method: str | Method, library: str, lower: np.ndarray, upper: np.ndarray,
                     variance: np.ndarray, norm: Norm, approximate: bool) -> MethodSearch | None:  # fmt: skip
    """Return the layout of a search by the method's own module: see `SearchMethod`; None: tiles search."""
    options = as_method(method)
    if options is None or not options.has_search:
        return None
    module: SearchMethod = method_module(name_of(options), library)
    return module.search_layout(options, lower, upper, variance, norm, approximate)


def recall_module(method: str | Method) -> Any:
    """Load what estimates the recall of a method that may lose pairs or neighbors."""
    options = as_method(method)
    assert options is not None and options.recall_module is not None
    return _load(options.recall_module)


def host_joiner() -> Joiner:
    """What joins NumPy arrays: for what is small and lies on the client."""
    return joiner_of_library(HOME)


def host_kernels(name: str) -> ModuleType:
    """A module of the host's kernels: for what is done there, wherever chunks lie."""
    return _load(f"dask_simjoin.engine.cpu.kernels.{name}")


def spreader_of(x: Array) -> ModuleType:
    """Load what tells how the columns of an array are spread: its `bounds` and `spread`."""
    return _load(f"dask_simjoin.engine.{'cpu.frames' if module_of(x) is np else 'gpu.arrays'}")


def set_joiner_of_library(name: str) -> Any:
    """What joins blocks of sets of a data frame library: a `SetJoiner`, which only their room knows."""
    return _module(name, "sets").JOINER


def encoding_kernels() -> ModuleType:
    """The kernels that encode sets: on the host, wherever their blocks then lie."""
    return _module(HOME, "encoding")


def splitting_kernels() -> ModuleType:
    """The kernels that split texts into tokens: on the host, too."""
    return _module(HOME, "splitting")


def _module(name: str, job: str) -> ModuleType:
    if name not in LIBRARIES:
        raise UnsupportedFrameError(
            f"Frames of {name!r} cannot be joined; those of pandas and cuDF can: use "
            "ddf.to_backend('pandas')."
        )
    return _load(MODULES[name, job])


def _load(name: str) -> ModuleType:
    with not_collecting():
        return importlib.import_module(name)
