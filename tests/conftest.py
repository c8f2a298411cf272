"""Fixtures that cross tests."""

import importlib.util
import os

# one core a task: helper threads of linear algebra would only disturb
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.support")

import dask_simjoin  # noqa: F401  (registers the accessor)

settings.register_profile(
    "dask_simjoin", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("dask_simjoin")


def pytest_collection_modifyitems(items):
    """Skip what needs a GPU where there is none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    cupy = importlib.import_module("cupy") if marked and importlib.util.find_spec("cupy") else None
    if cupy is None or not cupy.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(params=["sweep", "tiles"])
def method(request):
    """Every engine."""
    return request.param


@pytest.fixture(params=["pandas", "dask-1", "dask-3"])
def how(request):
    """A plain frame, or one of 1 or 3 partitions: for `support.frames.lay`."""
    return request.param
