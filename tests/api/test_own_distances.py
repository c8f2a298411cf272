"""A distance that a verb returns finds its pair again."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.errors import CoordinateError, OptionError
from dask_simjoin.neighbors import NearestNeighbors
from dask_simjoin.request.units import ANGLES, LENGTHS
from tests.support.metrics import ENGINE, make_rows, of_all_norms
from tests.support.oracle import as_set
from tests.support.points import without_overflow
from tests.support.profiles import examples, in_turns

METRICS = [("euclidean", 2), ("minkowski", 7), *ENGINE]


def drawn(metric, rng, n=40):
    x = make_rows(metric, n, 2, rng)
    if metric not in ("haversine", "cosine") and rng.integers(2):
        x = x * float(rng.choice([1, 0.1, 5e-324 * 2**40])) + float(
            rng.choice([0, 1e15])
        )
    frame = pd.DataFrame(without_overflow(x, 7), columns=["a", "b"])
    return frame, {"on": ["a", "b"], "metric": metric}


@pytest.mark.parametrize(("metric", "p"), of_all_norms(METRICS))
@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_distance_is_an_eps_that_finds_its_pair(metric, p, seed):
    rng = np.random.default_rng(seed)
    frame, how = drawn(metric, rng)
    how["p"] = p
    found = frame.simjoin.knn_join(k=3, **how)
    for left, right, eps in found.iloc[::17, [0, 1, 3]].itertuples(index=False):
        pairs = frame.simjoin.self_join(eps, pairs="both", return_distance=True, **how)
        assert (left, right) in as_set(pairs)
        assert pairs["distance"].max() <= eps
        if eps:
            less = frame.simjoin.self_join(np.nextafter(eps, 0), pairs="both", **how)
            assert (left, right) not in as_set(less)
    last = found[found["rank"] == 3]
    if len(last) < len(frame):
        return
    radii = frame.assign(r=last["distance"].to_numpy())
    lazy = dd.from_pandas(radii, npartitions=3)
    for table in (radii, lazy):
        pairs = table.simjoin.self_join("r", pairs="both", **how)
        pairs = as_set(pairs if table is radii else pairs.compute(scheduler="sync"))
        assert as_set(found) <= pairs
    ties = frame.simjoin.knn_join(k=3, ties="all", **how)
    assert as_set(ties) == pairs
    k_distances = lazy.simjoin.k_distances(3, **how).compute(scheduler="sync")
    assert k_distances.tolist() == radii["r"].tolist()


@in_turns(1, metric=["haversine", "cosine"], unit=[*LENGTHS, *ANGLES])
def test_distances_with_units(metric, unit):
    if metric == "cosine" and unit in LENGTHS:
        return
    frame, how = drawn(metric, np.random.default_rng(7))
    found = frame.simjoin.knn_join(k=2, distance_unit=unit, **how)
    for left, right, away in found.iloc[::9, [0, 1, 3]].itertuples(index=False):
        pairs = frame.simjoin.self_join(
            f"{away} {unit}", pairs="both", return_distance=True, **how
        )
        assert (left, right) in as_set(pairs)
        assert pairs["distance"].max() <= away
    if unit in LENGTHS:
        last = found[found["rank"] == 2]["distance"].to_numpy()
        radii = frame.assign(r=last * LENGTHS[unit])
        assert as_set(found) <= as_set(
            radii.simjoin.self_join("r", pairs="both", **how)
        )


def test_other_verbs():
    frame, how = drawn("euclidean", np.random.default_rng(3), 60)
    points = frame.to_numpy()
    away, rows = NearestNeighbors(n_neighbors=4).fit(points).kneighbors()
    for n, radius in enumerate(away[:, -1]):
        near = NearestNeighbors(radius=radius).fit(points).radius_neighbors()
        assert set(rows[n]) <= set(near[1][n].tolist())
        assert near[0][n].max() <= radius
    for left, right, eps in frame.simjoin.closest_pairs(20, **how).to_numpy():
        graph = frame.simjoin.neighbor_graph(eps, **how)
        assert graph[int(left), int(right)] <= eps or not eps
        assert (int(left), int(right)) in as_set(frame.simjoin.self_join(eps, **how))
    tree = frame.simjoin.spanning_tree(**how)
    for eps in tree["distance"].iloc[::13]:
        labels = frame.simjoin.dbscan(eps, min_samples=1, **how)
        assert labels.nunique() == 1 + (tree["distance"] > eps).sum()


def test_smallest_distances_include_their_own_pairs():
    frame, how = drawn("euclidean", np.random.default_rng(4))
    for _, right, eps in frame.simjoin.knn_join(k=1, **how).iloc[::5, [0, 1, 3]].values:
        found = frame.simjoin.knn_join(k=99, min_distance=eps, max_distance=eps, **how)
        assert right in found["right"].tolist()


def rows_of(found):
    return (found.compute() if hasattr(found, "dask") else found).to_numpy()


WIDE = pd.DataFrame({"x": [0.0, 1e200, 3e200], "y": [0.0, 1.0, 2.0]})


@pytest.mark.parametrize("lazy", [False, True])
def test_searches_whose_distances_overflow(lazy):
    table = dd.from_pandas(WIDE, npartitions=2) if lazy else WIDE
    verbs = {
        "knn_join": {"k": 1},
        "k_distances": {"k": 1},
        "closest_pairs": {"n": 1},
        "spanning_tree": {},
        "hdbscan": {"min_cluster_size": 2},
    }
    for verb, options in verbs.items():
        with pytest.raises(CoordinateError, match=r"'x' are up to 3e\+200 apart"):
            rows_of(getattr(table.simjoin, verb)(on=["x", "y"], **options))
    found = table.simjoin.knn_join(k=1, max_distance=1e150, on=["x", "y"])
    assert len(found) == 0
    found = table.simjoin.knn_join(k=1, metric="manhattan", on=["x", "y"])
    assert rows_of(found)[:, 1].tolist() == [1, 0, 1]
    found = table.simjoin.closest_pairs(1, metric="chebyshev", on=["x", "y"])
    assert rows_of(found).tolist() == [[0, 1, 1e200]]
    small = pd.DataFrame({"x": [0.0, 1e110, 1.0]})
    with pytest.raises(CoordinateError, match=r"'x' are up to 1e\+110 apart"):
        small.simjoin.k_distances(1, metric="minkowski", p=3)


def test_distances_that_are_too_large():
    for verb, name in (
        ("self_join", "eps"),
        ("count_pairs", "eps"),
        ("neighbor_counts", "eps"),
        ("neighbor_graph", "eps"),
        ("dbscan", "eps"),
        ("near_duplicated", "eps"),
        ("plan", "eps"),
        ("profile", "eps"),
    ):
        with pytest.raises(
            OptionError, match=r"eps=1e\+160 is too large .* Use at most"
        ):
            getattr(WIDE.simjoin, verb)(1e160)
        del name
    for options in ({"max_distance": 1e155}, {"min_distance": 1e155}):
        with pytest.raises(OptionError, match=r"distance=1e\+155 is too large"):
            WIDE.simjoin.knn_join(k=1, **options)
    with pytest.raises(OptionError, match=r"max_eps=1e\+155 is too large"):
        WIDE.simjoin.optics(1e155)
    with pytest.raises(OptionError, match=r"eps\[1\]=1e\+155 is too large"):
        WIDE.simjoin.neighbor_counts([1.0, 1e155])
    with pytest.raises(OptionError, match=r"radius=1e\+155 is too large"):
        NearestNeighbors(radius=1e155).fit(WIDE.to_numpy()).radius_neighbors()
    with pytest.raises(OptionError, match=r"power of 3 is more .* 5\.6438.*e\+102"):
        WIDE.simjoin.self_join(1e103, metric="minkowski", p=3)
    radii = WIDE.assign(r=[1.0, 1e155, 2.0])
    for table in (radii, dd.from_pandas(radii, npartitions=2)):
        with pytest.raises(OptionError, match=r"eps='r' names a column .* 1e\+155 is"):
            rows_of(table.simjoin.self_join("r", pairs="both", on="x"))
    assert WIDE.simjoin.count_pairs(1.7e308, metric="manhattan") == 3
    assert WIDE.simjoin.count_pairs(1.7e308, metric="cosine", dropna=True) == 1
