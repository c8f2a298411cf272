"""Fixtures that cross tests."""

import importlib.util
import os

# one core a task: helper threads of linear algebra would only disturb
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import dask
import pytest
from distributed import Client, LocalCluster
from hypothesis import settings

pytest.register_assert_rewrite("tests.support")

import dask_simjoin  # noqa: F401  (registers the accessor)
from dask_simjoin.engine.methods import METHODS
from tests.support import profiles  # noqa: F401  (registers them)

settings.load_profile("quick")

COMPILED = pytest.StashKey()
"""What was compiled for the tests of a GPU."""


def pytest_configure(config):
    """Choose how many examples are tried, before the modules of tests ask for it."""
    if config.getoption("--all"):
        settings.load_profile("full")


def pytest_collection_modifyitems(items):
    """Skip what needs a GPU where there is none; put last what starts processes: kernels are there then."""
    items.sort(key=lambda item: "client" in item.fixturenames or bool(item.get_closest_marker("processes")))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    cupy = importlib.import_module("cupy") if marked and importlib.util.find_spec("cupy") else None
    if cupy is None or not cupy.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session", autouse=True)
def compiled_ahead(request):
    """Compile what tests of the GPU run, from their first to their last, while they run.

    Several processes share the tests, and what is compiled by way of CuPy's folder on disk: each would
    compile all.
    """
    items = [] if "PYTEST_XDIST_WORKER" in os.environ else request.session.items
    marked = [
        item for item in items if item.get_closest_marker("gpu") and not item.get_closest_marker("skip")
    ]
    if not marked:
        yield
        return
    kernels = importlib.import_module("tests.support.gpu_kernels")
    told = kernels.Compiled()
    modules = dict.fromkeys(item.module for item in marked if isinstance(item, pytest.Function))
    with kernels.ahead(kernels.programs_of(modules), told):
        yield
    request.config.stash[COMPILED] = told


def pytest_terminal_summary(terminalreporter, config):
    """Say what was compiled for the tests of a GPU."""
    if COMPILED in config.stash:
        terminalreporter.write_line(config.stash[COMPILED].in_words())


@pytest.fixture(scope="session")
def two_workers():
    """A cluster of two processes, for all tests that leave it as it is."""
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def mortal_workers():
    """Another, of which workers are killed: each comes back as another process."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 10}),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
    ):
        yield cluster


@pytest.fixture
def client(two_workers):
    """Its client, with which Dask computes during one test."""
    with Client(two_workers) as client:
        yield client


@pytest.fixture(params=list(METHODS))
def method(request):
    """Every engine."""
    return request.param


@pytest.fixture(params=["pandas", "dask-1", "dask-3"])
def how(request):
    """A plain frame, or one of 1 or 3 partitions: for `support.frames.lay`."""
    return request.param
