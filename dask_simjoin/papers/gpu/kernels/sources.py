"""Lists the CUDA C++ files of the published methods; needs neither CuPy nor a GPU."""

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
"""Name of each ``.cu`` file here -> files that precede it, from this package and from the engine."""

SOURCES = {
    name: Source("dask_simjoin.papers.gpu.kernels", (*own, f"{name}.cu"), ("common.cuh", *engine))
    for name, (own, engine) in SHARED.items()
}
