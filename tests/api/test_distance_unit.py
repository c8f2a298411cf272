"""Distances are returned in the unit that was requested, and pairs do not depend on it."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from dask_simjoin.errors import OptionError
from dask_simjoin.metrics.sphere import RADIUS

SPHERE = {"on": ["lat", "lon"], "metric": "haversine"}
SIZES = {"m": 1.0, "km": 1e3, "ft": 0.3048, "mi": 1609.344, "nmi": 1852.0, "rad": RADIUS,
         "deg": np.pi / 180 * RADIUS, "arcmin": np.pi / 10_800 * RADIUS,
         "arcsec": np.pi / 648_000 * RADIUS}  # fmt: skip
"""Meters."""


def places(rows, seed):
    random = np.random.default_rng(seed)
    return pd.DataFrame({"lat": random.uniform(50, 51, rows), "lon": random.uniform(7, 8, rows)})


def both(frame, other, verb, *args, **options):
    """Call a verb on plain frames and on Dask frames, and return the sorted result of both."""
    lazy = [None if one is None else dd.from_pandas(one, npartitions=3) for one in (frame, other)]
    tables = [frame, lazy[0]], [other, lazy[1]]
    found = []
    for own, second in zip(*tables, strict=True):
        how = options if second is None else options | {"other": second}
        made = getattr(own.simjoin, verb)(**how)
        found.append(made.compute(scheduler="sync") if own is lazy[0] else made)
    plain, computed = (one.sort_values(["left", "right"], ignore_index=True) for one in found)
    pd.testing.assert_frame_equal(plain, computed)
    return plain


@pytest.mark.parametrize("unit", SIZES)
@pytest.mark.parametrize(("verb", "two"), [("self_join", 0), ("join", 1), ("knn_join", 0), ("knn_join", 1)])
def test_units_on_the_sphere(verb, two, unit):
    frame, other = places(60, 0), places(50, 1) if two else None
    far = 5000.0
    name = "max_distance" if verb == "knn_join" else "eps"
    options = SPHERE | ({"k": 3} if verb == "knn_join" else {"return_distance": True})
    meters = both(frame, other, verb, **{name: far}, **options)
    assert meters.distance.max() > 1000
    chosen = both(frame, other, verb, **{name: far}, **options, distance_unit=unit)
    pairs = ["left", "right"]
    pd.testing.assert_frame_equal(chosen[pairs], meters[pairs])
    assert chosen.distance.dtype == np.float64
    assert (chosen.distance == meters.distance / SIZES[unit]).all()
    asked = both(frame, other, verb, **{name: f"{far / SIZES[unit]!r} {unit}"}, **options)
    again = both(frame, other, verb, **{name: f"{far / SIZES[unit]!r} {unit}"}, **options, distance_unit="m")
    pd.testing.assert_frame_equal(again[pairs], asked[pairs])
    assert (asked.distance == again.distance / SIZES[unit]).all()


@pytest.mark.parametrize("verb", ["self_join", "knn_join"])
def test_angles_of_cosine(verb):
    random = np.random.default_rng(3)
    frame = pd.DataFrame(random.normal(size=(40, 3)), columns=list("abc"))
    name = "max_distance" if verb == "knn_join" else "eps"
    options = {"metric": "cosine"} | ({"k": 4} if verb == "knn_join" else {"return_distance": True})
    found = both(frame, None, verb, **{name: "40 deg"}, **options)
    plain = both(frame, None, verb, **{name: 1 - np.cos(np.radians(40))}, **options)
    assert len(found) > 20
    assert found.distance.between(0, 40).all()
    np.testing.assert_allclose(found.distance, np.degrees(np.arccos(1 - plain.distance)), rtol=1e-9)
    radians = both(frame, None, verb, **{name: "40 deg"}, **options, distance_unit="radians")
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
    both_units = frame.simjoin.knn_join(k=1, min_distance="10 km", max_distance="100000 m", **SPHERE)
    assert (both_units.distance == far.distance * 1000).sum() > 20
    assert both_units.distance.min() >= 10_000


def test_plans_show_the_unit():
    lazy = dd.from_pandas(places(40, 4), npartitions=2)
    shown = repr(lazy.simjoin.plan("4 km", return_distance=True, **SPHERE))
    assert "distances      in km" in shown
    assert "distances      in m\n" in repr(lazy.simjoin.plan(4000, return_distance=True, **SPHERE))
    assert "distances      in mi" in repr(lazy.simjoin.plan(4000, k=2, distance_unit="miles", **SPHERE))
    assert "distances" not in repr(lazy.simjoin.plan("4 km", **SPHERE))


def test_columns_named_like_a_distance():
    frame = places(20, 5).assign(**{"2 km": 9000.0})
    found = frame.simjoin.self_join("2 km", pairs="both", return_distance=True, **SPHERE)
    assert found.distance.max() > 1000


def test_what_is_refused():
    frame = places(5, 6)
    join = frame.simjoin.self_join
    with pytest.raises(OptionError, match=r"distance_unit='km' needs distances .*return_distance=True"):
        join(1, distance_unit="km", **SPHERE)
    with pytest.raises(OptionError, match=r"distance_unit='kmm' is not allowed; use one of 'mm', .*'km'"):
        join(1, distance_unit="kmm", return_distance=True, **SPHERE)
    with pytest.raises(OptionError, match=r"distance_unit='km' is not allowed with metric='euclidean'"):
        join(1, distance_unit="km", return_distance=True)
    with pytest.raises(OptionError, match=r"distance_unit='km' is not allowed; use one of 'rad'"):
        join(0.1, distance_unit="km", return_distance=True, metric="cosine")
    with pytest.raises(OptionError, match=r"distance_unit=7 is not allowed; use one of"):
        frame.simjoin.knn_join(k=1, distance_unit=7, **SPHERE)
