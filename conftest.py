"""Modules whose examples cannot be collected everywhere: those of the GPU need CuPy and cuDF."""

import importlib.util

ON_GPU = [
    "dask_simjoin/backends/gpu.py",
    "dask_simjoin/backends/gpu_engine.py",
    "dask_simjoin/backends/gpu_nearest.py",
    "dask_simjoin/backends/gpu_order.py",
    "dask_simjoin/backends/gpu_pairs.py",
    "dask_simjoin/kernels/cuda/load.py",
    "tests/sanitized.py",
    "tests/support/gpu_frames.py",
    "tests/support/gpu_kernels.py",
]

there = all(importlib.util.find_spec(name) for name in ("cudf", "cupy"))
collect_ignore = [] if there else ON_GPU
