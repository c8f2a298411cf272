"""Every metric is what its formula says, and all verbs and partitionings find its
pairs.
"""

import itertools
import math

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.errors import CoordinateError
from dask_simjoin.metrics import METRICS, make_metric, sphere
from dask_simjoin.metrics.distances import Chebyshev, Euclidean, Manhattan, Minkowski
from dask_simjoin.metrics.norms import power
from tests.support.density import labels_of_neighbours
from tests.support.frames import computed, lay
from tests.support.metrics import ENGINE, make_rows, metric_cases
from tests.support.oracle import (
    as_set,
    assert_same_pairs,
    brute_force,
    distances,
    totals,
)
from tests.support.paths import PLACES
from tests.support.points import frame_of, without_overflow
from tests.support.profiles import every_nth, examples

NAN, INF = np.nan, np.inf
HALF = math.pi * sphere.RADIUS
"""Half the circumference."""


# --- formulas
# -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_has_its_name_and_says_what_it_is(name):
    assert make_metric(name).name == ("euclidean" if name == "minkowski" else name)
    assert len(METRICS[name].__doc__) > 90


def test_minkowski_is_the_others_for_some_p():
    for p, kind in (
        (1, Manhattan),
        (2, Euclidean),
        (2.0, Euclidean),
        (np.inf, Chebyshev),
    ):
        assert type(make_metric("minkowski", p)) is kind
        assert make_metric("minkowski", p) == kind()
    assert make_metric("minkowski", 3) == Minkowski(3) != Minkowski(4)


@pytest.mark.parametrize("p", [3, 4, 5, 17])
def test_minkowski(p):
    metric = make_metric("minkowski", p)
    assert metric.threshold(2.0) == 2.0**p
    assert metric.threshold(0.1) == power(0.1, p)
    assert metric.threshold(1e300) == INF
    np.testing.assert_allclose(
        metric.distance(np.array([0.0, 1.0, 3.0**p, INF]), np), [0, 1, 3, INF], 1e-15
    )


def test_distances_of_pairs_are_what_numpy_says():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 5))
    t = np.abs(x[:, None] - x[None])
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    for metric, p, want in (
        ("euclidean", 2, np.sqrt((t**2).sum(2))),
        ("sqeuclidean", 2, (t**2).sum(2)),
        ("manhattan", 2, t.sum(2)),
        ("chebyshev", 2, t.max(2)),
        ("minkowski", 1, t.sum(2)),
        ("minkowski", 3, (t**3).sum(2) ** (1 / 3)),
        ("minkowski", INF, t.max(2)),
        ("cosine", 2, 1 - unit @ unit.T),
        ("hamming", 2, (t > 0).mean(2)),
        ("canberra", 2, (t / (np.abs(x)[:, None] + np.abs(x))).sum(2)),
    ):
        np.testing.assert_allclose(distances(x, x, metric, p), want, 1e-12, 1e-15)


def unit_vector(row):
    """The cosine metric's embedding, number by number."""
    exponent = math.frexp(max(abs(value) for value in row))[1]
    y = [math.ldexp(value, -exponent) for value in row]
    total = 0.0
    for value in y:
        total += value * value
    return [value / math.sqrt(total) for value in y]


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("d", [1, 2, 7, 384])
def test_unit_vectors_of_the_cosine_metric(d, order, monkeypatch):
    monkeypatch.setattr("dask_simjoin.metrics.distances.PARSED_BYTES", 8 * 7 * d)
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(60, d)) * 2.0 ** rng.integers(-1070, 1020, (60, 1))
    rows[:9] = rng.normal(size=(9, d)) * 2.0 ** rng.integers(-1070, 1020, (9, d))
    rows[9:12] = [[5e-324], [1.7e308], [-1e-310]]
    rows[rows.any(axis=1) == 0] = 1.0
    found = make_metric("cosine").embed(np.array(rows, order=order), np)
    assert found.tolist() == [unit_vector(row) for row in rows.tolist()]
    assert np.abs((found * found).sum(axis=1) - 1).max() < 1e-15 * (4 + d / 8)
    some = np.abs(rows).max(axis=1) > 1e-200
    assert (
        make_metric("cosine").embed(rows[some] * 2.0**-3, np).tolist()
        == found[some].tolist()
    )


