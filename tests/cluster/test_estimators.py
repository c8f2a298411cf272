"""Estimators as scikit-learn has them: its checks, its attributes, and results like its
own.
"""

import subprocess
import sys

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.cluster import DBSCAN, HDBSCAN, OPTICS, points_estimator
from dask_simjoin.errors import (
    OptionError,
    OptionTypeError,
)
from dask_simjoin.neighbors import (
    KNeighborsTransformer,
    NearestNeighbors,
    RadiusNeighborsTransformer,
)
from dask_simjoin.planning.resources import plain_threads
from dask_simjoin.tasks import local
from tests.cluster.algorithms.test_dbscan import labels_of
from tests.support.density import SETS
from tests.support.points import cases, frame_of
from tests.support.profiles import examples

sklearn_cluster = pytest.importorskip("sklearn.cluster")
sklearn_neighbors = pytest.importorskip("sklearn.neighbors")
checks = pytest.importorskip("sklearn.utils.estimator_checks")

X = np.random.default_rng(0).uniform(size=(200, 2))
KINDS = [
    DBSCAN,
    OPTICS,
    HDBSCAN,
    NearestNeighbors,
    KNeighborsTransformer,
    RadiusNeighborsTransformer,
]


# one of the checks has fewer rows than columns
@pytest.mark.filterwarnings("ignore:The table has:dask_simjoin.errors.ColumnsWarning")
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_checks_of_scikit_learn(kind):
    found = checks.check_estimator(kind(), on_skip=None, on_fail=None)
    failed = {
        one["check_name"]: one["exception"]
        for one in found
        if one["status"] == "failed"
    }
    assert not failed and len(found) > 30


def used_threads(monkeypatch):
    """The numbers of threads that drivers of plain frames are made with, in order."""
    used = []

    def noted(settings):
        used.append(plain_threads(settings))
        return used[-1]

    monkeypatch.setattr(local, "plain_threads", noted)
    return used


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n_jobs", "threads"), [(None, 5), (3, 3), (-1, 4), (-2, 3), (-9, 1)]
)
def test_jobs_are_threads(kind, n_jobs, threads, monkeypatch):
    monkeypatch.setattr(points_estimator, "allowed_cores", lambda: 4)
    used = used_threads(monkeypatch)
    with dask.config.set(num_workers=5):
        found = kind(n_jobs=n_jobs).fit(X)
        if hasattr(found, "kneighbors"):
            found.kneighbors(X[:9])
            found.radius_neighbors(X[:9])
        if hasattr(found, "predict"):
            found.predict(X[:9])
    assert set(used) == {threads} and found.get_params()["n_jobs"] == n_jobs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n_jobs", "error", "message"),
    [
        (0, OptionError, "^n_jobs == 0 in Parallel has no meaning; use None, a number"),
        ("2", OptionTypeError, "^n_jobs='2' is not allowed; use None, a number"),
        (1.0, OptionTypeError, "^n_jobs=1.0 is not allowed"),
        (True, OptionTypeError, "^n_jobs=True is not allowed"),
    ],
)
def test_other_numbers_of_jobs_are_refused(kind, n_jobs, error, message):
    with pytest.raises(error, match=message):
        kind(n_jobs=n_jobs).fit(X)


def test_jobs_of_environments_and_lazy_data(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    used = used_threads(monkeypatch)
    expected = DBSCAN(0.05, n_jobs=-1).fit_predict(X)
    assert used == [1]
    lazy = DBSCAN(0.05, n_jobs=2).fit_predict(da.from_array(X, chunks=(50, 2)))
    np.testing.assert_array_equal(lazy.compute(), expected)


def test_jobs_within_jobs(monkeypatch):
    joblib, used = pytest.importorskip("joblib"), used_threads(monkeypatch)
    with joblib.parallel_backend("threading", n_jobs=2):
        fits = [joblib.delayed(DBSCAN(0.05, n_jobs=n).fit)(X) for n in (None, None, 3)]
        joblib.Parallel()(fits)
    assert sorted(used) == [1, 1, 3]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    [
        "check_estimators_empty_data_messages",
        "check_complex_data",
        "check_estimator_sparse_array",
        "check_parameters_default_constructible",
        "check_set_params",
    ],
)
def test_some_of_these_checks(kind, name):
    """Those that compile nothing."""
    getattr(checks, name)(kind.__name__, kind())


