"""CUDA C++ files of the published methods, and their shared files; needs neither CuPy nor a GPU."""

from __future__ import annotations

from dask_simjoin.engine.gpu.kernels.sources import Source

SHARED = {
    "grid": ((), ("components.cuh",)),
    "nested": (("meet.cuh",), ("components.cuh",)),
    "zorder": (("meet.cuh", "zkeys.cuh"), ("components.cuh",)),
    "zorder_nearest": (("zkeys.cuh",), ()),
    "clusters": (("apart.cuh",), ()),
    "members": (("meet.cuh", "apart.cuh"), ("components.cuh",)),
}
"""Files of this package, ``.cu``, with the files that each includes from this package and from the engine."""

SOURCES = {
    name: Source("dask_simjoin.papers.gpu.kernels", (*own, f"{name}.cu"), ("common.cuh", *engine))
    for name, (own, engine) in SHARED.items()
}
