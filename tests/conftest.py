"""Fixtures that cross tests."""

import bisect
import fcntl
import gc
import importlib.util
import itertools
import os
import signal

# modules and thousands of tests stay, and the compiler makes millions of objects: Python
# need not search them for cycles again and again
gc.set_threshold(200_000, 20, 100)

# one core a task: helper threads of linear algebra would only disturb
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# a shell lets what it runs in the background ignore Ctrl-C, which tests send
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.register_assert_rewrite("tests.support")

import dask_simjoin  # noqa: F401  (registers the accessor)
from dask_simjoin.catalog import METHODS
from tests.support import host_gpu, profiles  # noqa: F401  (registers the profiles)
from tests.support.gates import Gate
from tests.support.paths import ROOT

settings.load_profile("quick")

# clusters that tests share wait most of the time, and would look at themselves 100
# times per second
dask.config.set(
    {
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "1s",
        "distributed.worker.memory.monitor-interval": "500ms",
    }
)

# fork workers from a process that has loaded what they need but for the package itself:
# it takes each 2 s; not where they use GPUs, of which no process may know that others
# are forked from
if importlib.util.find_spec("cupy") is None:
    dask.config.set(
        {
            "distributed.worker.multiprocessing-method": "forkserver",
            "multiprocessing.context": "forkserver",
        }
    )
    get_mp_context().set_forkserver_preload(
        ["dask.dataframe", "distributed", "numba", "pandas", "pyarrow"]
    )

ENDED = itertools.count(1)
"""Modules whose tests have ended, in this process."""

COMPILED = pytest.StashKey()
"""What was compiled for the tests of a GPU."""


def pytest_configure(config):
    """Choose how many examples are tried, before the modules of tests ask for it."""
    if config.getoption("--all"):
        settings.load_profile("full")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Let the first of several processes collect before the others, which then find the
    bytecode of all modules.
    """
    first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    folder = os.open(ROOT, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX if first else fcntl.LOCK_SH)
    try:
        return (yield)
    finally:
        os.close(folder)


def pytest_collection_modifyitems(config, items):
    """Skip what needs a GPU where there is none; order tests so that processes share
    what they start.
    """
    take_turns(items)
    keep_each_value(items)
    items[:] = in_order(items, config.getoption("--all"))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    cupy = (
        importlib.import_module("cupy")
        if marked and importlib.util.find_spec("cupy")
        else None
    )
    if cupy is None or not cupy.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def take_turns(items):
    """Mark slow what tests a function's other parameters once more with another frame:
    see `how`.
    """
    others = {}
    for item in items:
        parameters = dict(item.callspec.params) if hasattr(item, "callspec") else {}
        frame = parameters.pop("how", None)
        if frame in FRAMES and parameters:
            # values are the same objects in all combinations, and need not be hashable;
            # `callspec.indices` counts combinations, since pytest 9
            combination = frozenset((name, id(one)) for name, one in parameters.items())
            seen = others.setdefault((item.path, item.originalname), {})
            if FRAMES.index(frame) != seen.setdefault(combination, len(seen)) % len(
                FRAMES
            ):
                item.add_marker(pytest.mark.slow)


def keep_each_value(items):
    """Mark slow the combinations of parameters that are not needed to test each value
    at least once, except of kernels, filters and metrics.

    The values of one `parametrize` belong together: they are as one value.
    """
    functions = {}
    for item in items:
        folders = item.path.relative_to(ROOT).parts[:2]
        if (
            {"engine", "metrics"}.isdisjoint(folders)
            and hasattr(item, "callspec")
            and item.get_closest_marker("slow") is None
        ):
            functions.setdefault((item.path, item.cls, item.originalname), []).append(
                (item, values_of(item))
            )
    for combinations in functions.values():
        missing = set().union(*(values for _, values in combinations))
        while missing:
            best = max(combinations, key=lambda one: len(one[1] & missing))
            combinations.remove(best)
            missing -= best[1]
        for item, _ in combinations:
            item.add_marker(pytest.mark.slow)


def values_of(item):
    """The values of a test's parameters, by the names that they belong to."""
    parameters = item.callspec.params
    names = {name: (name,) for name in parameters}
    for mark in item.iter_markers("parametrize"):
        together = mark.args[0]
        if isinstance(together, str):
            together = together.replace(",", " ").split()
        names |= dict.fromkeys(together, tuple(together))
    # the same objects in all combinations, which need not be hashable
    return {
        (name, *(id(parameters[each]) for each in name)) for name in set(names.values())
    }


