"""Modules whose examples cannot be collected everywhere: those of the GPU need CuPy and cuDF."""

import importlib.util

ON_GPU = ["backends/gpu.py", "backends/gpu_engine.py", "kernels/cuda/load.py"]

there = all(importlib.util.find_spec(name) for name in ("cudf", "cupy"))
collect_ignore = [] if there else [f"dask_simjoin/{name}" for name in ON_GPU]
