"""Mistakes that newcomers make are told of, in the package's words."""

import decimal
import re

import dask
import numpy as np
import pandas as pd
import pytest
import scipy.spatial
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

import dask_simjoin
from dask_simjoin.errors import ColumnError, SimJoinError
from dask_simjoin.neighbors import KNeighborsTransformer
from tests.checks.mistakes import (
    BOX,
    DATES,
    GALAXIES,
    JOBS,
    MISTAKES,
    ON,
    PLACES,
    POINTS,
    PRODUCTS,
    SENSORS,
    SHIPS,
    SPACE,
    SPHERE,
    TRIPS,
    VECTORS,
    Polygon,
    outcome,
    points,
    sparse,
    with_areas,
    with_column,
    with_hole,
    with_value,
)
from tests.support.remedies import meant, recommended, repaired, rows_of_one_length

RIGHT = {"right ascensions from 0 to 360"}
"""What was a mistake once."""

OF_OTHERS = {"cuDF where there is none", "a verb of another library"}
"""Where Dask refuses first, or Python's own error is the right one."""


def names_of(kind):
    """Names of a class and of all below it."""
    return {kind.__name__} | {
        name for sub in kind.__subclasses__() for name in names_of(sub)
    }


@pytest.mark.parametrize("name", MISTAKES)
def test_something_is_said(name):
    with dask.config.set(scheduler="sync"):
        lines, said = outcome(MISTAKES[name])
    if name in RIGHT:
        assert not said and len(lines) == 1
    elif name not in OF_OTHERS:
        kind = lines[0].partition(":")[0]
        assert said and kind in names_of(SimJoinError) | {
            "UnitsWarning",
            "ColumnsWarning",
        }, lines
        # more than what is wrong: what is allowed, or what helps
        assert len(lines[0]) > 55


@pytest.mark.parametrize("name", JOBS)
def test_message_names_value_and_remedy(name):
    if name.startswith("stops"):
        pytest.importorskip("geopandas")
    mistake = JOBS[name]
    text = "\n".join(outcome(mistake.call)[0])
    assert not [part for part in mistake.says if part not in text], text
    assert "Traceback" not in text


def in_frame(frame, text, verb):
    """Call a verb of a frame as the message says."""
    call = re.search(rf"{verb}\([^()]*\)", text)
    assert call, text
    return eval(f"frame.simjoin.{call[0]}", {"frame": frame})


def numbered(text, frame):
    """Join with the row numbers that the message recommends as ids."""
    id = recommended(text.split("then ")[1], "id")
    return repaired(text, frame).simjoin.self_join(1, on="x", **id)


def both_ways(text, frame):
    """Join without the rows that a message names, and with missing values there."""
    dropped, missing = text.split("dropna=True does not help")
    pairs = repaired(dropped.strip(), frame).simjoin.self_join(500, **AT_SEA)
    same = repaired(missing, frame).simjoin.self_join(
        500, **AT_SEA, **recommended(missing, "dropna")
    )
    pd.testing.assert_frame_equal(pairs, same)
    return pairs


def counted_in_box(text):
    """Count neighbors in a periodic box as a message says, and as SciPy does."""
    size = {"L": 1.0}
    options = eval(f"dict({re.search('box=L', text)[0]})", size)
    counts = dask_simjoin.neighbor_counts(BOX, 0.2, **options)
    tree = scipy.spatial.cKDTree(BOX, boxsize=1.0)
    found = tree.query_ball_point(BOX, 0.2, return_length=True) - 1
    own = dask_simjoin.neighbor_counts(BOX, 0.2)
    assert found.tolist() == counts.tolist() != np.asarray(own).tolist()
    return counts


def inner_products(text):
    """Join rows of norm 1 as a message says; compare with their inner products."""
    s, metric, eps = re.search(
        r"metric='(\w+)' with eps=1-s. For s=(.*?), use eps=(.*?)\. ", text
    ).group(2, 1, 3)
    rows = np.random.default_rng(0).normal(size=(50, 3))
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    frame = pd.DataFrame({"v": list(rows)})
    pairs = frame.simjoin.self_join(float(eps), on="v", metric=metric)
    want = np.argwhere(np.triu(rows @ rows.T >= float(s), 1))
    assert len(want) and sorted(pairs.to_numpy().tolist()) == want.tolist()
    return pairs


def pairs_near_in_time(text):
    """Find pairs that are near in space and in time, in both ways of a message."""
    use, scaled = text.split(" To use time as a coordinate")
    with pytest.raises(ColumnError) as caught:
        SHIPS.simjoin.self_join(500, on=["lat", "lon", "t"], metric="haversine")
    assert str(caught.value) == use  # it has two coordinates
    near = recommended(use, "on") | eval(f"dict({re.search('within={.*?}', use)[0]})")
    # on a plane; no times are 605 seconds apart
    plane = SHIPS.rename(columns={"lat": "y", "lon": "x"})
    every = plane.simjoin.self_join(0.05, on=["y", "x"], metric="chebyshev")
    kept = plane.simjoin.self_join(
        0.05, on=["y", "x"], within={"t": "605 s"}, metric="chebyshev"
    )
    assert 0 < len(kept) < len(every)
    frame = repaired(scaled.replace("seconds_per_unit", "(605 / 0.05)"), plane)
    boxes = frame.simjoin.self_join(0.05, on=["y", "x", "t"], metric="chebyshev")
    assert len(boxes) == len(kept)
    return SHIPS.simjoin.self_join(500, **HAVERSINE, **near)


