"""One-dimensional and masked input of estimators."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dask_simjoin
from dask_simjoin.cluster import DBSCAN, HDBSCAN, OPTICS
from dask_simjoin.errors import (
    CoordinateError,
    OptionError,
    OptionTypeError,
    UnsupportedFrameError,
)
from dask_simjoin.neighbors import KNeighborsTransformer, NearestNeighbors
from tests.support.profiles import every_nth

FRAME = pd.DataFrame({"x": np.arange(20.0), "y": 0.0})
ESTIMATORS = [
    DBSCAN(eps=1.5, min_samples=2),
    OPTICS(1.5, min_samples=2, cluster_method="dbscan"),
    HDBSCAN(3),
    NearestNeighbors(n_neighbors=2),
    KNeighborsTransformer(n_neighbors=2),
]
ONE_DIMENSIONAL = [
    FRAME.iloc[0],
    FRAME["x"],
    FRAME["x"].index,
    dd.from_pandas(FRAME, npartitions=2)["x"],
    pa.chunked_array([[1.0, 2.0]]),
]


@pytest.mark.parametrize("kind", [type(one) for one in ESTIMATORS])
def test_unknown_parameters_are_explained(kind):
    start = rf"{kind.__name__}\(\) has no option"
    with pytest.raises(OptionTypeError, match=rf"{start} 'metric_params'. For metric="):
        kind(metric_params={})
    with pytest.raises(
        OptionTypeError, match=rf"{start} 'metrics' .did you mean 'metr"
    ):
        kind(metrics="cosine")
    assert kind(p=3.0).get_params()["p"] == 3.0

    class Own(kind):
        def __init__(self, **options):
            super().__init__(**options)

    assert Own(p=3.0).p == 3.0


@pytest.mark.parametrize("rows", ONE_DIMENSIONAL, ids=lambda one: type(one).__name__)
def test_one_dimension_is_refused(rows):
    for estimator in ESTIMATORS:
        with pytest.raises(UnsupportedFrameError, match=r"X is a .* has one dimension"):
            estimator.fit(rows)
    neighbors = NearestNeighbors(n_neighbors=2).fit(FRAME)
    for query in (
        neighbors.kneighbors,
        neighbors.radius_neighbors,
        KNeighborsTransformer(n_neighbors=2).fit(FRAME).transform,
        HDBSCAN(3).fit(FRAME).predict,
    ):
        with pytest.raises(UnsupportedFrameError, match="has one dimension"):
            query(rows)


def test_other_one_dimensional_input_is_refused():
    neighbors = NearestNeighbors(n_neighbors=2).fit(FRAME)
    with pytest.raises(UnsupportedFrameError, match=r"or X\.to_frame\(\)\.T if it is"):
        neighbors.kneighbors(FRAME.iloc[0])
    for rows in (pa.array([1.0, 2.0]), [1.0, 2.0], np.ma.array([1.0, 2.0])):
        with pytest.raises(OptionError, match="X of shape"):
            neighbors.kneighbors(rows)
    polars = pytest.importorskip("polars")
    with pytest.raises(UnsupportedFrameError, match=r"X is a polars\.Series"):
        neighbors.kneighbors(polars.Series([1.0, 2.0]))


def masked(values, *rows):
    """A masked array with masked rows."""
    made = np.ma.masked_array(values)
    made[list(rows)] = np.ma.masked
    return made


@pytest.mark.parametrize(
    "dtype", every_nth(4, ["f4", "f8", "i4", "i8", "u1", ">f4", ">i4", ">u2"])
)
def test_masked_numbers_are_missing(dtype):
    values = FRAME.to_numpy().astype(dtype)
    hidden = masked(values, 3)
    for rows in (hidden, list(hidden), tuple(hidden)):
        for estimator in ESTIMATORS:
            with pytest.raises(CoordinateError, match="missing"):
                estimator.fit(rows)
    for query in (
        NearestNeighbors(n_neighbors=2).fit(values).kneighbors,
        HDBSCAN(3).fit(values).predict,
    ):
        for rows in (hidden, list(hidden)):
            with pytest.raises(CoordinateError, match="missing"):
                query(rows)
    labels = DBSCAN(eps=1.5, min_samples=2, dropna=True).fit(hidden).labels_
    assert labels.tolist() == [0] * 3 + [-1] + [1] * 16
    lazy = DBSCAN(eps=1.5, min_samples=2, dropna=True).fit(da.from_array(hidden, 10))
    assert lazy.labels_.compute().tolist() == labels.tolist()
    with pytest.raises(CoordinateError, match="missing"):
        dask_simjoin.count_pairs(hidden, 1.5)


def test_suggested_remedies_for_masked_numbers_work():
    X = masked(FRAME.to_numpy(), 3)
    with pytest.raises(CoordinateError, match=r"such as X\.filled\(0\)"):
        DBSCAN(eps=1.5, min_samples=2).fit(X)
    with pytest.raises(CoordinateError) as error:
        NearestNeighbors(n_neighbors=2).fit(X)
    code = str(error.value).rpartition(" with ")[2].removesuffix(".")
    rest = eval(code, {"np": np, "X": X})
    assert NearestNeighbors(n_neighbors=2).fit(rest).n_samples_fit_ == 19


def test_errors_about_new_rows_name_no_table():
    model = NearestNeighbors(n_neighbors=2).fit(FRAME)
    for query in (
        model.kneighbors,
        model.radius_neighbors,
        HDBSCAN(3).fit(FRAME).predict,
    ):
        with pytest.raises(CoordinateError, match=r"^Coordinates must be finite"):
            query(FRAME.mask(FRAME["x"] == 3))


def test_masks_without_masked_numbers_change_nothing():
    values = FRAME.to_numpy()
    model = DBSCAN(eps=1.0, min_samples=2)
    for rows in (np.ma.masked_array(values), [np.ma.masked_array(x) for x in values]):
        assert model.fit(rows).labels_.tolist() == [0] * 20


def test_masked_integers_keep_their_digits():
    large = masked([[2**60], [2**60 + 1], [0]], 2)
    with pytest.raises(CoordinateError, match=r"missing|float64|2\*\*53"):
        dask_simjoin.count_pairs(large, 0.5, dropna=True)


@pytest.mark.parametrize("kind", ["i8", ">i8"])
def test_masked_fields_are_missing(kind):
    made = np.ma.array(
        [(1, 2.0), (2, 3.0)], dtype=[("a", kind), ("b", "f8")], mask=[(0, 0), (1, 0)]
    )
    with pytest.raises(CoordinateError, match="missing"):
        dask_simjoin.count_pairs(made, 9)
    assert dask_simjoin.count_pairs(made, 9, dropna=True) == 0


def test_masked_weights_are_refused():
    weights = masked(np.ones(20), 3)
    with pytest.raises(OptionError, match="sample_weight= has masked numbers"):
        DBSCAN(eps=1.0).fit(FRAME, sample_weight=weights)


def with_gaps(kind):
    """Two rows without coordinates."""
    return kind(FRAME.mask(FRAME["x"].isin([3, 5])))


def told(call, *args):
    with pytest.raises(CoordinateError) as caught:
        call(*args)
    return str(caught.value)


@pytest.mark.parametrize("kind", [pd.DataFrame, np.array])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_missing_values_are_told_what_pipelines_do(estimator, kind):
    x = with_gaps(kind)
    for call in (estimator.fit, getattr(estimator.fit(FRAME), "transform", None)):
        if call is not None:
            text = told(call, x)
            name = type(estimator).__name__
            step = f"make_pipeline(SimpleImputer(), {name}(...)), with SimpleImputer"
            assert step in text
            assert "Use dropna=True (" not in text
    if hasattr(estimator, "dropna"):
        assert "dropna=True, so that such rows get the label -1." in text
        own = {**estimator.get_params(), "dropna": True}
        labels = type(estimator)(**own).fit(x).labels_
        assert list(labels[np.array([3, 5])]) == [-1, -1]
    else:
        rest = eval(text.rpartition(" with ")[2].removesuffix("."), {"X": x, "np": np})
        assert len(rest) == 18
        estimator.fit(rest)
    pipeline = pytest.importorskip("sklearn.pipeline")
    impute = pytest.importorskip("sklearn.impute")
    pipeline.make_pipeline(impute.SimpleImputer(), estimator).fit(x)


@pytest.mark.parametrize(
    ("x", "metric"), [([[0.0, 0], [1, 1]], "cosine"), ([[np.inf, 0], [1, 1]], None)]
)
def test_rows_that_no_imputer_mends(x, metric):
    x = np.array(x)
    text = told(NearestNeighbors(metric=metric).fit, x)
    assert "imputer" not in text
    rest = eval(text.rpartition(" with ")[2].removesuffix("."), {"X": x, "np": np})
    assert rest.tolist() == [[1, 1]]
    text = told(DBSCAN(metric=metric).fit, pd.DataFrame(x))
    assert text.endswith(" Use dropna=True, so that such rows get the label -1.")
    # of other tables and queries
    fitted = NearestNeighbors(n_neighbors=1, metric=metric).fit(x[1:])
    table = pa.table({"0": x[:, 0], "1": x[:, 1]})
    text = told(NearestNeighbors(metric=metric).fit, table)
    assert text.endswith("Leave out such rows first.")
    assert told(fitted.kneighbors, x).endswith("(axis=1)].")


@pytest.mark.parametrize("lazy", [False, True])
def test_arrays_of_booleans_are_coordinates(lazy):
    """As in scikit-learn, where they are usual for metric="hamming"."""
    x = np.random.default_rng(0).random((40, 6)) < 0.3
    given = da.from_array(x, chunks=(15, 6)) if lazy else x
    how = {"eps": 0.2, "min_samples": 2, "metric": "hamming"}
    found = np.asarray(DBSCAN(**how).fit(given).labels_)
    assert found.tolist() == DBSCAN(**how).fit(x.astype(float)).labels_.tolist()