@settings(max_examples=examples(60))
@given(cases(max_dims=4, max_points=60), st.integers(1, 8), st.integers(0, 99))
def test_core_rows_and_weights(case, min_samples, seed):
    """As scikit-learn's, of weights that it sums without rounding."""
    if (
        not len(case.x)
        or not case.eps
        or np.abs(case.x).max() > 1e9
        or np.abs(case.x).min() < 1e-9
    ):
        return
    x = case.x.astype(np.float64)
    weights = np.random.default_rng(seed).integers(-2, 6, len(x)) / 4 + 0.25
    if not weights.any():
        return
    made = sklearn_cluster.DBSCAN(
        eps=case.eps, min_samples=min_samples, algorithm="kd_tree"
    )
    for given_weights in (None, weights):
        want = made.fit(x, sample_weight=given_weights)
        found = DBSCAN(eps=case.eps, min_samples=min_samples).fit(
            x, sample_weight=given_weights
        )
        near = np.sort(((x[:, None] - x[None]) ** 2).sum(-1).ravel())
        tied = (
            (near > case.eps**2 * (1 - 1e-12)) & (near < case.eps**2 * (1 + 1e-12))
        ).any()
        if tied:  # they decide in other ways there
            continue
        assert found.core_sample_indices_.tolist() == want.core_sample_indices_.tolist()
        assert found.components_.tolist() == want.components_.tolist()
        assert found.labels_.tolist() == want.labels_.tolist()


def test_weights():
    x = np.array([[0.0], [1.0], [5.0], [6.0], [7.0]])
    weights = [2, 1, 0.25, 0.5, 0.25]
    for kind in (np.asarray, pd.DataFrame):
        made = DBSCAN(eps=1.0, min_samples=3).fit(kind(x), sample_weight=weights)
        assert np.asarray(made.labels_).tolist() == [0, 0, -1, -1, -1]
        assert made.core_sample_indices_.tolist() == [0, 1]
    assert made.components_.equals(pd.DataFrame(x[:2]))
    repeated = DBSCAN(eps=1.0, min_samples=3).fit(np.repeat(x, [2, 1, 1, 1, 1], axis=0))
    weighted = DBSCAN(eps=1.0, min_samples=3).fit(x, sample_weight=[2, 1, 1, 1, 1])
    assert (
        repeated.labels_[[0, 2, 3, 4, 5]].tolist()
        == weighted.labels_.tolist()
        == [0, 0, 1, 1, 1]
    )
    hole = np.array([[0.0], [np.nan], [1.0], [9.0]])
    made = DBSCAN(eps=1.0, min_samples=3, dropna=True).fit(
        hole, sample_weight=[1, 9, 2, 1]
    )
    assert made.labels_.tolist() == [0, -1, 0, -1]
    assert made.components_.tolist() == [[0.0], [1.0]]
    assert made.core_sample_indices_.tolist() == [0, 2]
    huge = DBSCAN(eps=1.0, min_samples=3).fit(x, sample_weight=[1e300, 1, 1, 1, 1])
    assert huge.core_sample_indices_.tolist() == [0, 1]