RADIANS = PLACES.assign(**{name: np.radians(PLACES[name]) for name in ON["on"]})
HOLES = with_column([np.nan, *range(9)])
PLANE = SHIPS[:1800].rename(columns={"lon": "x", "lat": "y"})
ZEROS = pd.DataFrame({"v": [[0.0, 0.0], [1.0, 0.0]]})
UNLIKE = pd.DataFrame({"v": [[0.0], [1.0, 0.0], [2.0, 0.0]]})
HAVERSINE = {"metric": "haversine"}
AT_SEA = {"on": ["lat", "lon"], **HAVERSINE}


REMEDIES = {
    "no on=: ids and population are taken for coordinates": lambda text: (
        PLACES.simjoin.count_pairs(500, **HAVERSINE, **recommended(text, "on", "id"))
    ),
    "kilometres for metres": lambda text: PLACES.simjoin.count_pairs(
        **SPHERE, **recommended(text, "eps")
    ),
    "radians for degrees": lambda text: repaired(text, RADIANS).simjoin.count_pairs(
        "1 km", **SPHERE
    ),
    "a similarity as eps of cosine": lambda text: VECTORS.simjoin.count_pairs(
        on="v", metric="cosine", **recommended(text, "eps")
    ),
    "a column of dates": lambda text: repaired(
        text, with_column(DATES)
    ).simjoin.self_join(1, on="z"),
    "a column of texts": lambda text: (
        in_frame(POINTS, text, "edit_self_join"),
        in_frame(POINTS, text, "set_self_join"),
    ),
    "a column of Decimal": lambda text: repaired(
        text, with_column([decimal.Decimal(k) for k in range(10)])
    ).simjoin.self_join(1, on="z"),
    "metric='l2'": lambda text: POINTS.simjoin.self_join(1, on="x", metric=meant(text)),
    "n_neighbors=": lambda text: POINTS.simjoin.knn_join(on="x", **{meant(text): 3}),
    "a function as metric": lambda text: POINTS.simjoin.self_join(
        1, on="x", metric=eval(text.rsplit("use ")[-1].rstrip("."))
    ),
    "a column of objects, as shapes are": lambda text: repaired(
        text, with_column([Polygon(k, 0.0) for k in range(10)])
    ).simjoin.self_join(1, on="z"),
    "longitude before latitude": lambda text: PLACES.simjoin.self_join(
        1000, **HAVERSINE, **recommended(text, "on")
    ),
    "three columns for haversine": lambda text: PLACES.simjoin.self_join(
        1000, **HAVERSINE, **recommended(text, "on")
    ),
    "a misspelt option": lambda text: POINTS.simjoin.self_join(
        1, on="x", **{meant(text): True}
    ),
    "a misspelt column to keep": lambda text: PLACES.simjoin.self_join(
        1000, **SPHERE, keep=meant(text)
    ),
    "a distance with a unit, of columns that have none": lambda text: (
        POINTS.simjoin.self_join(on=["x", "y"], **recommended(text, "eps"))
    ),
    "NaN": lambda text: HOLES.simjoin.self_join(
        1, on="z", **recommended(text, "dropna")
    ),
    "lists of unlike length": lambda text: rows_of_one_length(
        text, UNLIKE
    ).simjoin.self_join(2, on="v"),
    "NaN among ids": lambda text: repaired(
        text, with_column([np.nan, *range(9)])
    ).simjoin.self_join(1, on="x", id="z"),
    "labels that repeat": lambda text: numbered(text, pd.concat([POINTS, POINTS])),
    "ids that repeat": lambda text: numbered(text, POINTS),
    "a vector of zeros": lambda text: ZEROS.simjoin.self_join(
        0.1, on="v", metric="cosine", **recommended(text, "dropna")
    ),
    "integers that float64 cannot hold": lambda text: repaired(
        text, with_column([2**53 + 1, *range(9)])
    ).simjoin.self_join(1, on="z"),
    "an index of several levels": lambda text: numbered(
        text, POINTS.assign(u=POINTS["x"]).set_index(["u", "t"])
    ),
    "own distances of rows, pairs once": lambda text: POINTS.simjoin.self_join(
        "y", on="x", **recommended(text, "pairs")
    ),
    "columns by position": lambda text: POINTS.simjoin.self_join(
        1, **recommended(text, "on")
    ),
    "degrees compared as if on a plane": lambda text: PLACES.simjoin.count_pairs(
        **recommended(text, "metric", "on", "eps")
    ),
    "columns in one text": lambda text: POINTS.simjoin.self_join(1, on=meant(text)),
    "a distance for each row": lambda text: eval(
        re.search(r"frame\.assign\(.*?\)", text)[0],
        {"frame": POINTS, "eps": POINTS["y"]},
    ).simjoin.self_join(on="x", **recommended(text.split("then ")[1], "eps", "pairs")),
    "similarity= of numbers": lambda text: VECTORS.simjoin.self_join(
        on="v", **recommended(text, "metric", "eps")
    ),
    "column and threshold swapped": lambda text: in_frame(
        POINTS, text, "set_self_join"
    ),
    "AIS: kilometers, and ships at anchor": lambda text: SHIPS.simjoin.self_join(
        **AT_SEA, **recommended(text, "eps")
    ),
    "AIS: times among the coordinates": pairs_near_in_time,
    "AIS: a position that is not available": lambda text: both_ways(
        text, with_value(SHIPS, 7, lat=91.0, lon=181.0)
    ),
    "novelty: no coordinates named": lambda text: SENSORS.simjoin.knn_join(
        k=1, **recommended(text, "on")
    ),
    "stops: a missing geometry": lambda text: with_hole().simjoin.knn_join(
        points(), 1, how="left", **recommended(text, "dropna")
    ),
    "stops: two coordinate systems": lambda text: points().simjoin.knn_join(
        repaired(text, points(), other=points(crs=4326)), 1
    ),
    "stops: areas": lambda text: points().simjoin.knn_join(
        repaired(text, points(), other=with_areas()), 1
    ),
    "products: two columns of texts": lambda text: repaired(
        text, PRODUCTS
    ).simjoin.edit_self_join(k=2, **recommended(text.split("then ")[1], "on")),
    "products: a similarity as number of edits": lambda text: (
        PRODUCTS.simjoin.edit_self_join("title", **recommended(text, "similarity"))
    ),
    "products: a capital letter": lambda text: PRODUCTS.simjoin.edit_self_join(
        "title", 2, by=meant(text)
    ),
    "products: a number among texts": lambda text: repaired(
        text, with_value(PRODUCTS, 4, title=42)
    ).simjoin.edit_self_join("title", 2),
    "population: kilometers": lambda text: SHIPS[:1800].simjoin.dbscan(
        min_samples=5, **AT_SEA, **recommended(text, "eps")
    ),
    "population: degrees": lambda text: PLANE.simjoin.dbscan(
        400, 5, **recommended(text, "on", "metric")
    ),
    "galaxies: megaparsecs": lambda text: GALAXIES.simjoin.self_join(
        **SPACE, **recommended(text, "eps")
    ),
    "pipeline: a sparse matrix": lambda text: (
        KNeighborsTransformer(n_neighbors=3).fit(sparse().toarray()),
        make_pipeline(
            eval(
                re.search(r"FunctionTransformer\(.*?=True\)", text)[0],
                {"FunctionTransformer": FunctionTransformer},
            ),
            KNeighborsTransformer(n_neighbors=3),
        ).fit_transform(sparse()),
        make_pipeline(
            eval(
                re.search(r"OneHotEncoder\(.*?\)", text)[0],
                {"OneHotEncoder": OneHotEncoder},
            ),
            KNeighborsTransformer(n_neighbors=3),
        ).fit_transform(PRODUCTS[["brand"]]),
    ),
    "pipeline: a decimal comma": lambda text: TRIPS.simjoin.self_join(
        **{**HAVERSINE, "on": ["lat", "lon"], "id": "Age"}, **recommended(text, "eps")
    ),
    "novelty: only earlier rows": lambda text: SENSORS.assign(
        time=pd.Timestamp(0) + pd.to_timedelta(range(len(SENSORS)), "min")
    ).simjoin.knn_join(
        k=1,
        max_distance=1.0,
        on=["temp", "volt"],
        **eval(f"dict({re.search('within={.*?}', text)[0]})"),
    ),
    "a verb of another library": lambda text: [
        eval(
            f"frame.simjoin.{call}",
            {"frame": POINTS[["x"]], "other": POINTS[["x"]], "eps": 1},
        )
        for call in re.findall(r"\w+_?join\([^()]*\)", text)
    ],
    "a metric that is none": inner_products,
    "box: boxsize=": counted_in_box,
    "pipeline: columns in one text": lambda text: TRIPS.simjoin.self_join(
        500, on=meant(text), **HAVERSINE, id="Age"
    ),
}
"""Mistake -> a function of its message, which does what the message recommends."""


@pytest.mark.parametrize("name", REMEDIES)
def test_remedies_work(name):
    if name.startswith("stops"):
        pytest.importorskip("geopandas")
    call = MISTAKES[name] if name in MISTAKES else JOBS[name].call
    text = outcome(call)[0][0].partition(": ")[2]
    # whatever is raised, or warned of, fails the test
    assert REMEDIES[name](text) is not None
