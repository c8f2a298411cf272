"""The CUDA C++ of the kernels, and how it is compiled; needs neither CuPy nor a GPU."""

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
    "nearest": ("reach.cuh", "nearest.cuh"),
    "nearest_tensor": ("tensor.cuh", "reach.cuh", "nearest.cuh", "blocks.cuh", "query_term.cuh"),
    "spanning": ("reach.cuh", "balls.cuh"),
    "boruvka": (),
    "dendrogram": (),
    "arrays": (),
}
"""Name of each ``.cu`` file of this package -> the ``.cuh`` files that it needs besides ``common.cuh``."""

NAMES = tuple(SHARED)


class Source(NamedTuple):
    """CUDA C++ of another package.

    Attributes
    ----------
    package : str
        Package that holds the files.
    files : tuple of str
        Names of files, in the order of concatenation.
    shared : tuple of str
        Files of this package, which come before `files`.
    """

    package: str
    files: tuple[str, ...]
    shared: tuple[str, ...] = ()


class Sink(enum.IntEnum):
    """Uses of pairs other than writing or counting pairs: see `components.cuh`."""

    LINK = 1
    LOWEST = 2


FANOUT = 64
"""Children of a node of the box tree."""

MIXED = 1024
"""Interleave factor of the query order without tensor cores.

Neighbors in kd order have similar numbers of pairs.  Without interleaving, the pairs of the first queries
would not predict the pairs of the rest.
"""

OPTIONS = ("-std=c++17",)
"""Options of NVRTC for all programs.

One tuple serves all programs, because CuPy asks NVRTC for its version once per tuple, even if all programs
are cached.  CuPy adds an option that flushes float32 numbers below 2**-126 to 0.  Points are scaled so that
the filters' bounds are far above 2**-126 (see `engine.filters.bounds`).
"""


@functools.cache
def _text(name: str | Source) -> str:
    """Return the text of a program, preceded by the files and constants that it shares with others."""
    if isinstance(name, str):
        name = Source(HERE, (f"{name}.cu",), ("common.cuh", *SHARED[name]))
    files = [*((HERE, file) for file in name.shared), *((name.package, file) for file in name.files)]
    text = "\n".join((resources.files(package) / file).read_text() for package, file in files)
    return (_defined({"FANOUT": FANOUT, "MIXED": MIXED}) if name.shared else "") + text


def source(name: str | Source, **constants: int) -> str:
    """Return the text of a program of this or another package, for these values of its constants."""
    return _defined(constants) + _text(name)


def _defined(constants: dict[str, int]) -> str:
    return "".join(f"#define {key} {int(value)}\n" for key, value in constants.items())


def norm_constant(norm: Norm) -> dict[str, int]:
    """Return the constant that selects a norm in kernels; none for norm 2."""
    return {} if norm == 2 else {"NORM": 0 if norm == math.inf else int(norm)}
