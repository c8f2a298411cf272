"""Distances with units, and longitudes to 360."""

import math
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.metrics import make_metric
from dask_simjoin.metrics.sphere import RADIUS, unit_vectors
from dask_simjoin.request.requests import SelfJoinRequest
from dask_simjoin.request.spec import DistanceUnit
from dask_simjoin.request.units import check_eps, meters, parsed, without_unit
from tests.support.frames import computed, lay

SKY = pd.DataFrame(
    {"dec": [0.0, 0.0, 10.0, -90.0], "ra": [359.9999, 0.0001, 180.0, 271.0]}
)
HOW = {"metric": "haversine"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("5km", (5.0, "km")),
        (" 1.5 Metres ", (1.5, "m")),
        (".5 arcsec", (0.5, "arcsec")),
        ('2"', (2.0, "arcsec")),
        ("3'", (3.0, "arcmin")),
        ("1e-3 deg", (1e-3, "deg")),
        ("4°", (4.0, "deg")),
        ("-1 mi", (-1.0, "mi")),
        ("7 parsec", (7.0, "parsec")),
        ("radius", None),
        ("r2", None),
        ("1", None),
        ("1 2 m", None),
        ("", None),
        ("1_000 m", None),
        ("x m", None),
        (5.0, None),
        (b"5 km", None),
        ("nan m", None),
        ("inf m", None),
    ],
)
def test_texts_with_units(text, want):
    assert parsed(text) == want


def test_lengths_and_angles():
    sphere, angle = make_metric("haversine"), make_metric("cosine")
    assert (
        without_unit("2 km", sphere, "eps") == 2000
        and without_unit("1 nmi", sphere, "eps") == 1852
    )
    arcsec = without_unit("1 arcsec", sphere, "eps")
    assert arcsec == pytest.approx(RADIUS * math.radians(1 / 3600), rel=1e-15)
    assert without_unit("180 deg", sphere, "eps") == pytest.approx(
        math.pi * RADIUS, rel=1e-15
    )
    assert without_unit("90 deg", angle, "eps") == pytest.approx(1.0, rel=1e-15)
    assert without_unit("1000 mas", sphere, "eps") == pytest.approx(arcsec, rel=1e-15)
    # no angle is more than half a turn
    assert without_unit("400 deg", angle, "eps") == 2.0
    assert (
        without_unit(3.0, sphere, "eps") == 3.0
        and without_unit("column", sphere, "eps") == "column"
    )
    assert (
        meters("1 km", "eps") == 1000
        and meters("1 deg", "eps") is None
        and meters(2, "eps") is None
    )


@pytest.mark.parametrize("how", ["pandas", "dask-2"])
def test_every_verb_takes_them(how):
    data = lay(SKY, how)
    near = without_unit("1 arcsec", make_metric("haversine"), "eps")
    for verb in (
        "self_join",
        "neighbor_counts",
        "count_pairs",
        "dbscan",
        "near_duplicated",
    ):
        found, want = (
            getattr(data.simjoin, verb)(eps, **HOW) for eps in ("1 arcsec", near)
        )
        assert np.array_equal(np.asarray(computed(found)), np.asarray(computed(want)))
    assert computed(data.simjoin.count_pairs("1 arcsec", **HOW)) == 1
    assert len(computed(data.simjoin.join(data, "1 arcsec", **HOW))) == 6
    assert (
        len(computed(data.simjoin.knn_join(k=3, max_distance="1 arcsec", **HOW))) == 2
    )


def test_a_column_of_that_name_is_meant():
    frame = pd.DataFrame({"lat": [0.0, 0.0], "lon": [0.0, 1.0], "5 km": [1.0, 2e5]})
    options = {"on": ["lat", "lon"], "metric": "haversine", "pairs": "both"}
    assert frame.simjoin.self_join("5 km", **options).to_numpy().tolist() == [[1, 0]]
    assert (
        len(frame.rename(columns={"5 km": "r"}).simjoin.self_join("5 km", **options))
        == 0
    )