def test_rows_without_direction_become_nan_and_only_those():
    rows = np.array(
        [[0.0, -0.0], [1, 0], [NAN, 1], [1, INF], [-INF, INF], [0, 5e-324], [NAN, INF]]
    )
    found = make_metric("cosine").embed(rows, np)
    assert np.isfinite(found).all(axis=1).tolist() == [
        False,
        True,
        False,
        False,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("eps", [2.0, 2.5, 1e300])
def test_everything_is_within_the_largest_cosine_distance(eps):
    x = np.random.default_rng(0).normal(size=(30, 3))
    assert len(brute_force(np.concatenate([x, -3 * x]), eps, "cosine")) == 60 * 59 // 2


# --- the sphere
# -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "p"), [(name, 2) for name in METRICS] + [("minkowski", 3)]
)
def test_thresholds_of_arrays_are_those_of_numbers(metric, p):
    eps = np.array([0.0, 1e-3, 1.0, 1.9999, 2.0, 2.1, 1e5, HALF, 1e9])
    threshold = make_metric(metric, p).threshold
    found = threshold(eps)
    assert found.tolist() == [threshold(value) for value in eps.tolist()]
    assert (np.diff(found) >= 0).all()


# --- pairs, counts and clusters
# -------------------------------------------------------------------


def expected_of(x, eps, metric, p):
    """Pairs, counts, and distances of pairs."""
    pairs = brute_force(x, eps, metric, p)
    counts = np.bincount(
        np.array(sorted(pairs), int).reshape(-1, 2).ravel(), minlength=len(x)
    ).tolist()
    away = distances(x, x, metric, p) if len(x) else np.zeros((0, 0))
    return pairs, counts, away


def assert_verbs(data, x, eps, metric, p, **options):
    """All verbs of joins, and DBSCAN, say what the definition says."""
    pairs, counts, away = expected_of(x, eps, metric, p)
    how = {"metric": metric, "p": p} | options
    joined = computed(data.simjoin.self_join(eps, return_distance=True, **how))
    assert_same_pairs(as_set(joined), pairs)
    assert joined["distance"].tolist() == away[joined["left"], joined["right"]].tolist()
    assert computed(data.simjoin.neighbor_counts(eps, **how)).tolist() == counts
    assert computed(data.simjoin.count_pairs(eps, **how)) == len(pairs)
    near = totals(x, x, metric, p) <= make_metric(metric, p).threshold(eps)
    assert computed(
        data.simjoin.dbscan(eps, 3, **how)
    ).tolist() == labels_of_neighbours(near, 3)


@settings(max_examples=examples(120))
@given(
    metric_cases(),
    st.sampled_from(["auto", "tiles", "nested_loop", "zorder", "kmeans"]),
)
def test_any_rows(case, method):
    metric, p, x, eps = case
    assert_verbs(frame_of(x), x, eps, metric, p, method=method)


@settings(max_examples=examples(12))
@given(metric_cases(), st.sampled_from(["entity", "spatial"]), st.integers(2, 4))
def test_any_rows_and_partitioning(case, partitioning, parts):
    metric, p, x, eps = case
    frame = frame_of(x)
    cuts = [len(x) * k // parts for k in range(parts + 1)]
    ddf = dd.from_map(
        lambda part: part,
        [frame[a:b] for a, b in itertools.pairwise(cuts)],
        meta=frame[:0],
    )
    with dask.config.set(scheduler="sync"):
        assert_verbs(
            ddf,
            x,
            eps,
            metric,
            p,
            partitioning=partitioning,
            blocksize=20 * (8 * x.shape[1] + 48),
        )


@pytest.mark.parametrize(("metric", "p"), every_nth(2, ENGINE))
def test_float32_columns(metric, p):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(80, 2)) * [40, 80]).clip(-90, 90).astype(np.float32)
    eps = float(np.median(distances(x, x, metric, p)))
    for partitioning in ("entity", "spatial"):
        options = {"partitioning": partitioning, "blocksize": 2000}
        pairs = lay(frame_of(x), "dask-3").simjoin.self_join(
            eps, metric=metric, p=p, **options
        )
        assert_same_pairs(as_set(computed(pairs)), brute_force(x, eps, metric, p))


