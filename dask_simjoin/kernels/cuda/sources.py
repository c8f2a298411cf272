"""The CUDA C++ of the kernels, and how it is compiled; needs neither CuPy nor a GPU."""

from __future__ import annotations

import functools
from importlib import resources

SHARED = {
    "tiles": ("components.cuh",),
    "tensor": ("components.cuh", "tensor.cuh"),
    "finish": (),
    "regions": (),
    "components": ("components.cuh",),
    "order": (),
    "nearest": ("nearest.cuh",),
    "nearest_tensor": ("tensor.cuh", "nearest.cuh"),
}
"""Files of this package, ``.cu``, and what each of them shares with others besides ``common.cuh``."""

NAMES = tuple(SHARED)


@functools.cache
def source(name: str) -> str:
    """The text of one of them, with what it shares with others before it."""
    here = resources.files("dask_simjoin.kernels.cuda")
    return "\n".join((here / file).read_text() for file in ("common.cuh", *SHARED[name], f"{name}.cu"))


def options(**constants: int) -> tuple[str, ...]:
    """What NVRTC is told: named constants, and to keep subnormal numbers."""
    return ("-std=c++17", "-ftz=false", *(f"-D{name}={int(value)}" for name, value in constants.items()))
