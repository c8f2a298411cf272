"""Distances are returned in the unit that was requested, and pairs do not depend on it."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.errors import OptionError
from dask_simjoin.graph.nearest import NearestJoin
from dask_simjoin.metrics.sphere import RADIUS
from dask_simjoin.neighbors import (
    KNeighborsTransformer,
    NearestNeighbors,
    RadiusNeighborsTransformer,
)
from tests.support.oracle import in_unit
from tests.support.profiles import chosen, in_turns

SPHERE = {"on": ["lat", "lon"], "metric": "haversine"}
SIZES = {
    "m": 1.0,
    "km": 1e3,
    "ft": 0.3048,
    "mi": 1609.344,
    "nmi": 1852.0,
    "rad": RADIUS,
    "deg": np.pi / 180 * RADIUS,
    "arcmin": np.pi / 10_800 * RADIUS,
    "arcsec": np.pi / 648_000 * RADIUS,
}
"""Meters."""


def places(rows, seed):
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {"lat": random.uniform(50, 51, rows), "lon": random.uniform(7, 8, rows)}
    )


def both(frame, other, verb, *args, **options):
    """Call a verb on plain frames and on Dask frames, and return the sorted result of
    both.
    """
    lazy = [
        None if one is None else dd.from_pandas(one, npartitions=3)
        for one in (frame, other)
    ]
    tables = [frame, lazy[0]], [other, lazy[1]]
    found = []
    for own, second in zip(*tables, strict=True):
        how = options if second is None else options | {"other": second}
        made = getattr(own.simjoin, verb)(**how)
        found.append(made.compute(scheduler="sync") if own is lazy[0] else made)
    plain, computed = (
        one.sort_values(["left", "right"], ignore_index=True) for one in found
    )
    pd.testing.assert_frame_equal(plain, computed)
    return plain


VERBS = [
    ("self_join", 0),
    ("join", 1),
    ("knn_join", 0),
    ("knn_join", 1),
    ("closest_pairs", 0),
    ("closest_pairs", 1),
]


@in_turns(1, unit=list(SIZES), verb=VERBS)
def test_units_on_the_sphere(verb, unit):
    verb, two = verb
    frame, other = places(60, 0), places(50, 1) if two else None
    far = 5000.0
    name = "eps" if verb in ("self_join", "join") else "max_distance"
    options = SPHERE | {"knn_join": {"k": 3}, "closest_pairs": {"n": 30}}.get(
        verb, {"return_distance": True}
    )
    meters = both(frame, other, verb, **{name: far}, **options)
    assert meters.distance.max() > 1000
    chosen = both(frame, other, verb, **{name: far}, **options, distance_unit=unit)
    pairs = ["left", "right"]
    pd.testing.assert_frame_equal(chosen[pairs], meters[pairs])
    assert chosen.distance.dtype == np.float64
    assert (chosen.distance == in_unit(meters.distance, SIZES[unit])).all()
    asked = both(
        frame, other, verb, **{name: f"{far / SIZES[unit]!r} {unit}"}, **options
    )
    again = both(
        frame,
        other,
        verb,
        **{name: f"{far / SIZES[unit]!r} {unit}"},
        **options,
        distance_unit="m",
    )
    pd.testing.assert_frame_equal(again[pairs], asked[pairs])
    assert (asked.distance == in_unit(again.distance, SIZES[unit])).all()


@pytest.mark.parametrize("verb", ["self_join", "knn_join", "closest_pairs"])
def test_angles_of_cosine(verb):
    random = np.random.default_rng(3)
    frame = pd.DataFrame(random.normal(size=(40, 3)), columns=list("abc"))
    name = "eps" if verb == "self_join" else "max_distance"
    number = {
        "self_join": {"return_distance": True},
        "knn_join": {"k": 4},
        "closest_pairs": {"n": 50},
    }
    options = {"metric": "cosine"} | number[verb]
    found = both(frame, None, verb, **{name: "40 deg"}, **options)
    plain = both(frame, None, verb, **{name: 1 - np.cos(np.radians(40))}, **options)
    assert len(found) > 20
    assert found.distance.between(0, 40).all()
    np.testing.assert_allclose(
        found.distance, np.degrees(np.arccos(1 - plain.distance)), rtol=1e-9
    )
    radians = both(
        frame, None, verb, **{name: "40 deg"}, **options, distance_unit="radians"
    )
    np.testing.assert_allclose(np.degrees(radians.distance), found.distance, rtol=1e-15)


def test_missing_and_mutual_neighbors():
    frame = places(40, 4)
    options = SPHERE | {"k": 1, "max_distance": "4 km"}
    left = both(frame, None, "knn_join", how="left", **options)
    inner = both(frame, None, "knn_join", **options)
    assert left.distance.dropna().tolist() == inner.distance.tolist()
    assert 0 < inner.distance.max() <= 4 and left.distance.isna().any()
    mutual = frame.simjoin.knn_join(mutual=True, **options)
    assert 0 < mutual.distance.max() <= 4
    far = frame.simjoin.knn_join(k=1, min_distance="10 km", **SPHERE)
    assert 10 <= far.distance.min() < far.distance.max() < 50
    both_units = frame.simjoin.knn_join(
        k=1, min_distance="10 km", max_distance="100000 m", **SPHERE
    )
    assert (both_units.distance == far.distance * 1000).sum() > 20
    assert both_units.distance.min() >= 10_000


def test_plans_show_the_unit():
    lazy = dd.from_pandas(places(40, 4), npartitions=2)
    shown = repr(lazy.simjoin.plan("4 km", return_distance=True, **SPHERE))
    assert "distances      in km" in shown
    assert "distances      in m\n" in repr(
        lazy.simjoin.plan(4000, return_distance=True, **SPHERE)
    )
    assert "distances      in mi" in repr(
        lazy.simjoin.plan(4000, k=2, distance_unit="miles", **SPHERE)
    )
    assert "distances" not in repr(lazy.simjoin.plan("4 km", **SPHERE))


def test_plans_of_closest_pairs_show_the_unit():
    lazy = dd.from_pandas(places(40, 4), npartitions=2)
    found = lazy.simjoin.closest_pairs(3, distance_unit="miles", **SPHERE)
    (search,) = found.expr.find_operations(NearestJoin)
    assert "distances      in mi" in repr(search.report)


def test_columns_named_like_a_distance():
    frame = places(20, 5).assign(**{"2 km": 9000.0})
    found = frame.simjoin.self_join(
        "2 km", pairs="both", return_distance=True, **SPHERE
    )
    assert found.distance.max() > 1000


@pytest.mark.parametrize("unit", ["km", "arcsec"])
def test_distances_to_the_kth_neighbor(unit):
    frame = places(40, 7)
    meters = frame.simjoin.k_distances(3, **SPHERE)
    for table in (frame, dd.from_pandas(frame, npartitions=3)):
        found = table.simjoin.k_distances(3, distance_unit=unit, **SPHERE)
        found = found if table is frame else found.compute(scheduler="sync")
        assert found.tolist() == in_unit(meters, SIZES[unit]).tolist()
        # no row has as many neighbors
        far = table.simjoin.k_distances(40, distance_unit=unit, **SPHERE)
        assert np.isinf(far if table is frame else far.compute(scheduler="sync")).all()


@pytest.mark.parametrize("own", [False, True])
def test_neighbor_graphs(own):
    frame = places(40, 8)
    meters = frame.simjoin.neighbor_graph(9000, include_self=own, **SPHERE)
    assert meters.nnz > 40
    for table in (frame, dd.from_pandas(frame, npartitions=3)):
        for how in ({"eps": "9 km"}, {"eps": 9000, "distance_unit": "km"}):
            found = table.simjoin.neighbor_graph(**how, include_self=own, **SPHERE)
            found = found if table is frame else found.compute(scheduler="sync")
            assert found.indices.tolist() == meters.indices.tolist()
            assert (found.data == in_unit(meters.data, 1000)).all()
    angles = pd.DataFrame(np.eye(3)).simjoin.neighbor_graph("100 deg", metric="cosine")
    np.testing.assert_allclose(angles.data, 90, rtol=1e-15)


def test_estimators_of_neighbors():
    x, new = places(40, 9).to_numpy(), places(5, 10).to_numpy()
    meters = NearestNeighbors(n_neighbors=3, radius=9000, metric="haversine").fit(x)
    km = NearestNeighbors(
        n_neighbors=3, radius=9000, metric="haversine", distance_unit="km"
    ).fit(x)
    text = NearestNeighbors(n_neighbors=3, radius="9 km", metric="haversine").fit(x)
    for queries in (None, new):
        far, rows = meters.kneighbors(queries)
        # a radius does not concern nearest neighbors
        for fitted, size in ((km, 1000), (text, 1)):
            found = fitted.kneighbors(queries)
            assert (found[0] == in_unit(far, size)).all() and (found[1] == rows).all()
            graph = fitted.kneighbors_graph(queries, mode="distance")
            assert (graph.data == in_unit(far.ravel(), size)).sum() >= far.size
        far, rows = meters.radius_neighbors(queries)
        for fitted, radius, size in (
            (km, None, 1000),
            (text, None, 1000),
            (meters, "9 km", 1000),
            (text, 9000, 1),
            (km, "9000 m", 1000),
        ):
            found = fitted.radius_neighbors(queries, radius)
            assert [some.tolist() for some in found[1]] == [
                some.tolist() for some in rows
            ]
            assert all(
                (a == in_unit(b, size)).all()
                for a, b in zip(found[0], far, strict=True)
            )
            graph = fitted.radius_neighbors_graph(queries, radius, mode="distance")
            assert (graph.data == in_unit(np.concatenate(far), size)).all()
    assert km.get_params()["distance_unit"] == "km"
    with pytest.raises(
        OptionError, match=r"distance_unit='kmm' is not allowed; use one of 'mm'"
    ):
        km.set_params(distance_unit="kmm").fit(x)
    with pytest.raises(
        OptionError, match=r"distance_unit='km' is not allowed with metric='euclidean'"
    ):
        NearestNeighbors(distance_unit="km").fit(x)


def test_transformers_of_neighbors():
    x = places(40, 11).to_numpy()
    for kind, given, text in (
        (
            KNeighborsTransformer,
            {"n_neighbors": 3},
            {"n_neighbors": 3, "distance_unit": "km"},
        ),
        (RadiusNeighborsTransformer, {"radius": 9000}, {"radius": "9 km"}),
        (
            RadiusNeighborsTransformer,
            {"radius": 9000},
            {"radius": 9000, "distance_unit": "km"},
        ),
    ):
        meters = kind(metric="haversine", **given).fit_transform(x)
        found = kind(metric="haversine", **text).fit_transform(x)
        assert found.indices.tolist() == meters.indices.tolist()
        assert (found.data == in_unit(meters.data, 1000)).all() and found.data.any()


@in_turns(
    1, how=[{"eps": "9 km"}, {"eps": 9000, "distance_unit": "km"}], stored=[False, True]
)
def test_indexes_on_disk(how, stored, tmp_path):
    """All distances of an index have its unit: pairs, changes, joins, and those of
    another process.
    """
    frame, new = places(40, 12), places(15, 13).set_index(np.arange(40, 55))
    index = frame.simjoin.index(
        **how, path=tmp_path, return_distance=True, store_pairs=stored, **SPHERE
    )
    assert "eps=9 km" in repr(index)

    def listed(found):
        return sorted(zip(found.left, found.right, found.distance, strict=True))

    def kilometers(found):
        return listed(found.assign(distance=in_unit(found.distance, 1000)))

    both_tables = pd.concat([frame, new])
    first = frame.simjoin.self_join(9000, return_distance=True, **SPHERE)
    assert len(first) > 20 and listed(index.pairs().compute()) == kilometers(first)
    crossed = new.simjoin.join(frame, 9000, return_distance=True, **SPHERE)
    assert listed(index.join(new).compute()) == kilometers(crossed)
    changes = index.update(new)
    every = both_tables.simjoin.self_join(9000, return_distance=True, **SPHERE)
    added = every[
        ~every.set_index(["left", "right"]).index.isin(
            first.set_index(["left", "right"]).index
        )
    ]
    assert listed(changes.added.compute()) == kilometers(added)
    again = dask_simjoin.open_index(tmp_path)
    for nearer in (5000, "5000 m"):
        few = both_tables.simjoin.self_join(5000, return_distance=True, **SPHERE)
        assert listed(again.pairs(nearer).compute()) == kilometers(few)
    assert listed(
        again.update(delete=new.index.tolist()).removed.compute()
    ) == kilometers(added)
    moved = frame.assign(lon=frame.lon + np.where(frame.index < 5, 0.01, 0))
    again.update(moved, if_exists="replace")
    last = moved.simjoin.self_join(9000, return_distance=True, **SPHERE)
    assert listed(again.pairs().compute()) == kilometers(last)


def test_indexes_without_distances_refuse_a_unit(tmp_path):
    with pytest.raises(
        OptionError, match=r"distance_unit='km' needs distances in the result"
    ):
        places(5, 1).simjoin.index(
            1000, tmp_path / "index", distance_unit="km", **SPHERE
        )


def test_own_distances_of_rows():
    frame = places(40, 14).assign(far=np.linspace(2000, 9000, 40))
    how = {"pairs": "both", "return_distance": True, **SPHERE}
    meters = frame.simjoin.self_join("far", **how)
    found = frame.simjoin.self_join("far", distance_unit="km", **how)
    assert len(found) > 10 and (found.distance == in_unit(meters.distance, 1000)).all()


def test_what_is_refused():
    frame = places(5, 6)
    with pytest.raises(
        OptionError, match=r"distance_unit='km' is not allowed with metric='euclidean'"
    ):
        frame.simjoin.closest_pairs(1, distance_unit="km")
    with pytest.raises(
        OptionError,
        match=r"max_distance='2 km' has a unit, but with metric='euclidean'",
    ):
        frame.simjoin.closest_pairs(1, max_distance="2 km")
    with pytest.raises(
        OptionError, match=r"distance_unit='km' is not allowed; use one of 'rad'"
    ):
        frame.simjoin.k_distances(1, distance_unit="km", metric="cosine")
    with pytest.raises(
        OptionError, match=r"distance_unit='deg' is not allowed with metric='manhattan'"
    ):
        frame.simjoin.neighbor_graph(1, distance_unit="deg", metric="manhattan")
    join = frame.simjoin.self_join
    with pytest.raises(
        OptionError, match=r"distance_unit='km' needs distances .*return_distance=True"
    ):
        join(1, distance_unit="km", **SPHERE)
    with pytest.raises(
        OptionError,
        match=r"distance_unit='kmm' is not allowed; use one of 'mm', .*'km'",
    ):
        join(1, distance_unit="kmm", return_distance=True, **SPHERE)
    with pytest.raises(
        OptionError, match=r"distance_unit='km' is not allowed with metric='euclidean'"
    ):
        join(1, distance_unit="km", return_distance=True)
    with pytest.raises(
        OptionError, match=r"distance_unit='km' is not allowed; use one of 'rad'"
    ):
        join(0.1, distance_unit="km", return_distance=True, metric="cosine")
    with pytest.raises(
        OptionError, match=r"distance_unit=7 is not allowed; use one of"
    ):
        frame.simjoin.knn_join(k=1, distance_unit=7, **SPHERE)


def test_projected_points(tmp_path):
    """Lengths are converted to the unit of the coordinate system, here feet, and back."""
    geopandas = pytest.importorskip("geopandas")
    x = np.random.default_rng(15).uniform(0, 60_000, (40, 2))
    points = geopandas.GeoDataFrame(
        geometry=geopandas.points_from_xy(*x.T, crs="EPSG:2263")
    )
    foot = points.crs.axis_info[0].unit_conversion_factor
    feet = points.simjoin.closest_pairs(5)
    for how in ({"max_distance": "50 km"}, {"distance_unit": "km"}):
        found = points.simjoin.closest_pairs(5, **how)
        pd.testing.assert_frame_equal(found[["left", "right"]], feet[["left", "right"]])
        np.testing.assert_allclose(
            found.distance, feet.distance * foot / 1000, rtol=1e-14
        )
    found = points.simjoin.k_distances(2, distance_unit="km")
    np.testing.assert_allclose(
        found, points.simjoin.k_distances(2) * foot / 1000, rtol=1e-14
    )
    graph, far = (
        points.simjoin.neighbor_graph("3 km"),
        points.simjoin.neighbor_graph(3000 / foot),
    )
    np.testing.assert_allclose(graph.data, far.data * foot / 1000, rtol=1e-14)
    index = points.simjoin.index("3 km", tmp_path, return_distance=True)
    pairs = index.pairs().compute()
    assert sorted(pairs.distance) == sorted(
        points.simjoin.self_join("3 km", return_distance=True).distance
    )


@pytest.mark.parametrize("lazy", chosen([False, True], [True]))
def test_pairs_of_groups(lazy):
    frame = places(60, 16).assign(g=np.arange(60) % 4)
    table = dd.from_pandas(frame, npartitions=3) if lazy else frame
    for per_group in (False, True):
        how = {"by": "g", "per_group": per_group, "keep": "g", **SPHERE}
        meters = frame.simjoin.closest_pairs(2, **how)
        found = table.simjoin.closest_pairs(2, distance_unit="km", **how)
        found = found.compute(scheduler="sync") if lazy else found
        pd.testing.assert_frame_equal(
            found, meters.assign(distance=in_unit(meters.distance, 1000))
        )
        assert (
            len(found) == (8 if per_group else 2)
            and (found.g_left == found.g_right).all()
        )