@pytest.mark.parametrize(("metric", "p"), ENGINE)
@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_k_distances(metric, p, how):
    x = without_overflow(make_rows(metric, 90, 3, np.random.default_rng(1)), p)
    want = np.sort(distances(x, x, metric, p), axis=1)
    for k, options in (
        (1, {}),
        (4, {"partitioning": "spatial", "blocksize": 1600}),
        (95, {}),
    ):
        options = {} if how == "pandas" else options
        found = computed(
            lay(frame_of(x), how).simjoin.k_distances(k, metric=metric, p=p, **options)
        )
        assert found.tolist() == (want[:, k].tolist() if k < 90 else [INF] * 90)


def test_plans_tell_the_metric():
    frame = pd.DataFrame({"lat": [0.0, 10, 20], "lon": [0.0, 1, 2]})
    report = repr(frame.simjoin.plan(1e6, metric="haversine"))
    assert (
        "as points 'x', 'y', 'z'" in report
        and "metric" in report
        and "haversine" in report
    )
    assert "metric" not in repr(frame.simjoin.plan(1e6))


# --- places
# ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def places():
    return pd.read_parquet(PLACES)


ON = ["latitude", "longitude"]


@pytest.mark.parametrize("eps", every_nth(2, [2e3, 3e4]))
def test_places_are_those_of_a_ball_tree(places, eps):
    """But for pairs whose distance is eps as far as rounding tells."""
    neighbors = pytest.importorskip("sklearn.neighbors")
    places = places[:: 1 if eps < 1e4 else 8].reset_index(drop=True)
    radians = np.radians(places[ON].to_numpy())
    tree = neighbors.BallTree(radians, metric="haversine")
    lists, away = tree.query_radius(
        radians, eps / sphere.RADIUS * (1 + 1e-9), return_distance=True
    )
    left = np.repeat(np.arange(len(places)), [len(some) for some in lists])
    right, metres = np.concatenate(lists), np.concatenate(away) * sphere.RADIUS
    once = left < right
    want = dict(
        zip(zip(left[once], right[once], strict=True), metres[once], strict=True)
    )
    found = places.simjoin.self_join(
        eps, on=ON, metric="haversine", return_distance=True
    )
    found = dict(
        zip(zip(found.left, found.right, strict=True), found.distance, strict=True)
    )
    assert len(found) > 1000
    for pair in want.keys() ^ found.keys():
        assert abs(want.get(pair, found.get(pair)) - eps) < 1e-6
    for pair in want.keys() & found.keys():
        assert abs(want[pair] - found[pair]) < 1e-6


def test_places_of_two_tables(places, how):
    left, right = places[ON][:700], places[ON][700:1500].reset_index(drop=True)
    away = distances(left.to_numpy(), right.to_numpy(), "haversine")
    want = set(zip(*(rows.tolist() for rows in np.nonzero(away <= 5e4)), strict=True))
    found = lay(left, how).simjoin.join(lay(right, how), 5e4, on=ON, metric="haversine")
    assert_same_pairs(as_set(computed(found)), want)
    found = computed(
        lay(left, how).simjoin.knn_join(lay(right, how), 1, on=ON, metric="haversine")
    )
    assert found.sort_values("left").distance.tolist() == away.min(axis=1).tolist()


@pytest.mark.parametrize(("metric", "p"), ENGINE)
def test_each_row_with_a_distance_of_its_own(metric, p):
    rng = np.random.default_rng(5)
    x = make_rows(metric, 60, 3, rng)
    away = distances(x, x, metric, p)
    frame = frame_of(x).assign(r=rng.choice(away.ravel(), 60).clip(0, 1e100))
    on = [c for c in frame.columns if c != "r"]
    with np.errstate(over="ignore"):
        limits = make_metric(metric, p).threshold(frame.r.to_numpy())
    near = totals(x, x, metric, p) <= limits[:, None]
    near[np.diag_indices(60)] = False
    want = set(zip(*(rows.tolist() for rows in np.nonzero(near)), strict=True))
    for how in ("pandas", "dask-3"):
        found = lay(frame, how).simjoin.join(
            lay(frame[on], how), "r", on=on, metric=metric, p=p
        )
        assert_same_pairs(
            {pair for pair in as_set(computed(found)) if pair[0] != pair[1]}, want
        )


def test_places_at_zero_distance_are_equal_places():
    lat = [90, 90, -90, 10, 10, 10, 10.000000001, 0, -0.0]
    lon = [0, 77, 77, 180, -180, 179.99999999, 180, 5, 5]
    frame = pd.DataFrame({"latitude": lat, "longitude": lon}, dtype=float)
    assert as_set(frame.simjoin.self_join(0.0, metric="haversine")) == {
        (0, 1),
        (3, 4),
        (7, 8),
    }


