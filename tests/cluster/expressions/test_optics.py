"""OPTICS, equal to scikit-learn's, and the spanning forest that knows the clusters at
every distance.
"""

import math
import warnings

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

from dask_simjoin.cluster import OPTICS, cluster_optics_dbscan, cluster_optics_xi, local
from dask_simjoin.cluster.expressions import optics as graph_optics
from dask_simjoin.errors import BudgetError, ColumnError, OptionError
from dask_simjoin.planning.limits import Limits
from tests.support.density import SETS
from tests.support.points import frame_of
from tests.support.profiles import every_nth

sklearn_cluster = pytest.importorskip("sklearn.cluster")
sklearn_base = pytest.importorskip("sklearn.base")

NAMES = ["ordering", "reachability", "core_distance", "predecessor"]


def sklearn_optics(x, max_eps, min_samples):
    """What scikit-learn says, as this package says it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = sklearn_cluster.compute_optics_graph(
            x,
            min_samples=min_samples,
            max_eps=max_eps,
            metric="minkowski",
            p=2,
            metric_params=None,
            algorithm="kd_tree",
            leaf_size=30,
            n_jobs=None,
        )
    order, core, reach, predecessor = found
    place = np.empty(len(x), int)
    place[order] = np.arange(len(x))
    return pd.DataFrame(
        dict(zip(NAMES, (place, reach, core, predecessor), strict=True))
    )


def assert_same(found, want):
    assert found.columns.tolist() == NAMES
    assert [str(kind) for kind in found.dtypes] == [
        "int64",
        "float64",
        "float64",
        "int64",
    ]
    for name in NAMES:
        assert found[name].tolist() == want[name].tolist(), name


@st.composite
def points(draw):
    """Points with many ties, and a distance that some pairs have exactly."""
    n, d = draw(st.integers(8, 60)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(
        st.sampled_from(["lattice", "scaled lattice", "tenths", "blobs", "equal"])
    )
    if kind == "blobs":
        x = rng.normal(size=(n, d)) + 4 * rng.integers(0, 3, (n, 1))
    elif kind == "equal":
        x = rng.integers(0, 2, (n, d)).astype(float)
    else:
        x = (
            rng.integers(0, 5, (n, d))
            * {"lattice": 1.0, "scaled lattice": math.sqrt(3) / 7, "tenths": 0.1}[kind]
        )
    unit = (
        1.0
        if kind in ("lattice", "blobs", "equal")
        else float(np.diff(np.unique(x)).min(initial=1.0))
    )
    eps = unit * draw(st.sampled_from([0.5, 1.0, math.sqrt(2), math.sqrt(3), 2.0, 5.0]))
    return x, eps


@pytest.mark.slow
def test_on_a_cluster(client):
    x, eps, min_samples = SETS["moons"]
    x = x[:500]
    want = sklearn_optics(x, 2 * eps, min_samples)
    forest = frame_of(x).simjoin.optics(2 * eps, min_samples, mode="forest")
    ddf = dd.from_pandas(frame_of(x), npartitions=6)
    for partitioning in ("entity", "spatial"):
        how = {"partitioning": partitioning, "blocksize": "9 kB"}
        assert_same(ddf.simjoin.optics(2 * eps, min_samples, **how).compute(), want)
        assert_same(
            ddf.simjoin.optics(2 * eps, min_samples, mode="forest", **how).compute(),
            forest,
        )


def test_rows_left_out():
    frame = frame_of(SETS["moons"][0][:400])
    frame.loc[::9, "c0"] = np.nan
    kept = frame.dropna()
    want = sklearn_optics(kept.to_numpy(), 0.3, 5)
    for mode in ("edges", "forest"):
        plain = frame.simjoin.optics(0.3, 5, dropna=True, mode=mode)
        if mode == "edges":
            rows = np.flatnonzero(frame["c0"].notna())
            before = want["predecessor"].to_numpy()
            want["predecessor"] = np.where(before < 0, before, rows[before])
            assert_same(plain.loc[kept.index], want)
        others = plain.drop(kept.index)
        assert (others == [-1, np.inf, np.inf, -1]).to_numpy().all()
        assert plain.index.equals(frame.index)
        for partitioning in ("entity", "spatial"):
            how = {"partitioning": partitioning, "blocksize": "9 kB", "mode": mode}
            found = (
                dd.from_pandas(frame, npartitions=5)
                .simjoin.optics(0.3, 5, dropna=True, **how)
                .compute()
            )
            assert_same(found, plain)
            assert found.index.equals(frame.index)
            for labels in (
                cluster_optics_dbscan(found, 0.2),
                cluster_optics_xi(found, 5),
            ):
                assert (labels.drop(kept.index) == -1).all() and labels.max() >= 0


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("mode", ["edges", "forest"])
def test_few_rows(rows, mode):
    frame = frame_of(np.zeros((rows, 2)))
    for one in (frame, dd.from_pandas(frame, npartitions=1)):
        found = one.simjoin.optics(1.0, 5, mode=mode)
        found = found if one is frame else found.compute()
        assert found.ordering.tolist() == list(range(rows))
        assert found.predecessor.tolist() == [-1] * rows
        assert (
            np.isinf(found.reachability).all() and np.isinf(found.core_distance).all()
        )


# --- clusters of an order
# -------------------------------------------------------------------------


@pytest.mark.slow
def test_many_samples_of_few_neighbours():
    """Neither memory nor time grows with `min_samples` where rows have not so many
    neighbours.
    """
    frame = frame_of(np.arange(3000.0)[:, None])
    for mode in ("edges", "forest"):
        order = frame.simjoin.optics(1.0, 10**12, mode=mode)
        assert np.isinf(order.core_distance).all() and order.ordering.tolist() == list(
            range(3000)
        )
        lazy = dd.from_pandas(frame, npartitions=3).simjoin.optics(1.0, 4000, mode=mode)
        assert_same(lazy.compute(scheduler="sync"), order)


def test_rows_that_no_worker_can_order_are_refused(monkeypatch):
    lazy = dd.from_pandas(frame_of(np.zeros((400, 2))), npartitions=3)
    monkeypatch.setattr(
        graph_optics, "limits_for", lambda library: Limits(limit=50_000)
    )
    for mode, bytes_ in (("edges", "60 kB"), ("forest", "200 kB")):
        with pytest.raises(
            BudgetError,
            match=rf"all 400 rows in order, which takes {bytes_}.*50 kB",
        ):
            lazy.simjoin.optics(1.0, mode=mode).compute()


def test_bad_options():
    frame = frame_of(np.zeros((9, 2)))
    with pytest.raises(
        OptionError, match=r"max_eps=inf is not allowed; use a finite number"
    ):
        frame.simjoin.optics(math.inf)
    for value in (1, 0, 2.5, True):
        with pytest.raises(
            OptionError, match=r"min_samples=.* is not allowed; use a whole number >= 2"
        ):
            frame.simjoin.optics(1.0, value)
    with pytest.raises(
        OptionError,
        match=r"mode='all' is not allowed; use one of 'auto', 'edges', 'forest'",
    ):
        frame.simjoin.optics(1.0, mode="all")
    for eps in (math.nan, math.inf):
        with pytest.raises(OptionError, match=rf"eps={eps}"):
            cluster_optics_dbscan(frame.simjoin.optics(1.0), eps)
    with pytest.raises(ColumnError, match="no column 'ordering'"):
        cluster_optics_xi(frame, 5)
    with pytest.raises(
        OptionError, match=r"eps=3.0 is not allowed; use at most max_eps=2.0"
    ):
        OPTICS(2.0, eps=3.0, cluster_method="dbscan").fit(np.zeros((9, 2)))
    with pytest.raises(OptionError, match="cluster_method='x'"):
        OPTICS(2.0, cluster_method="x").fit(np.zeros((9, 2)))
    order = frame.simjoin.optics(1.0)
    for some in (order.iloc[3:], pd.concat([order, order])):
        with pytest.raises(ColumnError, match="all rows of one result"):
            cluster_optics_dbscan(some, 1.0)
    for name, values in (
        ("ordering", "a"),
        ("ordering", math.nan),
        ("core_distance", None),
    ):
        with pytest.raises(
            ColumnError, match=rf"'{name}' of dtype .* pass a complete result of optics"
        ):
            cluster_optics_dbscan(order.assign(**{name: values}), 1.0)
    with pytest.raises(
        OptionError, match="xi=3 is not allowed; use a number from 0 to 1"
    ):
        cluster_optics_xi(dd.from_pandas(order, npartitions=2), 5, xi=3)
    for x in (np.zeros(3), np.zeros((2, 2, 2)), da.zeros(3)):
        with pytest.raises(
            OptionError,
            match=r"X of shape .* is not allowed; use a dense array \(n, d\)",
        ):
            OPTICS(2.0).fit(x)


def test_edges_that_do_not_fit_in_memory_are_refused(monkeypatch):
    frame = frame_of(np.random.default_rng(0).uniform(size=(4000, 2)))
    lazy = dd.from_pandas(frame, npartitions=3).simjoin
    monkeypatch.setattr(
        graph_optics, "limits_for", lambda library: Limits(limit=3 * 10**6)
    )
    monkeypatch.setattr(local, "free_memory", lambda: 3 * 10**6)
    for optics in (frame.simjoin.optics, lambda eps: lazy.optics(eps).compute()):
        with pytest.raises(
            BudgetError, match=r"pairs.*take \d[\d.]+ MB.*1.8 MB.*mode='forest'"
        ) as refused:
            optics(0.05)
        assert refused.value.remedies[0].options == {"mode": "forest"}
        assert len(optics(0.01)) == 4000
    assert len(frame.simjoin.optics(0.05, mode="forest")) == 4000


# --- the estimator
# --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", every_nth(4, ["xi", "dbscan"]))
def test_estimator(method):
    x, eps, min_samples = SETS["moons"]
    x = x[:500]
    how = {"max_eps": 2 * eps, "min_samples": min_samples, "cluster_method": method}
    want = sklearn_cluster.OPTICS(algorithm="kd_tree", **how).fit(x)
    tool = OPTICS(**how).fit(x)
    names = ["labels_", "ordering_", "reachability_", "core_distances_", "predecessor_"]
    for name in names:
        assert isinstance(getattr(tool, name), np.ndarray)
        assert getattr(tool, name).tolist() == getattr(want, name).tolist(), name
    assert tool.fit(frame_of(x)).ordering_.tolist() == want.ordering_.tolist()
    assert (
        sklearn_base.is_clusterer(tool)
        and "max_eps=0.2" in repr(tool)
        and sklearn_base.clone(tool).max_eps == 0.2
    )
    frame = frame_of(x).assign(other=1.0, text="a")
    tool.set_params(on=["c0", "c1"])
    assert tool.fit(frame).n_features_in_ == 2
    for one in (frame, dd.from_pandas(frame, npartitions=3)):
        labels = tool.fit_predict(one)
        assert (
            labels if one is frame else labels.compute()
        ).tolist() == want.labels_.tolist()
    lazy = tool.set_params(on=None).fit(da.from_array(x, chunks=(200, 1)))
    assert isinstance(lazy.labels_, da.Array) and lazy.labels_.shape == (len(x),)
    assert lazy.labels_.compute().tolist() == want.labels_.tolist()
    assert lazy.reachability_.compute().tolist() == want.reachability_.tolist()
