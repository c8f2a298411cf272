"""Neighbours as sparse matrices: equal to the definition, and what scikit-learn makes
of them.
"""

import sys

import dask
import dask.dataframe as dd
import numpy as np
import pytest
from dask.delayed import Delayed
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.errors import (
    BudgetError,
    CoordinateError,
    OptionError,
    OptionTypeError,
)
from dask_simjoin.tasks import csr
from tests.support.frames import split
from tests.support.oracle import roots, squared_distances
from tests.support.points import cases, frame_of
from tests.support.profiles import examples, in_turns

sparse = pytest.importorskip("scipy.sparse")
sklearn_cluster = pytest.importorskip("sklearn.cluster")
neighbors = pytest.importorskip("sklearn.neighbors")

MODES = ["distance", "connectivity"]


def by_definition(x, eps, itself=False, mode="distance"):
    """Offsets, columns and values; rows with NaN have no neighbour."""
    with np.errstate(invalid="ignore"):
        squared = squared_distances(x, x)
        near = squared <= eps * eps
    if not itself:
        np.fill_diagonal(near, False)
    values = roots(squared) if mode == "distance" else np.ones(squared.shape)
    row, column = np.nonzero(near)
    order = np.lexsort((column, values[row, column], row))
    row, column = row[order], column[order]
    return np.append(0, near.sum(1).cumsum()), column, values[row, column]


def check(graph, want):
    """The matrix is that one, in form too."""
    assert type(graph) is sparse.csr_matrix and graph.shape == (len(want[0]) - 1,) * 2
    assert graph.data.dtype == np.float64
    assert graph.indptr.dtype == graph.indices.dtype == np.int64
    for found, wanted in zip(
        (graph.indptr, graph.indices, graph.data), want, strict=True
    ):
        assert found.tolist() == wanted.tolist()
    graph.check_format()


@in_turns(1, sizes=[(1 << 22, 0.0), (50, 0.0), (1 << 22, 1e12)], itself=[False, True])
def test_pairs_that_are_kept_more_than_was_thought_or_counted_before(
    monkeypatch, sizes, itself
):
    most, expected = sizes
    x = np.random.default_rng(3).normal(size=(300, 6))
    x[::40, 2] = np.nan
    kept, make = [], csr._list_pairs
    monkeypatch.setattr(csr, "PAIRS_AT_ONCE", most)
    monkeypatch.setattr(
        csr, "_list_pairs", lambda block_pair: kept.append(make(block_pair)) or kept[-1]
    )
    of_chunk = csr.graph_of_chunk
    monkeypatch.setattr(
        csr, "graph_of_chunk", lambda *args: of_chunk(*args[:-1], expected)
    )
    found = frame_of(x).simjoin.neighbor_graph(1.5, include_self=itself, dropna=True)
    check(found, by_definition(x, 1.5, itself))
    assert [part is None for part in kept] == ([most == 50] if expected == 0 else [])


@settings(max_examples=examples(50))
@given(
    cases(max_dims=9, max_points=60),
    st.sampled_from(MODES),
    st.booleans(),
    st.sampled_from([4, 20, 1000]),
    st.sampled_from(["entity", "spatial", "auto"]),
)
def test_any_points(case, mode, itself, rows, partitioning):
    frame = frame_of(case.x)
    want = by_definition(case.x, case.eps, itself, mode)
    options = {"mode": mode, "include_self": itself}
    check(frame.simjoin.neighbor_graph(case.eps, **options), want)
    blocksize = rows * (8 * case.x.shape[1] + 20)
    how = {"partitioning": partitioning, "blocksize": blocksize}
    graph = split(frame, case.cuts).simjoin.neighbor_graph(case.eps, **options, **how)
    with dask.config.set(scheduler="sync"):
        check(graph.compute(), want)


@pytest.fixture(scope="module")
def points():
    """Lattice points, many of them equal, in no order, with gaps; and a distance."""
    rng = np.random.default_rng(0)
    frame = frame_of(rng.integers(0, 25, (700, 2)) / 8)
    frame.loc[::13, "c1"] = np.nan
    frame.index = rng.integers(0, 9, len(frame))  # labels repeat, and do not matter
    return frame.assign(name=[f"row {k}" for k in range(len(frame))]), 0.25


