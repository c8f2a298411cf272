"""The option `--all`; and modules whose examples need CuPy and cuDF, and cannot be
collected everywhere.
"""

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

# keep bytecode, whatever images say: tests start dozens of processes, which would
# compile all modules each
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

HERE = Path(__file__).parent
NEEDS = re.compile(r"^import (cupy|cudf)$", re.MULTILINE)
ON_GPU = [
    *(
        path
        for path in (HERE / "dask_simjoin").glob("**/gpu/**/*.py")
        if NEEDS.search(path.read_text())
    ),
    *(HERE / "dask_simjoin/sets/gpu").glob("*.py"),
    *(HERE / "tests").rglob("sanitized.py"),
    *(HERE / "tests/support").glob("gpu_*.py"),
    *(HERE / "tests/checks").glob("gpu_*.py"),
]

LEFT_OUT = (
    set() if all(map(importlib.util.find_spec, ("cudf", "cupy"))) else set(ON_GPU)
)


def pytest_ignore_collect(collection_path):
    """Leave out modules that cannot be imported here."""
    return True if collection_path in LEFT_OUT else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Look for no examples in docstrings of tests, which would all be gone through, and
    have none.
    """
    found = yield
    return [
        one
        for one in found
        if not (isinstance(one, DoctestModule) and file_path.name.startswith("test_"))
    ]


def pytest_addoption(parser):
    """Offer to run what takes long."""
    parser.addoption(
        "--all",
        action="store_true",
        help="run tests marked slow too, and all examples of every property",
    )


def pytest_collection_modifyitems(config, items):
    """Leave out what is marked slow, unless all is asked for."""
    if config.getoption("--all"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