def test_refused():
    text = "eps='5 km' has a unit, but with metric='euclidean' distances are in the unit of the columns"
    with pytest.raises(OptionError, match=text):
        SKY.simjoin.self_join("5 km")
    with pytest.raises(
        OptionError, match=re.escape("not a unit here (did you mean 'arcsec'?)")
    ):
        SKY.simjoin.dbscan("5 arcsecs", **HOW)
    with pytest.raises(
        OptionError,
        match="is in 'km', which is not a unit here; use a number, or one of",
    ):
        SKY.simjoin.count_pairs("5 km", metric="cosine")
    with pytest.raises(OptionError, match="max_distance='-5 km' is not allowed"):
        SKY.simjoin.knn_join(max_distance="-5 km", **HOW)
    with pytest.raises(OptionTypeError, match="eps='5' is not a number"):
        SKY.simjoin.self_join("5", **HOW)
    for verb in ("self_join", "count_pairs", "neighbor_counts"):
        with pytest.raises(
            OptionTypeError,
            match=r"frame\.assign\(r=eps\), then eps='r'",
        ):
            getattr(SKY.simjoin, verb)(SKY["ra"])


def test_longitudes_to_360_are_those_less_a_turn():
    rng = np.random.default_rng(3)
    lon = np.concatenate(
        [rng.uniform(180, 360, 500), [180.0, 360.0, np.nextafter(180, 360), 270.0]]
    )
    lat = rng.uniform(-90, 90, len(lon))
    turned = np.where(lon > 180, lon - 360, lon)
    with np.errstate(all="raise"):
        vectors = [
            unit_vectors(np.column_stack([lat, some]), np) for some in (lon, turned)
        ]
    assert np.array_equal(*vectors)
    assert [Fraction(value) - 360 for value in lon[:500].tolist()] == list(
        map(Fraction, turned[:500].tolist())
    )
    frames = [pd.DataFrame({"lat": lat, "lon": some}) for some in (lon, turned)]
    pairs = [
        frame.simjoin.self_join("500 km", metric="haversine", return_distance=True)
        for frame in frames
    ]
    assert len(pairs[0]) > 100
    pd.testing.assert_frame_equal(
        *(some.sort_values(["left", "right"], ignore_index=True) for some in pairs)
    )


def test_a_distance_of_zero_is_allowed():
    assert (
        check_eps(0, "eps")
        == 0.0
        == without_unit("0 km", make_metric("haversine"), "eps")
    )
    with pytest.raises(OptionError, match="use a finite number >= 0"):
        check_eps(-1e-300, "eps")


@pytest.mark.parametrize(
    ("metric", "eps", "unit"),
    [
        ("haversine", "2 km", DistanceUnit("km", 1000.0)),
        ("haversine", "2 deg", DistanceUnit("deg", math.radians(1) * RADIUS)),
        ("cosine", "2 deg", DistanceUnit("deg", math.radians(1))),
        ("haversine", 2.0, None),
    ],
)
def test_distances_have_the_unit_of_the_request(metric, eps, unit):
    request = SelfJoinRequest(
        eps=eps, metric=metric, on=["dec", "ra"], return_distance=True
    )
    assert request.spec(SKY).result.unit == unit


def test_a_column_of_distances_that_is_named_like_one_sets_no_unit():
    frame = SKY.assign(**{"2 km": 5.0})
    request = SelfJoinRequest(
        eps="2 km", on=["dec", "ra"], return_distance=True, pairs="both", **HOW
    )
    spec = request.spec(frame)
    assert spec.radius == "2 km" and spec.result.unit is None


def test_messages_repeat_the_text_of_a_distance():
    spec = SelfJoinRequest(eps="3000 km", metric="haversine").spec(SKY)
    assert spec.request == "eps=3000 km"
    assert spec.with_eps(2.0).request == "eps=2.0 m"
    assert SelfJoinRequest(eps=2, metric="haversine").spec(SKY).request == "eps=2.0 m"


@pytest.mark.parametrize(("p", "eps"), [(1000, 0.2), (470, 0.2), (3, 1e-103)])
def test_powers_that_underflow_are_refused(p, eps):
    frame = pd.DataFrame({"x": [0.0, 0.1, 5.0]})
    with pytest.raises(OptionError, match=f"eps={eps} is too small .* p={p}"):
        frame.simjoin.count_pairs(eps, metric="minkowski", p=p)
