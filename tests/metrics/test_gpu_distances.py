"""Every metric, and columns of lists, on cuDF frames: what pandas frames say, to the
last bit.
"""

import math

import numpy as np
import pandas as pd
import pytest

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")
dask_cudf = pytest.importorskip("dask_cudf")

from dask.base import is_dask_collection

from dask_simjoin.catalog import lists_of
from dask_simjoin.engine.columns import extremes, vectors
from dask_simjoin.errors import ColumnError, CoordinateError, OptionError
from dask_simjoin.metrics import METRICS, make_metric, sphere
from tests.metrics.test_inverse import KINDS, totals_of
from tests.support.gpu_frames import lay
from tests.support.gpu_programs import join_programs
from tests.support.metrics import ENGINE, make_rows
from tests.support.oracle import as_set, assert_same_pairs, brute_force, distances
from tests.support.paths import PLACES
from tests.support.points import frame_of

pytestmark = pytest.mark.gpu

HOW = ["cudf", "dask-1", "dask-4"]
ON = ["latitude", "longitude"]


def programs():
    plain = join_programs([3], ["float32", "float64"]) + join_programs(
        [24], ["float16"]
    )
    return plain + [
        one
        for norm in (1, math.inf, 3)
        for one in join_programs([3], ["float64"], norm=norm)
    ]


def computed(result):
    """The result on the host."""
    result = result.compute(scheduler="sync") if is_dask_collection(result) else result
    return result.to_pandas() if hasattr(result, "to_pandas") else result


def assert_same_bits(found, want):
    assert isinstance(found, cupy.ndarray) and found.dtype == np.float64
    np.testing.assert_array_equal(found.get().view(np.int64), want.view(np.int64))


# --- embeddings
# -----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 7, 384])
@pytest.mark.parametrize("order", "CF")
def test_unit_vectors_of_the_cosine_metric(d, order):
    rng = np.random.default_rng(d)
    x = rng.normal(size=(5000, d)) * 2.0 ** rng.integers(-1070, 1020, (5000, 1))
    x[:999] = rng.normal(size=(999, d)) * 2.0 ** rng.integers(-1070, 1020, (999, d))
    x[(x == 0).all(axis=1)] = 1.0
    want = np.ascontiguousarray(make_metric("cosine").embed(x, np))
    found = make_metric("cosine").embed(cupy.array(x, order=order), cupy)
    assert_same_bits(cupy.ascontiguousarray(found), want)


def test_rows_without_direction_become_nan_and_only_those():
    rows = np.array(
        [[0.0, -0.0], [1, 0], [np.nan, 1], [1, np.inf], [-np.inf, np.inf], [0, 5e-324]]
    )
    found = make_metric("cosine").embed(cupy.asarray(rows), cupy)
    assert cupy.isfinite(found).all(axis=1).tolist() == [
        False,
        True,
        False,
        False,
        False,
        True,
    ]


def test_unit_vectors_of_places():
    rng = np.random.default_rng(0)
    ends = np.array([[90.0, 5], [-90, 7], [0, 180], [0, -180], [-0.0, -0.0], [45, 135]])
    tiny = rng.uniform(-1, 1, (5000, 2)) * 10.0 ** rng.uniform(-320, 0, (5000, 2))
    x = np.concatenate([rng.uniform(-1, 1, (100_000, 2)) * [90, 180], tiny, ends])
    want = np.ascontiguousarray(sphere.unit_vectors(x, np))
    assert_same_bits(
        cupy.ascontiguousarray(sphere.unit_vectors(cupy.asarray(x), cupy)), want
    )
    wrong = cupy.array([[np.nan, 0.0], [0, np.inf], [91, 0], [1e300, -1e308]])
    found = sphere.unit_vectors(wrong, cupy)
    assert cupy.isfinite(found).all(axis=1).tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("metric", "p"), [(name, 2) for name in METRICS] + [("minkowski", 3)]
)
def test_thresholds_of_arrays(metric, p):
    eps = np.concatenate(
        [[0.0, 2.0, 2.1, 1e300], 10.0 ** np.random.default_rng(0).uniform(-9, 8, 5000)]
    )
    with np.errstate(over="ignore"):
        want = make_metric(metric, p).threshold(eps)
    assert_same_bits(make_metric(metric, p).threshold(cupy.asarray(eps), cupy), want)