def test_every_place_is_within_half_the_circumference(places):
    some = places.head(300)
    for eps in (HALF * (1 + 1e-15), 2.1e7, 1e300):
        assert (
            some.simjoin.count_pairs(eps, on=ON, metric="haversine") == 300 * 299 // 2
        )


def test_places_that_are_none(how):
    frame = pd.DataFrame(
        {"lat": [0.0, 10, 20, 91, -95.5, 0], "lon": [0.0, 361, 10, 0, 0, -180]}
    )
    text = (
        r"Column 'lat' has 2 values outside the range of a latitude in degrees, -90 to 90: "
        r"for example 91\.0 at label 3"
    )
    for dropna in (False, True):
        with pytest.raises(CoordinateError, match=text):
            computed(
                lay(frame, how).simjoin.count_pairs(
                    1.0, metric="haversine", dropna=dropna
                )
            )
    with pytest.raises(
        CoordinateError, match=r"Column 'lon' has 1 value outside .*longitude.*360"
    ):
        computed(
            lay(frame.assign(lat=0.0), how).simjoin.count_pairs(1.0, metric="haversine")
        )
    ships = frame.assign(lat=[0.0, 91, 20, 91, 91, 0], lon=[0, 181, 0, 181, 181, 0])
    with pytest.raises(CoordinateError) as caught:
        computed(lay(ships, how).simjoin.count_pairs(1.0, metric="haversine"))
    assert (
        "91 often stands for 'not available', as in AIS. Drop such rows first: df = "
        "df[df['lat'].between(-90, 90)]. "
    ) in str(caught.value)
    assert "swapped" not in str(caught.value)
    few = pd.DataFrame({"lat": [0.0] * 99 + [99.5], "lon": 0.0})
    with pytest.raises(CoordinateError, match=r"99\.5 at .*\. Drop such") as caught:
        computed(lay(few, how).simjoin.count_pairs(1.0, metric="haversine"))
    assert "swapped" not in str(caught.value)
    some = ships.assign(lat=[-95.0, *ships["lat"][1:]])
    with pytest.raises(CoordinateError, match=r"meters\. But 91 often"):
        computed(lay(some, how).simjoin.count_pairs(1.0, metric="haversine"))
    missing = frame.assign(lat=[0, NAN, 1, 2, 3, 4])
    with pytest.raises(CoordinateError, match="column 'lat' has 1 missing value"):
        computed(lay(missing, how).simjoin.count_pairs(1.0, metric="haversine"))
    frame = frame.assign(lat=[0, NAN, INF, 2, 3, 4])
    assert (
        computed(
            lay(frame, how).simjoin.count_pairs(1e8, metric="haversine", dropna=True)
        )
        == 6
    )


def test_rows_without_direction(how):
    frame = pd.DataFrame(
        {"x": [1.0, 2, 0, 0, 0, 3], "y": [0.0, 0, 0, 1, 0, 0]}, index=list("abcdef")
    )
    place = "row 0 of partition 1" if how == "dask-3" else "row 2"
    text = (
        r"metric='cosine' compares directions, and a row of zeros has no direction\. There are 2 such rows; "
        rf"the first is {place} \(label 'c'\)\. Use dropna=True to leave them out"
    )
    with pytest.raises(CoordinateError, match=text):
        computed(lay(frame, how).simjoin.self_join(0.1, metric="cosine"))
    with pytest.raises(CoordinateError, match="There are 2 such rows"):
        computed(lay(frame, how).simjoin.k_distances(1, metric="cosine"))
    pairs = lay(frame, how).simjoin.self_join(0.1, metric="cosine", dropna=True)
    assert as_set(computed(pairs)) == {("a", "b"), ("a", "f"), ("b", "f")}
    counts = computed(
        lay(frame, how).simjoin.neighbor_counts(0.1, metric="cosine", dropna=True)
    )
    assert counts.to_dict() == {"a": 2, "b": 2, "c": 0, "d": 0, "e": 0, "f": 2}
    assert (
        computed(lay(frame, how).simjoin.count_pairs(1e9, metric="sqeuclidean")) == 15
    )