def in_order(items, slow_too):
    """Tests of a cluster before the middle, and what else starts processes last:
    kernels are there then.

    With ``--dist worksteal`` each of two processes begins with one half, and goes on
    with the end of what is left of the other: so each cluster or server that tests
    share is started by one of them.  The second half begins with tests of GPU code, which need
    few kernels of CPUs.  Meanwhile the other process compiles kernels that both would
    compile otherwise.  Spanning trees need some of them, so their tests come last.
    """

    def kind(item):
        fixtures = item.fixturenames
        if "two_workers" in fixtures or "server" in fixtures:
            return "shared"
        if "mortal_workers" in fixtures:
            return "mortal"
        if "client" in fixtures or item.get_closest_marker("processes"):
            return "own"
        return "gpu" if "gpu" in item.path.parts else "none"

    def runs(item):
        return slow_too or item.get_closest_marker("slow") is None

    kinds = {name: [] for name in ("none", "gpu", "shared", "mortal", "own")}
    for item in items:
        kinds[kind(item)].append(item)
    rest, shared = kinds["none"], kinds["shared"]
    first = max(0, len(items) * 7 // 16 - len(shared))
    ordered = [*rest[:first], *shared, *rest[first:], *kinds["mortal"], *kinds["own"]]
    running = list(itertools.accumulate(map(runs, ordered)))
    middle = 1 + bisect.bisect_left(running, sum(map(runs, items)) // 2)
    gpu = sorted(kinds["gpu"], key=lambda item: "spanning" in item.fixturenames)
    return [*ordered[:middle], *gpu, *ordered[middle:]]


def pytest_collection_finish():
    """Let the collector pass by what stays: `gc.collect()` took 0.3 s, of modules and
    of thousands of tests.

    Hypothesis asks the collector once, at its first example, who refers to its random
    numbers.  So the first example comes before.
    """
    given(st.none())(lambda _: None)()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def kept_from_the_collector():
    """Let the collector also pass by what modules leave, most of it of the compiler:
    after some thousand tests, each `gc.collect()` took 0.8 s.

    After every few modules: this collection itself takes 50 ms or more.
    """
    yield
    if next(ENDED) % 16 == 0:
        gc.collect()  # else tables of these modules would stay until the end
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def compiled_ahead(request):
    """Compile what tests of the GPU run, from their first to their last, while they
    run.

    Several processes share the tests, and what is compiled by way of CuPy's folder on
    disk: each would compile all.
    """
    items = [] if "PYTEST_XDIST_WORKER" in os.environ else request.session.items
    marked = [
        item
        for item in items
        if item.get_closest_marker("gpu") and not item.get_closest_marker("skip")
    ]
    if not marked:
        yield
        return
    kernels = importlib.import_module("tests.support.gpu_kernels")
    told = kernels.Compiled()
    modules = dict.fromkeys(
        item.module for item in marked if isinstance(item, pytest.Function)
    )
    with kernels.ahead(kernels.programs_of(modules), told):
        yield
    request.config.stash[COMPILED] = told


def pytest_terminal_summary(terminalreporter, config):
    """Say what was compiled for the tests of a GPU."""
    if COMPILED in config.stash:
        terminalreporter.write_line(config.stash[COMPILED].in_words())


@pytest.fixture(scope="session", autouse=True)
def disks_in_the_background():
    """Let no test of this process wait for a disk, since none cuts the power; check
    file numbers only.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def two_workers():
    """A cluster of two processes, for all tests that leave it as it is."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def mortal_workers():
    """A cluster of two processes, for tests that kill workers.  A killed worker starts
    again.

    Each worker has two threads: if one waits at a gate, the other one still works.
    """
    with (
        dask.config.set(
            {
                "distributed.scheduler.allowed-failures": 10,
                # two that die in 15 s are given up
                "distributed.deploy.lost-worker-timeout": "5 minutes",
            }
        ),
        LocalCluster(
            n_workers=2, threads_per_worker=2, processes=True, dashboard_address=":0"
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def client(two_workers):
    """Its client, with which Dask computes during one test."""
    with Client(two_workers) as client:
        yield client


@pytest.fixture
def in_this_thread():
    """Let Dask compute in the thread of the test."""
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(scope="session")
def kernel_folder(tmp_path_factory):
    """A folder for kernels of GPUs that tests compile for the host, each once, where
    that is possible.
    """
    if not host_gpu.available():
        pytest.skip("there is no g++")
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def tagged():
    """Points in a square, each with one or two tags."""
    x = np.random.default_rng(3).uniform(size=(120, 2))
    return pd.DataFrame(x, columns=["x", "y"]).assign(
        tags=[["a", "b"][k % 2 :] for k in range(120)]
    )


@pytest.fixture
def lazy_tagged(tagged):
    """The same as a Dask DataFrame, computed in the thread of the test."""
    with dask.config.set(
        scheduler="synchronous", **{"dataframe.convert-string": False}
    ):
        yield dd.from_pandas(tagged, npartitions=3)


@pytest.fixture(params=list(METHODS))
def method(request):
    """Every engine."""
    return request.param


@pytest.fixture
def gate(tmp_path):
    """What a run on a cluster waits for in its middle."""
    gate = Gate(tmp_path / "gate")
    gate.close()
    yield gate
    gate.open()  # no worker waits any more


FRAMES = ["pandas", "dask-1", "dask-3"]


@pytest.fixture(params=FRAMES)
def how(request):
    """A plain frame, or one of 1 or 3 partitions: for `support.frames.lay`.

    Frames take turns with the combinations of a test's other parameters, if it has
    some.
    """
    return request.param
