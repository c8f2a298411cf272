"""Assembles the CUDA C++ of the kernels from files and constants; needs neither CuPy nor a GPU."""

from __future__ import annotations

import enum
import functools
import math
from importlib import resources
from typing import NamedTuple

from dask_simjoin.metrics.norms import Norm

HERE = "dask_simjoin.engine.gpu.kernels"

SHARED = {
    "tiles": ("components.cuh", "staged.cuh"),
    "tensor": ("components.cuh", "tensor.cuh", "staged.cuh", "blocks.cuh", "near.cuh"),
    "tensor_wide": (
        "components.cuh",
        "tensor.cuh",
        "staged.cuh",
        "blocks.cuh",
        "near.cuh",
        "ring.cuh",
        "decide.cuh",
    ),
    "tensor_hopper": (
        "components.cuh",
        "tensor.cuh",
        "staged.cuh",
        "blocks.cuh",
        "warpgroups.cuh",
        "near.cuh",
        "decide.cuh",
    ),
    "finish": (),
    "regions": (),
    "components": ("components.cuh",),
    "order": (),
    "boxes": (),
    "moments": (),
    "vectors": (),
    "narrow": (),
    "nearest": ("reach.cuh", "nearest.cuh"),
    "nearest_tensor": ("tensor.cuh", "reach.cuh", "nearest.cuh", "blocks.cuh", "query_term.cuh"),
    "spanning": ("reach.cuh", "balls.cuh"),
    "boruvka": (),
    "dendrogram": (),
    "arrays": (),
}
"""Name of each ``.cu`` file here -> the ``.cuh`` files that precede it, besides ``common.cuh``."""

NAMES = tuple(SHARED)


class Source(NamedTuple):
    """A program of another package, in CUDA C++.

    Attributes
    ----------
    package : str
        Package that holds the files.
    files : tuple of str
        Names of its files, in the order of concatenation.
    shared : tuple of str
        Names of files of this package to put before `files`.
    """

    package: str
    files: tuple[str, ...]
    shared: tuple[str, ...] = ()


class Sink(enum.IntEnum):
    """How a join kernel uses pairs, if it neither writes nor counts them: see `components.cuh`."""

    LINK = 1
    LOWEST = 2


FANOUT = 64
"""Number of children of a node in the tree of boxes."""

MIXED = 1024
"""Interleave factor of the query tiles of `tiles.cu`.

Neighbors in kd order have similar numbers of pairs.  So without interleaving, the number of pairs of the
first queries would not predict the number of pairs of the rest.
"""

OPTIONS = ("-std=c++17",)
"""Options of NVRTC for all programs.

All programs share one tuple, because CuPy asks NVRTC for its version once per tuple, even if all programs are
cached.  CuPy adds an option that flushes float32 numbers below 2**-126 to 0.  This does no harm: points are
scaled so that the filters' bounds are far above 2**-126 (see `engine.filters.bounds`).
"""


@functools.cache
def _text(name: str | Source) -> str:
    """Return the text of a program, after the files and constants that it shares with other programs."""
    if isinstance(name, str):
        name = Source(HERE, (f"{name}.cu",), ("common.cuh", *SHARED[name]))
    files = [*((HERE, file) for file in name.shared), *((name.package, file) for file in name.files)]
    text = "\n".join((resources.files(package) / file).read_text() for package, file in files)
    return (_defined({"FANOUT": FANOUT, "MIXED": MIXED}) if name.shared else "") + text


def source(name: str | Source, **constants: int) -> str:
    """Return the text of a program with these constants: a name of this package, or a `Source`."""
    return _defined(constants) + _text(name)


def _defined(constants: dict[str, int]) -> str:
    return "".join(f"#define {key} {int(value)}\n" for key, value in constants.items())


def norm_constant(norm: Norm) -> dict[str, int]:
    """Return the constant that selects a norm in kernels; it is left out for norm 2, the default."""
    return {} if norm == 2 else {"NORM": 0 if norm == math.inf else int(norm)}