def test_weights_that_are_refused():
    for weights, text in (
        ([1.0], r"has shape \(1,\), and there are 200 rows"),
        (np.full(200, np.nan), "NaN or infinite"),
        (np.zeros(200), "only zeros, so no row has a weight"),
        (np.full(200, 1e308), "beyond the largest float64"),
    ):
        with pytest.raises(OptionError, match=text):
            DBSCAN().fit(X, sample_weight=weights)
    for weights in (["much"] * 200, np.full(200, 1j)):
        with pytest.raises(OptionTypeError, match="values that are not real numbers"):
            DBSCAN().fit(X, sample_weight=weights)
    with pytest.raises(OptionTypeError, match="in memory"):
        DBSCAN().fit(da.from_array(X), sample_weight=np.ones(200))


def test_estimator():
    x, eps, min_samples = SETS["moons"]
    want = labels_of(x, eps, min_samples)
    tool = DBSCAN(eps, min_samples=min_samples)
    assert isinstance(tool.fit_predict(x), np.ndarray)
    assert tool.fit_predict(x).tolist() == want and tool.n_features_in_ == 2
    lazy = tool.fit_predict(da.from_array(x, chunks=(500, 1)))
    assert isinstance(lazy, da.Array) and lazy.shape == (len(x),)
    assert lazy.compute().tolist() == want
    frame = frame_of(x).assign(other=1.0)
    assert tool.set_params(on=["c0", "c1"]).fit(frame).labels_.tolist() == want
    labels = tool.fit(dd.from_pandas(frame, npartitions=3)).labels_
    assert labels.compute().tolist() == want


def test_parameters():
    tool = DBSCAN(2.0).set_params(min_samples=7, blocksize="1 MiB")
    assert tool.get_params()["min_samples"] == 7 and tool.get_params()["eps"] == 2.0
    with pytest.raises(ValueError, match=r"(no|Invalid) parameter 'samples'"):
        tool.set_params(samples=3)
    with pytest.raises(OptionError, match="min_samples=0"):
        DBSCAN(1.0, min_samples=0).fit(np.zeros((3, 2)))


def test_numbers_as_objects():
    labels = DBSCAN(eps=0.1).fit_predict(X)
    assert DBSCAN(eps=0.1).fit_predict(X.astype(object)).tolist() == labels.tolist()
    with pytest.raises(TypeError, match="must be a string or a real number"):
        DBSCAN().fit(np.array([[{}, 1.0]], object))


def test_names_of_columns():
    frame = pd.DataFrame(X, columns=["x", "y"]).assign(name="a")
    for kind in KINDS:
        made = kind().fit(frame)
        assert (
            made.feature_names_in_.tolist() == ["x", "y"] and made.n_features_in_ == 2
        )
        assert not hasattr(made.fit(X), "feature_names_in_")
    lazy = DBSCAN().fit(dd.from_pandas(frame, npartitions=2))
    assert lazy.feature_names_in_.tolist() == ["x", "y"]


@pytest.mark.slow
@pytest.mark.processes
def test_without_scikit_learn():
    """It is optional, and not imported before an estimator is asked for."""
    program = """
import sys
import dask_simjoin
assert "sklearn" not in sys.modules
sys.modules["sklearn"] = None
import numpy as np
from dask_simjoin.cluster import DBSCAN
from dask_simjoin.neighbors import KNeighborsTransformer, NearestNeighbors, RadiusNeighborsTransformer
made = DBSCAN(eps=1.5, min_samples=2)
assert made.set_params(min_samples=1).get_params()["min_samples"] == 1
assert repr(made) == "DBSCAN(eps=1.5, min_samples=1)"
try:
    made.set_params(radius=1)
except ValueError as error:
    assert "Invalid parameter 'radius'" in str(error)
assert made.fit_predict(np.array([[0.0], [1.0], [9.0]])).tolist() == [0, 0, 1]
try:
    NearestNeighbors().kneighbors()
except ValueError as error:
    assert "not fitted" in str(error)
made = RadiusNeighborsTransformer(radius=1.0)
assert made.fit_transform([[0.0], [1.0], [5.0]]).toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
assert made.get_feature_names_out().tolist() == [f"radiusneighborstransformer{i}" for i in range(3)]
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
