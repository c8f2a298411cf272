"""The CUDA C++ of set joins; needs neither CuPy nor a GPU."""

from __future__ import annotations

from dask_simjoin.engine.gpu.kernels.sources import Source

NAMES = ("verify", "bitmaps", "index", "groups")
"""Files of this package, ``.cu``."""

SOURCES = {name: Source("dask_simjoin.sets.gpu.kernels", ("sets.cuh", f"{name}.cu")) for name in NAMES}
"""The files that each program is compiled from."""
