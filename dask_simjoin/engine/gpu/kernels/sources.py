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
    "tensor_wide": ("components.cuh", "tensor.cuh", "staged.cuh", "blocks.cuh", "near.cuh", "ring.cuh"),
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
"""Files of this package, ``.cu``, and what each of them shares with others besides ``common.cuh``."""

NAMES = tuple(SHARED)


class Source(NamedTuple):
    """CUDA C++ of another room.

    Attributes
    ----------
    package : str
        Where its files are.
    files : tuple of str
        Names of files, in the order in which they are put together.
    shared : tuple of str
        Files of this package that come before them.
    """

    package: str
    files: tuple[str, ...]
    shared: tuple[str, ...] = ()


class Sink(enum.IntEnum):
    """What kernels do with pairs besides writing or counting them: see `components.cuh`."""

    LINK = 1
    LOWEST = 2


FANOUT = 64
"""Children of a node of the box tree."""

MIXED = 1024
"""Places at which the kernel without tensor cores takes queries side by side: in kd order dense points lie
together, and what is done could not tell what is left."""

OPTIONS = ("-std=c++17",)
"""What NVRTC is told, the same for all: each process asks it for its version for each choice of options, also
where all has been compiled already.  CuPy adds that numbers below 2**-126 are flushed to 0, in float32 only:
points are scaled so that the filters' bounds are far above (see `engine.filters.bounds`)."""


@functools.cache
def _text(name: str | Source) -> str:
    """Return the text of one of them, with what it shares with others and with Python before it."""
    if isinstance(name, str):
        name = Source(HERE, (f"{name}.cu",), ("common.cuh", *SHARED[name]))
    files = [*((HERE, file) for file in name.shared), *((name.package, file) for file in name.files)]
    text = "\n".join((resources.files(package) / file).read_text() for package, file in files)
    return (_defined({"FANOUT": FANOUT, "MIXED": MIXED}) if name.shared else "") + text


def source(name: str | Source, **constants: int) -> str:
    """The text of one of them, or of another room's, made for these values of the constants in it."""
    return _defined(constants) + _text(name)


def _defined(constants: dict[str, int]) -> str:
    return "".join(f"#define {key} {int(value)}\n" for key, value in constants.items())


def norm_constant(norm: Norm) -> dict[str, int]:
    """The constant that tells kernels a norm, if it is another than 2."""
    return {} if norm == 2 else {"NORM": 0 if norm == math.inf else int(norm)}
