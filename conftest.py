"""The option `--all`; and modules whose examples need CuPy and cuDF, and cannot be collected everywhere."""

import importlib.util
import os
import re
import sys
from pathlib import Path

# keep bytecode, whatever images say: tests start dozens of processes, which would compile all modules each
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

HERE = Path(__file__).parent
NEEDS = re.compile(r"^import (cupy|cudf)$", re.MULTILINE)
ON_GPU = [
    *(path for path in (HERE / "dask_simjoin/engine/gpu").rglob("*.py") if NEEDS.search(path.read_text())),
    *(HERE / "dask_simjoin/sets/algorithms/gpu").glob("*.py"),
    *(
        HERE / "tests" / name
        for name in (
            "engine/gpu/sanitized.py",
            "sets/algorithms/gpu/sanitized.py",
            "support/gpu_frames.py",
            "support/gpu_kernels.py",
        )
    ),
]

there = all(importlib.util.find_spec(name) for name in ("cudf", "cupy"))
collect_ignore = [] if there else [str(path) for path in ON_GPU]


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
