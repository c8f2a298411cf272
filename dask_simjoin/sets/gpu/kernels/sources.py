"""The CUDA C++ sources for joins of sets. This module needs neither CuPy nor a GPU."""

from __future__ import annotations

from dask_simjoin.engine.gpu.kernels.sources import Source

NAMES = ("verify", "bitmaps", "index", "groups")

SOURCES = {name: Source("dask_simjoin.sets.gpu.kernels", ("sets.cuh", f"{name}.cu")) for name in NAMES}
