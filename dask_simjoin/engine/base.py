"""The choice of what serves a frame: modules are loaded by name here, once they are chosen."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import numpy as np

from dask_simjoin.engine.collecting import not_collecting
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.methods import METHODS
from dask_simjoin.engine.profile import Profiler
from dask_simjoin.engine.protocols import Frames, Joiner
from dask_simjoin.engine.searcher import Searcher
from dask_simjoin.engine.spanner import Spanner
from dask_simjoin.errors import UnsupportedFrameError
from dask_simjoin.metrics.types import Array, Frame

HOME = "pandas"
"""The library whose frames and arrays lie on the host."""

MODULES = {
    (HOME, "frames"): "dask_simjoin.engine.cpu.frames",
    (HOME, "join"): "dask_simjoin.engine.cpu.joiner",
    (HOME, "search"): "dask_simjoin.engine.cpu.nearest",
    (HOME, "span"): "dask_simjoin.engine.cpu.spanning",
    (HOME, "profile"): "dask_simjoin.engine.cpu.profile",
    (HOME, "sets"): "dask_simjoin.sets.algorithms.cpu.joiner",
    (HOME, "encoding"): "dask_simjoin.sets.algorithms.cpu.kernels.encoding",
    (HOME, "splitting"): "dask_simjoin.sets.algorithms.cpu.kernels.splitting",
    ("cudf", "frames"): "dask_simjoin.engine.gpu.frames",
    ("cudf", "join"): "dask_simjoin.engine.gpu.joiner",
    ("cudf", "search"): "dask_simjoin.engine.gpu.nearest",
    ("cudf", "span"): "dask_simjoin.engine.gpu.spanning",
    ("cudf", "profile"): "dask_simjoin.engine.gpu.profile",
    ("cudf", "sets"): "dask_simjoin.sets.algorithms.gpu.joiner",
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
    """What searches chunks of a data frame library for nearest neighbours."""
    searcher: Searcher = _module(name, "search").SEARCHER
    return searcher


def searcher_for(frame: Frame) -> Searcher:
    """What searches chunks of frames like one for nearest neighbours."""
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


def host_joiner() -> Joiner:
    """What joins NumPy arrays: for what is small and lies on the client."""
    return joiner_of_library(HOME)


def host_kernels(name: str) -> ModuleType:
    """A module of the host's kernels: for what is done there, wherever chunks lie."""
    return _load(f"dask_simjoin.engine.cpu.kernels.{name}")


def spreader_of(x: Array) -> ModuleType:
    """Load what tells how the columns of an array are spread: its `bounds` and `spread`."""
    own = "cpu" if module_of(x) is np else "gpu"
    return _load(f"dask_simjoin.engine.{own}.spread")


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
