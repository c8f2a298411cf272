"""Hamming, Canberra and Bray-Curtis: the same pairs as by the formulas, for each verb."""

import math

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import dask_simjoin
from dask_simjoin.cluster import DBSCAN, HDBSCAN, OPTICS
from dask_simjoin.errors import ColumnsWarning, CoordinateError, OptionError
from dask_simjoin.metrics import make_metric
from dask_simjoin.metrics.formulas import places
from dask_simjoin.neighbors import NearestNeighbors
from tests.support.density import labels_of_neighbours
from tests.support.metrics import FORMULAS, make_rows, metric_cases
from tests.support.oracle import as_set, assert_same_pairs, brute_force, totals
from tests.support.points import frame_of
from tests.support.profiles import examples, in_turns

NAMES = [name for name, _ in FORMULAS]


def rows_on_a_lattice(rows, columns=3, seed=0):
    """Return rows with many equal numbers and distances, and some rows of zeros."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 5, (rows, columns)) * 1.0
    x[rng.random(rows) < 0.05] = 0.0
    return pd.DataFrame(x, columns=list("abcdefgh")[:columns])


def laid(frame, way):
    if way == "plain":
        return frame, {}
    lazy = dd.from_pandas(frame, npartitions=3)
    return lazy, {"partitioning": way, "blocksize": 60 * len(frame)}


@pytest.mark.parametrize("metric", NAMES)
def test_scipy_computes_the_same(metric):
    x = make_rows(metric, 40, 7, np.random.default_rng(3)) % 1e3
    want = np.nan_to_num(cdist(x, x, metric))  # SciPy divides 0 by 0
    np.testing.assert_allclose(totals(x, x, metric), want, 1e-13, 1e-15)


@settings(max_examples=examples(400))
@given(
    metric=st.sampled_from(NAMES),
    seed=st.integers(0, 2**32 - 1),
    columns=st.integers(1, 9),
)
def test_pairs_are_candidates(metric, seed, columns):
    rng, kind = np.random.default_rng(seed), make_metric(metric)
    x = make_rows(metric, 12, columns, rng)
    near = x * (1 + rng.choice([0.0, 1e-16, 1e-9, 1e-3, 0.5], x.shape))
    x = np.concatenate([x, np.where(rng.random(x.shape) < 0.7, near, x)])
    at = kind.coordinates(x)
    assert at.shape == (24, columns + kind.more)
    total = totals(x, x, metric)
    apart = np.zeros_like(total)
    for k in range(at.shape[1]):
        apart += np.abs(at[:, None, k] - at[None, :, k])
    limits = [kind.candidates(float(one)) for one in total.ravel()]
    assert (apart.ravel() <= limits).all()
    assert kind.candidates(math.inf) >= apart.max()


def test_places_are_from_zero_to_one():
    x = np.random.default_rng(0).normal(size=(1000, 3)) * [1e-300, 1.0, 1e300]
    found = places(x)
    assert found.min() >= 0 and found.max() <= 1
    assert len(np.unique(found)) == 3000
    assert np.isnan(places(np.array([np.nan, np.inf, -np.inf]))).all()
    zero, other, one = places(np.array([0.0, -0.0, 1.0]))
    assert zero == other == 0 and one > 0.999


@settings(max_examples=examples(60))
@given(
    metric_cases(40, FORMULAS), st.sampled_from(["auto", "sweep", "tiles", "zorder"])
)
def test_any_rows(case, method):
    metric, _, x, eps = case
    if metric == "canberra":
        x = np.clip(x, -(2.0**1000), 2.0**1000)
    # a method without a limit of columns
    method = "auto" if method == "sweep" and x.shape[1] > 2 else method
    frame = frame_of(x)
    how = {"metric": metric, "method": method, "on": list(frame)}
    pairs = frame.simjoin.self_join(eps, return_distance=True, **how)
    assert_same_pairs(as_set(pairs), brute_force(x, eps, metric))
    away = totals(x, x, metric) if len(x) else np.zeros((0, 0))
    assert pairs["distance"].tolist() == away[pairs["left"], pairs["right"]].tolist()


@in_turns(1, metric=NAMES, way=["plain", "entity", "spatial"])
@pytest.mark.parametrize("eps", [1 / 3, 1.0])
def test_verbs(metric, way, eps):
    frame = rows_on_a_lattice(90)
    total = totals(frame.to_numpy(), frame.to_numpy(), metric)
    lazy, how = laid(frame, way)
    how["metric"] = metric
    near = (total <= eps) & ~np.eye(90, dtype=bool)
    pairs, counts, labels, copies, nearest, bounded = dask.compute(
        lazy.simjoin.self_join(eps, keep="a", **how),
        lazy.simjoin.neighbor_counts([eps, eps / 2], **how),
        lazy.simjoin.dbscan(eps, 4, **how),
        lazy.simjoin.near_duplicated(eps, **how),
        lazy.simjoin.knn_join(k=2, **how),
        lazy.simjoin.knn_join(k=2, max_distance=eps, min_distance=eps / 4, **how),
    )
    assert_same_pairs(as_set(pairs), brute_force(frame.to_numpy(), eps, metric))
    wanted = [near.sum(1), ((total <= eps / 2) & near).sum(1)]
    assert counts.to_numpy().T.tolist() == [column.tolist() for column in wanted]
    marks = labels_of_neighbours(near | np.eye(90, dtype=bool), 4)
    assert labels.tolist() == list(marks)
    assert not copies.iloc[0] and copies.any()
    np.fill_diagonal(total, np.inf)
    assert_nearest(nearest, total)
    total[~near | (total < eps / 4)] = np.inf
    assert_nearest(bounded, total)


def assert_nearest(found, total, k=2):
    """Fail if the nearest rows are not those of a matrix of totals."""
    for i, order in enumerate(np.argsort(total, axis=1, kind="stable")[:, :k]):
        rows = found.loc[found["left"] == i].sort_values("rank")
        near = [j for j in order.tolist() if total[i, j] < np.inf]
        assert rows["right"].tolist() == near
        assert rows["distance"].tolist() == total[i, near].tolist()


@pytest.mark.parametrize("metric", NAMES)
def test_two_tables_groups_and_conditions(metric):
    one, other = (rows_on_a_lattice(n, 5, n) for n in (70, 60))
    near = totals(one[["a", "b", "c"]], other[["a", "b", "c"]], metric) <= 0.5
    d, e = (
        np.subtract.outer(one[name].to_numpy(), other[name].to_numpy()) for name in "de"
    )
    how = {"metric": metric, "on": ["a", "b", "c"]}
    for options, allowed in (
        ({"by": "d"}, d == 0),
        ({"within": {"e": 1}, "different": "d"}, (np.abs(e) <= 1) & (d != 0)),
        ({"by": "d", "within": {"e": 1}}, (np.abs(e) <= 1) & (d == 0)),
    ):
        pairs = one.simjoin.join(other, 0.5, **how, **options)
        assert as_set(pairs) == set(zip(*np.nonzero(near & allowed), strict=True))


@pytest.mark.parametrize(
    ("metric", "eps"), [("hamming", 0.9), ("canberra", 0.44), ("braycurtis", 0.17)]
)
def test_groups_are_apart_beside_many_tolerances(metric, eps):
    """Tolerances make more rows candidates, also of other groups."""
    names = list("pqrstuvw")
    frame = pd.DataFrame({"x": [1.0, 1.0, 1.0, 1.0], "g": [0, 1, 0, 2]})
    frame = frame.assign(**dict.fromkeys(names, 0.0))
    how = {"on": "x", "metric": metric, "by": "g", "within": dict.fromkeys(names, 1)}
    assert as_set(frame.simjoin.self_join(eps, **how)) == {(0, 2)}


@pytest.mark.parametrize("metric", NAMES)
def test_own_distances_lists_and_arrays(metric):
    frame = rows_on_a_lattice(60)
    x, radius = frame.to_numpy(), np.arange(60) % 5 / 4
    total = totals(x, x, metric)
    pairs = frame.assign(r=radius).simjoin.self_join(
        "r", on=list("abc"), metric=metric, pairs="both"
    )
    near = (total <= radius[:, None]) & ~np.eye(60, dtype=bool)
    assert as_set(pairs) == set(zip(*np.nonzero(near), strict=True))
    want = brute_force(x, 0.4, metric)
    lists = pd.DataFrame({"v": list(x)})
    assert as_set(lists.simjoin.self_join(0.4, on="v", metric=metric)) == want
    assert as_set(dask_simjoin.self_join(x, 0.4, metric=metric)) == want
    with dask.config.set({"dataframe.convert-string": False}):
        lazy = dd.from_pandas(lists, npartitions=2)
        pairs = lazy.simjoin.self_join(0.4, on="v", metric=metric)
        assert as_set(pairs.compute()) == want
        assert "3: the numbers of each list" in repr(
            lazy.simjoin.plan(0.4, on="v", metric=metric)
        )


@pytest.mark.parametrize("metric", NAMES)
def test_estimators(metric):
    x = rows_on_a_lattice(60).to_numpy()
    near = totals(x, x, metric) <= 0.3
    labels = DBSCAN(0.3, min_samples=4, metric=metric).fit(x).labels_
    assert labels.tolist() == list(labels_of_neighbours(near, 4))
    model = NearestNeighbors(n_neighbors=3, radius=0.3, metric=metric).fit(x)
    away, _ = model.kneighbors(x)
    want = np.sort(totals(x, x, metric), axis=1)[:, :3]
    assert away.tolist() == want.tolist()
    assert (model.radius_neighbors_graph(x).toarray() > 0).tolist() == near.tolist()
    core = np.sort(totals(x, x, metric), axis=1)[:, 3]
    core[core > 0.3] = np.inf
    found = OPTICS(max_eps=0.3, min_samples=4, metric=metric).fit(x).core_distances_
    assert found.tolist() == core.tolist()
    with pytest.raises(OptionError, match="is not supported here"):
        HDBSCAN(metric=metric).fit(x)


def test_what_equal_rows_and_zeros_have():
    rows = pd.DataFrame({"a": [0.0, -0.0, 0.0, 3.0], "b": [0.0, 0.0, 2.0, 2.0]})
    for metric, wanted in (
        ("hamming", [0, 0.5, 1, 0.5, 1, 0.5]),
        ("canberra", [0, 1, 2, 1, 2, 1]),
        ("braycurtis", [0, 1, 1, 1, 1, 3 / 7]),
    ):
        pairs = rows.simjoin.self_join(5.0, metric=metric, return_distance=True)
        found = pairs.sort_values(["left", "right"])["distance"]
        assert found.tolist() == wanted
    bools = rows > 0
    assert bools.simjoin.count_pairs(0.5, on=["a", "b"], metric="hamming") == 4


@pytest.mark.parametrize("verb", ["closest_pairs", "hdbscan"])
def test_verbs_that_refuse_these_metrics(verb):
    for metric in NAMES:
        with pytest.raises(OptionError) as caught:
            getattr(rows_on_a_lattice(9).simjoin, verb)(3, metric=metric)
        text = str(caught.value)
        assert f"metric={metric!r} is not supported here, but in self_join()" in text
        assert "Use one of 'euclidean', " in text


def test_what_is_refused_at_the_call(tmp_path):
    verbs = rows_on_a_lattice(9).simjoin
    for call, text in (
        (lambda: verbs.index(0.1, tmp_path / "i", metric="canberra"), "not supported"),
        (lambda: verbs.spanning_tree(metric="hamming"), "is not supported here"),
        (lambda: verbs.self_join(0.1, metric="hamming", box=9), "box=9 is not allowed"),
        (lambda: verbs.knn_join(k=1, metric="hamming", ties="all"), "ties='all'"),
        (
            lambda: verbs.self_join(0.1, metric="canberra", approximate=True),
            "metric='canberra' is not allowed with approximate=True",
        ),
        (lambda: verbs.self_join(0.1, metric="bray_curtis"), "mean 'braycurtis'"),
    ):
        with pytest.raises(OptionError) as caught:
            call()
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("metric", "value"), [("braycurtis", -2.0), ("canberra", 1e305)]
)
def test_numbers_that_a_formula_does_not_allow(metric, value):
    frame = rows_on_a_lattice(9)
    frame.loc[4, "b"] = value
    lists = pd.DataFrame({"v": list(frame.to_numpy())})
    for some, name in ((frame, "b"), (dd.from_pandas(frame, 2), "b"), (lists, "v")):
        with pytest.raises(CoordinateError) as caught:
            dask.compute(
                some.simjoin.self_join(
                    0.1, on=None if name == "b" else name, metric=metric
                )
            )
        assert (
            f"Column {name!r} has 1 value outside this range: for example {value!r} at "
            "label 4" in str(caught.value)
        )


def test_hamming_compares_booleans_by_default():
    frame = pd.DataFrame({"a": [True, False, True], "b": [True, True, True], "c": 1.0})
    options = {"metric": "hamming", "return_distance": True}
    want = frame.astype(float).simjoin.self_join(0.5, **options)
    assert frame.simjoin.self_join(0.5, **options).equals(want)
    found = frame.simjoin.join(frame, 0.1, metric="hamming")
    assert sorted(found.left) == [0, 0, 1, 2, 2]
    only = dask_simjoin.self_join(frame[["a", "b"]].to_numpy(), 0.1, metric="hamming")
    assert only[["left", "right"]].values.tolist() == [[0, 2]]


@pytest.mark.parametrize("metric", NAMES)
def test_k_distances(metric):
    rows = rows_on_a_lattice(40)
    both = {"metric": metric, "pairs": "both", "return_distance": True}
    pairs = rows.simjoin.self_join(1e3, **both)
    want = pairs.groupby("left")["distance"].nsmallest(4).groupby("left").max()
    for data in (rows, dd.from_pandas(rows, npartitions=3)):
        found = data.simjoin.k_distances(4, metric=metric)
        assert dask.compute(found)[0].tolist() == want.tolist()


@pytest.mark.parametrize("columns", [1, 3])
def test_candidates_of_hamming_differ_in_whole_columns(columns):
    hamming = make_metric("hamming", 2)
    for different in range(columns + 1):
        exact = different / columns
        for eps in (exact, np.nextafter(exact, 2)):
            assert hamming.reached(eps, columns) == (exact if eps < 1 else eps)
        if different:
            less = hamming.reached(np.nextafter(exact, 0), columns)
            assert less == (different - 1) / columns


def test_hamming_of_a_single_column_is_not_for_bits():
    """Only equal rows are pairs, and other rows are not compared."""
    hashes = np.random.default_rng(5).integers(0, 2**50, 20_000)
    hashes[:9] = 7
    frame = pd.DataFrame({"hash": hashes})
    with pytest.warns(ColumnsWarning, match="only equal rows are within eps=0.1") as w:
        assert frame.simjoin.count_pairs(0.1, on="hash", metric="hamming") == 36
    assert "numpy.unpackbits(df['hash']" in str(w[0].message)
    frame["hash"] = frame["hash"].astype("uint64") + 2**63
    with pytest.raises(CoordinateError, match="counts unequal columns, not bits") as e:
        frame.simjoin.count_pairs(0, on="hash", metric="hamming")
    text = str(e.value)
    assert "astype('float64')" not in text
    code = text.split("per bit: x = ")[1].split(". Then")[0]
    x = eval(code, {"numpy": np, "df": frame[:100]})
    different = (x[:, None] != x).sum(axis=2)
    assert (different == np.bitwise_count(hashes[:100, None] ^ hashes[:100])).all()