@in_turns(1, partitioning=[None, "entity", "spatial", "replicated"], mode=list(MODES))
def test_rows_left_out_are_empty(points, partitioning, mode):
    frame, eps = points
    options = {"id": "name", "dropna": True, "mode": mode, "include_self": True}
    want = by_definition(frame[["c0", "c1"]].to_numpy(), eps, True, mode)
    if partitioning is None:
        check(frame.simjoin.neighbor_graph(eps, **options), want)
        return
    ddf = dd.from_pandas(frame.reset_index(drop=True), npartitions=6)
    for blocksize in (None, "3 kB"):
        how = {"partitioning": partitioning, "blocksize": blocksize}
        if blocksize and partitioning == "replicated":
            continue
        check(ddf.simjoin.neighbor_graph(eps, **options, **how).compute(), want)


def test_zeros_are_stored():
    graph = frame_of(np.zeros((5, 2))).simjoin.neighbor_graph(0.0)
    assert graph.nnz == 20 and not graph.data.any()
    assert (
        frame_of(np.zeros((5, 2))).simjoin.neighbor_graph(0.0, include_self=True).nnz
        == 25
    )


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("itself", [False, True])
def test_few_rows(rows, itself):
    frame = frame_of(np.arange(rows, dtype=float)[:, None])
    want = by_definition(frame.to_numpy(), 1.0, itself)
    check(frame.simjoin.neighbor_graph(1.0, include_self=itself), want)
    for partitioning in ("entity", "spatial"):
        lazy = split(frame, [min(1, rows)]).simjoin.neighbor_graph(
            1.0, include_self=itself, partitioning=partitioning
        )
        check(lazy.compute(), want)


def test_squares_of_distances(points):
    frame = points[0].dropna()
    graph = frame.simjoin.neighbor_graph(0.125, metric="sqeuclidean")
    offsets, columns, _ = by_definition(frame[["c0", "c1"]].to_numpy(), np.sqrt(0.126))
    x = frame[["c0", "c1"]].to_numpy()
    row = np.repeat(np.arange(len(x)), np.diff(offsets))
    check(graph, (offsets, columns, squared_distances(x, x)[row, columns]))