@pytest.mark.parametrize(("metric", "p"), KINDS)
def test_distances_of_totals(metric, p):
    totals, kind = totals_of(metric, 3), make_metric(metric, p)
    there = cupy.asarray(totals)
    want = kind.distance(totals.copy(), np)
    assert_same_bits(kind.distance(there.copy(), cupy), want)
    if kind.embeds:
        for size in (1000.0, math.pi / 180):
            want = kind.in_unit(totals.copy(), size, np)
            assert_same_bits(kind.in_unit(there.copy(), size, cupy), want)


# --- verbs
# ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("metric", "p"), ENGINE)
@pytest.mark.parametrize("partitioning", ["auto", "entity", "spatial"])
def test_all_verbs(metric, p, how, partitioning):
    x = make_rows(metric, 400, 3, np.random.default_rng(3))
    frame = frame_of(x)
    there = lay(cudf.from_pandas(frame), how)
    away = distances(x, x, metric, p)
    options = {"metric": metric, "p": p, "partitioning": partitioning}
    options |= {} if partitioning == "auto" else {"blocksize": "4 kB"}
    near = np.sort(away[np.isfinite(away)])
    for eps in (0.0, float(near[min(len(x) * 12, len(near) - 1)])):
        want = brute_force(x, eps, metric, p)
        found = computed(there.simjoin.self_join(eps, return_distance=True, **options))
        assert_same_pairs(as_set(found), want)
        assert found.distance.tolist() == away[found.left, found.right].tolist()
        counts = frame.simjoin.neighbor_counts(eps, metric=metric, p=p)
        assert (
            computed(there.simjoin.neighbor_counts(eps, **options)).tolist()
            == counts.tolist()
        )
        assert int(computed(there.simjoin.count_pairs(eps, **options))) == len(want)
        labels = frame.simjoin.dbscan(eps, 3, metric=metric, p=p)
        assert (
            computed(there.simjoin.dbscan(eps, 3, **options)).tolist()
            == labels.tolist()
        )


@pytest.mark.parametrize("how", HOW)
def test_places(how):
    places = pd.read_parquet(PLACES)[ON]
    want = places.simjoin.self_join(5e3, on=ON, metric="haversine")
    found = lay(cudf.from_pandas(places), how).simjoin.self_join(
        5e3, on=ON, metric="haversine"
    )
    assert_same_pairs(as_set(computed(found)), as_set(want))


@pytest.mark.parametrize("how", HOW)
def test_what_cannot_be_embedded(how):
    frame = cudf.DataFrame(
        {"latitude": [0.0, 10, 91, 20], "longitude": [0.0, 200, 0, 0]}
    )
    with pytest.raises(
        CoordinateError,
        match=r"'latitude' has 1 value outside .* latitude .* example 91\.0",
    ):
        computed(lay(frame, how).simjoin.count_pairs(1.0, metric="haversine"))
    zeros = cudf.DataFrame({"x": [1.0, 0, 2, 0], "y": [0.0, 0, 1, 0]})
    with pytest.raises(
        CoordinateError, match=r"There are 2 such rows; the first is row \d"
    ):
        computed(lay(zeros, how).simjoin.count_pairs(1.0, metric="cosine"))
    pairs = lay(zeros, how).simjoin.self_join(1.0, metric="cosine", dropna=True)
    assert as_set(computed(pairs)) == {(0, 2)}


