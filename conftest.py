"""The option `--all`; and modules whose examples need CuPy and cuDF, and cannot be collected everywhere."""

import importlib.util

ON_GPU = [
    "dask_simjoin/engine/gpu/frames.py",
    "dask_simjoin/engine/gpu/joiner.py",
    "dask_simjoin/engine/gpu/methods/tiles.py",
    "dask_simjoin/engine/gpu/nearest.py",
    "dask_simjoin/engine/gpu/kdorder.py",
    "dask_simjoin/engine/gpu/pairs.py",
    "dask_simjoin/engine/gpu/kernels/load.py",
    "tests/engine/gpu/sanitized.py",
    "tests/support/gpu_frames.py",
    "tests/support/gpu_kernels.py",
]

there = all(importlib.util.find_spec(name) for name in ("cudf", "cupy"))
collect_ignore = [] if there else ON_GPU


def pytest_addoption(parser):
    """Offer to run what takes long."""
    parser.addoption(
        "--all", action="store_true", help="run tests marked slow too, and all examples of every property"
    )


def pytest_collection_modifyitems(config, items):
    """Leave out what is marked slow, unless all is asked for."""
    if config.getoption("--all"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
