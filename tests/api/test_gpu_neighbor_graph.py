"""Matrices of neighbours of cuDF frames, equal to those of pandas."""

import dask
import numpy as np
import pytest

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")
dask_cudf = pytest.importorskip("dask_cudf")
sparse = pytest.importorskip("cupyx.scipy.sparse")

from dask.base import is_dask_collection

from dask_simjoin.errors import BudgetError
from dask_simjoin.tasks import csr
from dask_simjoin.tasks import csr as entries
from tests.support.gpu_programs import join_programs
from tests.support.points import frame_of

pytestmark = pytest.mark.gpu

EPS = 0.125


def programs():
    return join_programs([3], labels=[False])


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    points = frame_of(rng.integers(0, 20, (900, 3)) / 16)
    points.loc[::11, "c1"] = np.nan
    return points


def computed(graph):
    """The matrix; it must be one of the GPU."""
    graph = graph.compute(scheduler="sync") if is_dask_collection(graph) else graph
    assert isinstance(graph, sparse.csr_matrix)
    assert graph.indptr.dtype == graph.indices.dtype == np.int32
    return graph


@pytest.mark.parametrize("partitioning", [None, "auto", "entity", "spatial"])
@pytest.mark.parametrize("mode", ["distance", "connectivity"])
@pytest.mark.parametrize("itself", [False, True])
def test_graphs_are_those_of_pandas(frame, partitioning, mode, itself):
    options = {"dropna": True, "mode": mode, "include_self": itself}
    want = frame.simjoin.neighbor_graph(EPS, **options)
    there = cudf.from_pandas(frame)
    if partitioning is not None:
        there = dask_cudf.from_cudf(there, npartitions=4)
        options |= {"partitioning": partitioning, "blocksize": "8 kB"}
    found = computed(there.simjoin.neighbor_graph(EPS, **options))
    assert found.shape == want.shape
    for a, b in (
        (found.indptr, want.indptr),
        (found.indices, want.indices),
        (found.data, want.data),
    ):
        assert (a.get() == b).all()


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows(rows):
    there = cudf.from_pandas(frame_of(np.arange(rows, dtype=float)[:, None]))
    for some in (there, dask_cudf.from_cudf(there, npartitions=1)):
        assert computed(some.simjoin.neighbor_graph(1.0)).nnz == rows * (rows - 1)


def test_in_slices(frame, monkeypatch):
    want = frame.simjoin.neighbor_graph(EPS, dropna=True)
    monkeypatch.setattr(entries, "PAIRS_AT_ONCE", 100)
    found = computed(cudf.from_pandas(frame).simjoin.neighbor_graph(EPS, dropna=True))
    assert (found.indices.get() == want.indices).all() and (
        found.data.get() == want.data
    ).all()


def test_a_graph_that_does_not_fit_is_refused(frame, monkeypatch):
    there = cudf.from_pandas(frame)
    with (
        dask.config.set({"simjoin.result-limit": "1 kB"}),
        pytest.raises(BudgetError, match="result-limit"),
    ):
        there.simjoin.neighbor_graph(EPS, dropna=True)
    monkeypatch.setattr(csr, "max_entries", lambda xp: 100)
    with pytest.raises(BudgetError, match="at most 100, because its indices are int32"):
        there.simjoin.neighbor_graph(EPS, dropna=True)


def test_what_this_cupy_can_hold():
    limit = csr.max_entries(cupy)
    assert limit in (None, 2**31 - 1)