# --- lists
# ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i1", "u4"])
def test_lists_are_read_exactly(dtype):
    x = (np.random.default_rng(0).normal(size=(50, 7)) * 50).clip(0).astype(dtype)
    series = cudf.Series(x.tolist()).list.astype(dtype)
    assert lists_of(series) == (None, np.dtype(dtype))
    assert vectors(series).get().tolist() == x.tolist()
    assert vectors(series[20:31]).get().tolist() == x[20:31].tolist()
    assert vectors(cudf.concat([series[40:], series[:3]])).get().tolist() == [
        *x[40:].tolist(),
        *x[:3].tolist(),
    ]
    assert vectors(series[:0]).shape == (0, 1)
    if x.dtype.kind in "iu":
        assert extremes(series) == [x.max(), x.min()]


def test_missing_lists_and_numbers_become_nan():
    series = cudf.Series([[1.0, 2.0], None, [3.0, None], [4.0, 5.0]])
    want = np.array([[1, 2], [np.nan, np.nan], [3, np.nan], [4, 5]])
    np.testing.assert_array_equal(vectors(series).get(), want)
    np.testing.assert_array_equal(vectors(series[1:3]).get(), want[1:3])
    assert vectors(series[1:2]).shape == (1, 1)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("partitioning", ["auto", "entity", "spatial"])
def test_lists_are_joined(how, metric, partitioning):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 24))[rng.integers(6, size=200)] + rng.normal(
        0, 0.1, (200, 24)
    )
    x = x.astype("f4")
    frame = cudf.DataFrame({"vec": cudf.Series(x.tolist()).list.astype("f4"), "z": 0.0})
    eps = 1.0 if metric == "euclidean" else 0.02
    options = {"on": "vec", "metric": metric, "partitioning": partitioning}
    options |= {} if partitioning == "auto" else {"blocksize": "8 kB"}
    want = brute_force(x.astype("f8"), eps, metric)
    there = lay(frame, how)
    assert_same_pairs(as_set(computed(there.simjoin.self_join(eps, **options))), want)
    assert int(
        computed(there.simjoin.neighbor_counts(eps, **options)).sum()
    ) == 2 * len(want)
    assert (
        int(
            computed(
                lay(frame[["z"]].assign(vec=frame.vec), how).simjoin.count_pairs(0.0)
            )
        )
        == 19900
    )


@pytest.mark.parametrize("how", HOW)
def test_lists_that_are_refused(how):
    ragged = cudf.DataFrame({"vec": [[0.0, 1], [0, 2], [0, 3, 4], [0, 1]]})
    with pytest.raises(CoordinateError, match="equal length"):
        computed(lay(ragged, how).simjoin.count_pairs(1.0, on="vec"))
    holed = cudf.DataFrame({"vec": [[0.0, 1], None, [0, 3], [None, 1]]})
    with pytest.raises(CoordinateError, match="'vec' has 2 rows with missing numbers"):
        computed(lay(holed, how).simjoin.count_pairs(1.0, on="vec"))
    assert as_set(
        computed(lay(holed, how).simjoin.self_join(2.0, on="vec", dropna=True))
    ) == {(0, 2)}
    wide = cudf.DataFrame({"vec": [np.zeros(2049).tolist()] * 2})
    with pytest.raises(
        OptionError,
        match="at most 2,048 numbers, and the lists of column 'vec' have 2,049",
    ):
        computed(lay(wide, how).simjoin.count_pairs(1.0, on="vec"))
    with pytest.raises((ColumnError, CoordinateError), match="'name'"):
        computed(
            lay(cudf.DataFrame({"name": ["a", "b"]}), how).simjoin.count_pairs(
                1.0, on="name"
            )
        )


def test_lists_of_parquet(tmp_path):
    """Of which Dask's example says that they are strings."""
    x = np.random.default_rng(0).normal(size=(60, 5)).astype("f4")
    pd.DataFrame({"vec": x.tolist(), "name": "a"}).to_parquet(
        tmp_path / "vectors.parquet"
    )
    ddf = dask_cudf.read_parquet(tmp_path / "vectors.parquet")
    want = brute_force(x.astype("f8"), 0.5, "cosine")
    found = ddf.simjoin.self_join(0.5, on="vec", metric="cosine")
    assert_same_pairs(as_set(computed(found)), want)