# --- scikit-learn
# ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dense():
    """A frame of rows that have many neighbours, some of them equal."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(k, 0.1, (150, 2)) for k in range(3)])
    return frame_of(np.concatenate([x, x[:40]]))


def test_it_is_taken_as_it_is(dense):
    for mode in MODES:
        graph = dense.simjoin.neighbor_graph(0.5, mode=mode)
        # neither sorted nor copied
        assert neighbors._base._check_precomputed(graph) is graph


# before 1.9, scikit-learn puts zeros on the diagonal and then says itself that rows are
# not sorted
of_the_diagonal = pytest.mark.filterwarnings(
    "ignore:Precomputed sparse input was not sorted by row values"
)


@of_the_diagonal
@pytest.mark.parametrize("lazy", [False, True])
def test_dbscan_of_the_graph(dense, lazy):
    graph = (
        dd.from_pandas(dense, npartitions=3) if lazy else dense
    ).simjoin.neighbor_graph(0.2)
    graph = graph.compute() if lazy else graph
    for eps, min_samples in ((0.2, 5), (0.05, 4), (0.02, 2)):
        tool = sklearn_cluster.DBSCAN(
            eps=eps, min_samples=min_samples, metric="precomputed"
        )
        assert (
            tool.fit(graph).labels_.tolist()
            == dense.simjoin.dbscan(eps, min_samples).tolist()
        )


@of_the_diagonal
def test_optics_of_the_graph(dense):
    graph = dense.simjoin.neighbor_graph(0.5)
    tool = sklearn_cluster.OPTICS(
        min_samples=5, max_eps=0.5, metric="precomputed", cluster_method="dbscan"
    )
    tool.fit(graph)
    want = dense.simjoin.optics(0.5, 5)
    assert tool.ordering_.tolist() == np.argsort(want.ordering.to_numpy()).tolist()
    # rounded to 15 decimals: distances of the graph, and roots of the points
    np.testing.assert_allclose(tool.reachability_, want.reachability, 0, 2e-15)
    np.testing.assert_allclose(tool.core_distances_, want.core_distance, 0, 2e-15)
    assert tool.predecessor_.tolist() == want.predecessor.tolist()


def test_neighbors_of_the_graph(dense):
    want = dense.simjoin.k_distances(4).tolist()
    counts = dense.simjoin.neighbor_counts(0.1).tolist()
    tool = neighbors.NearestNeighbors(n_neighbors=4, radius=0.1, metric="precomputed")
    # asked for neighbours of its own rows, it counts on the rows themselves
    for rows, itself in ((None, True), (dense.simjoin.neighbor_graph(0.5), False)):
        tool.fit(dense.simjoin.neighbor_graph(0.5, include_self=itself))
        assert tool.kneighbors(rows)[0][:, -1].tolist() == want
        near = tool.radius_neighbors(rows, return_distance=False)
        assert [len(some) for some in near] == counts


# --- lazy
# -----------------------------------------------------------------------------------------

CALLS = []


def counted(number):
    CALLS.append(number)
    return frame_of(np.arange(10.0)[:, None] + 10 * number)


def test_lazy():
    CALLS.clear()
    ddf = dd.from_map(counted, range(3), meta=frame_of(np.zeros((0, 1))))
    graph = ddf.simjoin.neighbor_graph(1.0, blocksize="200 B", partitioning="entity")
    again = ddf.simjoin.neighbor_graph(1.0, blocksize="200 B", partitioning="entity")
    other = ddf.simjoin.neighbor_graph(1.0, mode="connectivity")
    assert isinstance(graph, Delayed) and graph.key == again.key != other.key
    number = graph.nnz
    assert not CALLS
    with dask.config.set(scheduler="sync"):
        assert number.compute() == 58
        assert dask.delayed(lambda made: made.shape)(graph).compute() == (30, 30)
        kept, total = dask.persist(graph)[0], graph.sum().compute()
        assert kept.compute().nnz == total == 58
    names = {
        str(key if isinstance(key, str) else key[0]).rpartition("-")[0]
        for key in graph.dask
    }
    steps = {"", "_count", "_number", "_fits", "_fill", "_names", "_gather", "_rows"}
    assert {f"simjoin_neighbor_graph{step}" for step in steps} <= names


def test_on_a_cluster(client, points):
    frame, eps = points
    ddf = dd.from_pandas(frame.reset_index(drop=True), npartitions=5)
    want = by_definition(frame[["c0", "c1"]].to_numpy(), eps)
    for partitioning in ("entity", "spatial"):
        how = {"partitioning": partitioning, "blocksize": "6 kB", "dropna": True}
        graph = ddf.simjoin.neighbor_graph(eps, **how)
        check(
            graph.compute()
            if partitioning == "entity"
            else client.compute(graph).result(),
            want,
        )
    with (
        dask.config.set({"simjoin.result-limit": "1 kB"}),
        pytest.raises(BudgetError, match="an estimated"),
    ):
        ddf.simjoin.neighbor_graph(eps, **how).compute()


# --- refusals
# -------------------------------------------------------------------------------------


def test_wrong_options(dense):
    with pytest.raises(
        OptionError, match="mode='both' is not allowed; use one of 'distance', 'conn"
    ):
        dense.simjoin.neighbor_graph(1.0, mode="both")
    with pytest.raises(OptionTypeError, match="include_self=1"):
        dense.simjoin.neighbor_graph(1.0, include_self=1)
    with pytest.raises(OptionTypeError, match="no option 'pairs'"):
        dense.simjoin.neighbor_graph(1.0, pairs="both")
    with pytest.raises(CoordinateError, match="c1"):
        dense.assign(c1=np.nan).simjoin.neighbor_graph(1.0)


@pytest.mark.parametrize("lazy", [False, True])
def test_without_scipy(dense, lazy, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    frame = dd.from_pandas(dense, npartitions=2) if lazy else dense
    with pytest.raises(
        ModuleNotFoundError, match=r"Neighbor graphs need scipy.*pip install scipy"
    ):
        frame.simjoin.neighbor_graph(1.0)


# --- entries
# --------------------------------------------------------------------------------------
