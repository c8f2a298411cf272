"""Print what comes of the mistakes that newcomers make: `python -m
tests.checks.mistakes`, or with words of their names. `--all` adds slow ones.

Each is a call that is wrong, or means something else than was meant. What is printed is
what a user sees: the last line of the traceback, warnings, or the result where nothing
is said.
"""

import contextlib
import decimal
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from click.testing import CliRunner
from distributed import Client, LocalCluster

import dask_simjoin
from dask_simjoin.cli.main import cli
from dask_simjoin.cluster import DBSCAN
from dask_simjoin.errors import SimJoinError
from dask_simjoin.neighbors import KNeighborsTransformer, RadiusNeighborsTransformer

RNG = np.random.default_rng(0)
PLACES = pd.DataFrame(
    {
        "geonameid": np.arange(3000) * 7 + 3,
        "latitude": RNG.uniform(45, 55, 3000),
        "longitude": RNG.uniform(0, 20, 3000),
        "population": RNG.integers(0, 10**6, 3000),
        "name": [f"place {k}" for k in range(3000)],
    }
)
ON = {"on": ["latitude", "longitude"]}
SPHERE = {**ON, "metric": "haversine"}
POINTS = pd.DataFrame(
    {"x": np.arange(10.0), "y": np.arange(10.0) % 3, "t": list("abcdefghij")}
)
LAZY = dd.from_pandas(POINTS, npartitions=2)
CROWDED = pd.DataFrame({"x": np.linspace(0, 10, 2_000_000)})
DATES = pd.date_range("2020", periods=10)
VECTORS = pd.DataFrame({"v": list(RNG.normal(size=(2000, 4)) + 1)})


class Polygon:
    """A shape with a centroid, as in shapely, which is an optional dependency."""

    def __init__(self, x, y):
        self.centroid = types.SimpleNamespace(x=x, y=y)


def with_column(values):
    """Points with one more column."""
    return POINTS.assign(z=values)


MISTAKES = {
    "no on=: ids and population are taken for coordinates": lambda: (
        PLACES.simjoin.count_pairs(0.01)
    ),
    "kilometres for metres": lambda: PLACES.simjoin.count_pairs(0.5, **SPHERE),
    "radians for degrees": lambda: PLACES.assign(
        latitude=np.radians(PLACES["latitude"]),
        longitude=np.radians(PLACES["longitude"]),
    ).simjoin.count_pairs(1000, **SPHERE),
    "a similarity as eps of cosine": lambda: VECTORS.simjoin.count_pairs(
        0.95, on="v", metric="cosine"
    ),
    "eps far too large": lambda: CROWDED.simjoin.self_join(1.0),
    "the same, lazily": lambda: (
        dd.from_pandas(CROWDED, npartitions=2).simjoin.self_join(1.0).npartitions
    ),
    "a column of dates": lambda: with_column(DATES).simjoin.self_join(1, on="z"),
    "a column of texts": lambda: POINTS.simjoin.self_join(1, on="t"),
    "a column that the right table lacks": lambda: POINTS.simjoin.join(
        POINTS[["x"]], 1, on=["x", "y"]
    ),
    "eps names a column that there is not": lambda: POINTS.simjoin.self_join(
        "radius", on=["x", "y"]
    ),
    "k in place of the other table": lambda: POINTS.simjoin.knn_join(3, on="x"),
    "eps and the other table swapped": lambda: POINTS.simjoin.join(1.0, POINTS, on="x"),
    "eps forgotten": lambda: POINTS.simjoin.self_join(on="x"),
    "a column of Decimal": lambda: with_column(
        [decimal.Decimal(k) for k in range(10)]
    ).simjoin.self_join(1, on="z"),
    "cuDF where there is none": lambda: LAZY.to_backend("cudf").simjoin.self_join(
        1, on="x"
    ),
    "a verb of another library": lambda: POINTS.simjoin.radius_join(1),
    "how='full'": lambda: POINTS.simjoin.join(POINTS, 1, on="x", how="full"),
    "metric='l2'": lambda: POINTS.simjoin.self_join(1, on="x", metric="l2"),
    "n_neighbors=": lambda: POINTS.simjoin.knn_join(n_neighbors=3, on="x"),
    "a function as metric": lambda: POINTS.simjoin.self_join(
        1, on="x", metric=math.dist
    ),
    "a NumPy array": lambda: dask_simjoin.self_join(np.zeros(5), 1),
    "a column of objects, as shapes are": lambda: with_column(
        [Polygon(k, 0.0) for k in range(10)]
    ).simjoin.self_join(1, on="z"),
    "right ascensions from 0 to 360": lambda: pd.DataFrame(
        {"dec": [0.0, 0.0], "ra": [359.9999, 0.0001]}
    ).simjoin.count_pairs("1 arcsec", metric="haversine"),
    "longitude before latitude": lambda: PLACES.simjoin.self_join(
        1000, on=["longitude", "latitude"], metric="haversine"
    ),
    "three columns for haversine": lambda: PLACES.simjoin.self_join(
        1000, on=["latitude", "longitude", "population"], metric="haversine"
    ),
    "a misspelt option": lambda: POINTS.simjoin.self_join(
        1, on="x", return_distances=True
    ),
    "a misspelt column": lambda: PLACES.simjoin.self_join(
        1, on=["lattitude", "longitude"]
    ),
    "a misspelt column to keep": lambda: PLACES.simjoin.self_join(1, **ON, keep="nam"),
    "a negative eps": lambda: POINTS.simjoin.self_join(-1, on="x"),
    "a distance with a unit, of columns that have none": lambda: (
        POINTS.simjoin.self_join("5km", on=["x", "y"])
    ),
    "NaN": lambda: with_column([np.nan, *range(9)]).simjoin.self_join(1, on="z"),
    "labels that repeat": lambda: pd.concat([POINTS, POINTS]).simjoin.self_join(
        1, on="x"
    ),
    "ids that repeat": lambda: POINTS.simjoin.self_join(1, on="x", id="y"),
    "a vector of zeros": lambda: pd.DataFrame(
        {"v": [[0.0, 0.0], [1.0, 0.0]]}
    ).simjoin.self_join(0.1, on="v", metric="cosine"),
    "lists of unlike length": lambda: pd.DataFrame(
        {"v": [[0.0], [1.0, 0.0]]}
    ).simjoin.self_join(1, on="v"),
    "a size with another unit": lambda: LAZY.simjoin.self_join(
        1, on="x", blocksize="64 MX"
    ),
    "integers that float64 cannot hold": lambda: with_column(
        [2**53 + 1, *range(9)]
    ).simjoin.self_join(1, on="z"),
    "an index of several levels": lambda: POINTS.set_index(
        ["x", "t"]
    ).simjoin.self_join(1, on="y"),
    "components of another frame": lambda: dask_simjoin.connected_components(POINTS),
    "own distances of rows, pairs once": lambda: POINTS.simjoin.self_join("y", on="x"),
    "keep= where nothing is kept": lambda: POINTS.simjoin.count_pairs(
        1, on="x", keep="t"
    ),
    "lists that Dask made texts": lambda: dd.from_pandas(
        pd.DataFrame({"v": [[0.0, 1.0], [1.0, 0.0]]}), npartitions=1
    ).simjoin.self_join(1, on="v"),
    "columns by position": lambda: POINTS.simjoin.self_join(1, ["x", "y"]),
    "p= without minkowski": lambda: POINTS.simjoin.self_join(1, on="x", p=3),
    "min_samples=0": lambda: POINTS.simjoin.dbscan(1, 0, on="x"),
    # others that people make
    "degrees compared as if on a plane": lambda: PLACES.simjoin.count_pairs(0.05, **ON),
    "numbers as objects, and no on=": lambda: with_column(
        pd.Series([decimal.Decimal(k) for k in range(10)], dtype=object)
    ).simjoin.count_pairs(1),
    "a column that a merge renamed": lambda: POINTS.merge(
        POINTS, on="t"
    ).simjoin.self_join(1, on=["x", "y"]),
    "a coordinate that is the index": lambda: POINTS.set_index("x").simjoin.self_join(
        1, on=["x", "y"]
    ),
    "columns in one text": lambda: POINTS.simjoin.self_join(1, on="x,y"),
    "categories as coordinates": lambda: POINTS.astype(
        {"t": "category"}
    ).simjoin.self_join(1, on="t"),
    "eps as text": lambda: POINTS.simjoin.self_join("0.1", on="x"),
    "a distance for each row": lambda: POINTS.simjoin.self_join(POINTS["y"], on="x"),
    "a file in place of a table": lambda: POINTS.simjoin.join(
        "points.parquet", 1, on="x"
    ),
    "NaN among ids": lambda: with_column([math.nan, *range(9)]).simjoin.self_join(
        1, on="x", id="z"
    ),
    "an option of pandas": lambda: POINTS.simjoin.drop_near_duplicates(
        1, subset=["x", "y"]
    ),
    "similarity= of numbers": lambda: VECTORS.simjoin.self_join(
        similarity=0.9, on="v", metric="cosine"
    ),
    "a metric that is none": lambda: VECTORS.simjoin.self_join(
        0.1, on="v", metric="inner_product"
    ),
    "percents as threshold": lambda: POINTS.simjoin.set_self_join(
        "t", 80, tokenizer="words"
    ),
    "column and threshold swapped": lambda: POINTS.simjoin.set_self_join(
        0.8, "t", tokenizer="words"
    ),
}


class Output(str):
    """The exit code of the program, and what it printed."""


def program(*commands, text=None, **files):
    """Run commands of the program in an empty folder; return the output of the last.

    `text`: its standard input. `files`: name of a CSV file without the ending -> its
    content.
    """
    runner = CliRunner()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            pathlib.Path(f"{name}.csv").write_bytes(data)
        for words in commands:
            found = runner.invoke(cli, words, input=text, prog_name="dask-simjoin")
    return Output(f"exit {found.exit_code}: {found.output.strip()}")


SHIPS = pd.DataFrame(
    {
        "mmsi": np.arange(2000) % 100,
        # most are at sea, and two lie at anchor
        "lat": np.append(RNG.uniform(57, 58, 1800), 57.5 + np.arange(200) % 2 * 1e-7),
        "lon": np.append(RNG.uniform(10, 12, 1800), np.full(200, 11.0)),
        "t": pd.date_range("2026-01-01", periods=2000, freq="10s"),
    }
)
SENSORS = pd.DataFrame(
    {
        "sensor_id": np.arange(500) % 20,
        "temp": RNG.normal(20, 1, 500),
        "rpm": RNG.integers(900, 1000, 500),
        "volt": RNG.normal(5, 0.1, 500),
    }
)
FEATURES = {"on": ["temp", "volt"]}
PRODUCTS = pd.DataFrame(
    {"brand": ["Acme", "Bolt"] * 10, "title": [f"Drill {k} mm" for k in range(20)]}
)
BOX = RNG.random((200, 3))
GALAXIES = pd.DataFrame(RNG.random((500, 3)), columns=list("xyz"))
SPACE = {"on": list("xyz")}
TRIPS = pd.DataFrame({"Age": [30.0, 40.0], "Fare": [7.0, 8.0], "lat": 40.0, "lon": -74})


def with_value(frame, row, **values):
    """A table with other values in one row."""
    frame = frame.astype(dict.fromkeys(values, object))
    frame.loc[row, list(values)] = list(values.values())
    return frame.infer_objects()


def points(rows=20, crs=2056):
    """A GeoDataFrame of points in Switzerland."""
    import geopandas  # an optional dependency

    place = np.arange(rows) * 10.0
    shapes = geopandas.points_from_xy(2_600_000 + place, 1_200_000 + place, crs=2056)
    return geopandas.GeoDataFrame({"n": np.arange(rows)}, geometry=shapes).to_crs(crs)


def with_hole():
    """Points of which one is missing."""
    frame = points()
    frame.loc[3, "geometry"] = None
    return frame


def with_areas():
    """Circles instead of points."""
    frame = points()
    return frame.set_geometry(frame.buffer(5))


def sparse():
    """A sparse matrix."""
    import scipy.sparse  # slow to import

    return scipy.sparse.csr_matrix(BOX)


NAMES = "name,city\nAnna,Bern\nAnne,Bern\n"
BY_NAME = ["--on", "name", "-k", "1", "-o", "pairs.csv"]
HEADER = "asset,lat,lon\n"
ASSETS = HEADER + "".join(f"A{k},{50 + k / 1000},8.5\n" for k in range(6000))
TEXT_CELL = ASSETS.replace("A7,50.007", "A7,unknown")
LATE_TEXT_CELL = ASSETS.replace("A5900,55.9", "A5900,unknown")
BY_PLACE = ["--eps", "100", "--on", "lat,lon", "--metric", "haversine", "--id", "asset"]
JOIN = ["self-join", "assets.csv", *BY_PLACE, "-o", "pairs.csv"]
MAKE = ["index", "make", "assets.csv", *BY_PLACE, "--path", "grown"]


def update(table, *words):
    """Arguments that add a table to an index."""
    out = ["-o", "changes.csv", "--overwrite"]
    return ["index", "update", "grown", f"{table}.csv", *words, *out]


def misspelt_setting():
    """Run a join with a wrong name of a setting in the environment."""
    name = "DASK_SIMJOIN__BLOCKSIZ"
    os.environ[name] = "1MB"
    try:
        with dask.config.set({"simjoin.blocksiz": "1MB"}):
            return program(JOIN, assets=ASSETS)
    finally:
        del os.environ[name]


def small_workers():
    """Cluster rows on workers that are always paused."""
    small = {"memory_limit": "400MB", "dashboard_address": None, "processes": False}
    with LocalCluster(n_workers=2, **small) as cluster, Client(cluster):
        frame = dd.from_pandas(GALAXIES, npartitions=2)
        return frame.simjoin.dbscan(0.01, 5, **SPACE).compute()


class Mistake(NamedTuple):
    """A call, and what its message must say: the value, what is allowed, a remedy."""

    call: Callable[[], Any]
    says: tuple[str, ...]


JOBS = {
    # ships that meet
    "AIS: a missing latitude": Mistake(
        lambda: with_value(SHIPS, 7, lat=math.nan).simjoin.self_join(
            500, on=["lat", "lon"], metric="haversine"
        ),
        ("'lat' has 1 missing value", "label 7", "Use dropna=True", "no partner"),
    ),
    "AIS: longitude before latitude": Mistake(
        lambda: SHIPS.simjoin.self_join(500, on=["lon", "lat"], metric="haversine"),
        ("'lon', 'lat'", "use on=['lat', 'lon']"),
    ),
    "AIS: times among the coordinates": Mistake(
        lambda: SHIPS.simjoin.self_join(500, on=["lat", "lon", "t"]),
        (
            "'t' of dtype datetime64",
            "coordinates must be numbers",
            "on=['lat', 'lon'] and, for example, within={'t': '10 min'}",
            "df['t'] = (df['t'] - df['t'].min()).dt.total_seconds()",
        ),
    ),
    "AIS: kilometers, and ships at anchor": Mistake(
        lambda: SHIPS.simjoin.self_join(0.5, on=["lat", "lon"], metric="haversine"),
        ("eps=0.5 is in meters", "use eps='0.5 km'", "'0.5 m' ends this warning"),
    ),
    "AIS: a position that is not available": Mistake(
        lambda: with_value(SHIPS, 7, lat=91.0, lon=181.0).simjoin.self_join(
            500, on=["lat", "lon"], metric="haversine"
        ),
        ("91.0 at label 7", "-90 to 90", "stands for 'not available'", ".between(-90"),
    ),
    # readings without a similar one
    "novelty: no coordinates named": Mistake(
        lambda: SENSORS.simjoin.knn_join(k=1),
        ("'sensor_id'", "such as on=['temp', 'rpm', 'volt']", "if they are codes"),
    ),
    "novelty: labels of several files": Mistake(
        lambda: pd.concat([SENSORS, SENSORS]).simjoin.knn_join(k=1, **FEATURES),
        ("0 repeats", "Use id= with a column of unique values", "with_row_id()"),
    ),
    "novelty: no neighbors": Mistake(
        lambda: SENSORS.simjoin.knn_join(k=0, **FEATURES), ("k=0", ">= 1")
    ),
    "novelty: only earlier rows": Mistake(
        lambda: SENSORS.simjoin.knn_join(k=1, direction="backward", **FEATURES),
        (
            "'direction'",
            "here called 'time'",
            "within={'time': ('-1 h', '0 h')}",
            "at most one hour earlier",
        ),
    ),
    # stops near addresses
    "stops: a missing geometry": Mistake(
        lambda: with_hole().simjoin.knn_join(points(), 1, how="left"),
        ("'geometry' has 1 missing", "label 3", "Use dropna=True", "no partner"),
    ),
    "stops: two coordinate systems": Mistake(
        lambda: points().simjoin.knn_join(points(crs=4326), 1),
        ("EPSG:2056", "right table", "EPSG:4326", "other = other.to_crs(frame.crs)"),
    ),
    "stops: areas": Mistake(
        lambda: points().simjoin.knn_join(with_areas(), 1),
        (
            "In the right table, column 'geometry' holds 20 geometries",
            "a Polygon in row 0 (label 0)",
            "other = other.set_geometry(other['geometry'].centroid)",
        ),
    ),
    # products that are listed twice
    "products: two columns of texts": Mistake(
        lambda: PRODUCTS.simjoin.edit_self_join(["brand", "title"], 2),
        ("on=['brand', 'title'] names 2 columns", "Use on='title'", "df['both'] = "),
    ),
    "products: a similarity as number of edits": Mistake(
        lambda: PRODUCTS.simjoin.edit_self_join("title", 0.9),
        ("k=0.9", "a whole number of edits", "or similarity=0.9"),
    ),
    "products: threshold=": Mistake(
        lambda: PRODUCTS.simjoin.edit_self_join("title", threshold=0.9),
        ("'threshold'", "did you mean 'similarity'?"),
    ),
    "products: a capital letter": Mistake(
        lambda: PRODUCTS.simjoin.edit_self_join("title", 2, by="Brand"),
        ("'Brand'", "did you mean 'brand'?"),
    ),
    "products: a number among texts": Mistake(
        lambda: with_value(PRODUCTS, 4, title=42).simjoin.edit_self_join("title", 2),
        (
            "label 4",
            "holds 42 (int)",
            "must hold texts",
            "df['title'] = df['title'].map(",
        ),
    ),
    # particles in a box
    "box: rows and columns swapped": Mistake(
        lambda: dask_simjoin.neighbor_counts(BOX.T, 0.05),
        ("3 rows, but 200", "x.T instead of x"),
    ),
    "box: boxsize=": Mistake(
        lambda: dask_simjoin.neighbor_counts(BOX, 0.05, boxsize=1.0),
        (
            "'boxsize'",
            "periodic box from 0 to L, use box=L",
        ),
    ),
    "box: far too large a distance": Mistake(
        lambda: dask_simjoin.self_join(RNG.random((400_000, 3)), 0.9),
        (
            "within eps=0.9",
            "k_distances(x, 10)",
            "count_pairs()",
            "'simjoin.result-lim",
            "dd.from_pandas(pandas.DataFrame(x), npartitions=",
        ),
    ),
    # clusters of a population
    "population: kilometers": Mistake(
        lambda: SHIPS[:1800].simjoin.dbscan(
            0.4, 5, on=["lat", "lon"], metric="haversine"
        ),
        ("within eps=0.4 meters", "eps= is in meters", "use eps='0.4 km'"),
    ),
    "population: degrees": Mistake(
        lambda: SHIPS.rename(columns={"lon": "x", "lat": "y"}).simjoin.dbscan(
            400, 5, on=["x", "y"]
        ),
        (
            "within eps=400",
            "on=['y', 'x']",
            "metric='haversine'",
            "eps is in the unit of",
        ),
    ),
    "population: workers with 400 MB": Mistake(
        small_workers,
        ("400 MB", "at least 433 MB", "Use fewer workers", "memory_limit='700 MB'"),
    ),
    # groups of galaxies
    "galaxies: ids as float64": Mistake(
        lambda: GALAXIES.assign(id=2.0**60 + np.arange(500)).simjoin.self_join(
            0.05, id="id", **SPACE
        ),
        ("repeats", "rounds integers of this size", "read the column as int64"),
    ),
    "galaxies: megaparsecs": Mistake(
        lambda: GALAXIES.simjoin.self_join("0.05 Mpc", **SPACE),
        ("'0.05 Mpc'", "in the unit of the columns", "such as eps=0.05", "in Mpc"),
    ),
    "galaxies: groups of rows instead of pairs": Mistake(
        lambda: dask_simjoin.connected_components(GALAXIES),
        (
            "takes pairs",
            "'x', 'y', 'z'",
            "self_join(eps)",
            "dbscan(eps, min_samples=1)",
        ),
    ),
    # linkage in the shell
    "shell: another separator": Mistake(
        lambda: program(
            ["strings", "self-join", "a.csv", *BY_NAME], a=NAMES.replace(",", ";")
        ),
        ("'name;city'", "looks like ';'", "add --separator ';'"),
    ),
    "shell: no -k": Mistake(
        lambda: program(
            ["strings", "join", "a.csv", "--other", "a.csv", "--on", "name", "-o", "b"],
            a=NAMES,
        ),
        ("--k and --similarity are both missing", "--k 2", "--similarity 0.9"),
    ),
    "shell: a pipe into the program": Mistake(
        lambda: program(["strings", "self-join", "-", *BY_NAME], text=NAMES),
        ("exit 0", "Wrote 1 row to pairs.csv"),
    ),
    "shell: another encoding": Mistake(
        lambda: program(
            ["strings", "self-join", "a.csv", *BY_NAME],
            a=NAMES.replace("Anna", "Ren\xe9").encode("latin-1"),
        ),
        ("a.csv, line 2", "0xe9 is not UTF-8", "--encoding latin-1"),
    ),
    "shell: a pipe out of the program": Mistake(
        lambda: program(
            ["strings", "self-join", "a.csv", *BY_NAME[:-1], "-", "--quiet"], a=NAMES
        ),
        ("exit 0", "left,right\n0,1"),
    ),
    # an index that grows each night
    "nightly: the same batch twice": Mistake(
        lambda: program(
            MAKE,
            update("new", "--batch", "monday"),
            update("new", "--batch", "monday"),
            assets=ASSETS,
            new=HEADER + "B1,50,8.5\n",
        ),
        (
            "exit 0",
            "'monday' was committed before, so the index did not change",
            "changes of this batch again to changes.csv: 1 added pair",
        ),
    ),
    "nightly: rows that are there": Mistake(
        lambda: program(MAKE, update("assets"), assets=ASSETS),
        ("exit 3", "'A0', 'A1'", "--if-exists replace", "--if-exists ignore"),
    ),
    "nightly: a text among numbers": Mistake(
        lambda: "\n".join(
            [
                program(JOIN, assets=TEXT_CELL),
                program(JOIN, assets=LATE_TEXT_CELL),
                program(MAKE, update("b"), assets=ASSETS, b=LATE_TEXT_CELL),
            ]
        ),
        (
            "exit 3",
            "line 9: column 'lat' has 'unknown'",
            "line 5902",
            "--bad-rows skip",
        ),
    ),
    "nightly: a setting that does not exist": Mistake(
        misspelt_setting,
        ("exit 2", "DASK_SIMJOIN__BLOCKSIZ", "did you mean 'DASK_SIMJOIN__BLOCKSIZE'?"),
    ),
    "nightly: an empty file": Mistake(
        lambda: program(MAKE, update("new"), assets=ASSETS, new=HEADER),
        (
            "exit 0",
            "no rows to add in new.csv",
            "check this file",
            "Wrote 0 added pairs",
        ),
    ),
    "nightly: an id that repeats": Mistake(
        lambda: program(JOIN, assets=f"{ASSETS}A0,50,8\n"),
        (
            "exit 3",
            "'A0' repeats",
            "Correct these ids",
            "See lines 2 and 6002 of assets.csv.",
        ),
    ),
    # pipelines of scikit-learn
    "pipeline: columns in one text": Mistake(
        lambda: TRIPS.simjoin.self_join(500, on="lat,lon", metric="haversine"),
        ("'lat,lon'", "did you mean ['lat', 'lon']?"),
    ),
    "pipeline: a small letter": Mistake(
        lambda: TRIPS.simjoin.self_join(1, on=["Age", "fare"]),
        ("'fare'", "did you mean 'Fare'?"),
    ),
    "pipeline: a decimal comma": Mistake(
        lambda: TRIPS.simjoin.self_join(
            "0,25 km", on=["lat", "lon"], metric="haversine"
        ),
        (
            "'0,25 km' has a decimal comma",
            "use a decimal point: eps='0.25 km'",
            "a finite number >= 0",
            "in meters",
        ),
    ),
    "pipeline: NaN": Mistake(
        lambda: RadiusNeighborsTransformer(radius=0.5).fit(
            np.where(BOX[4, 1] == BOX, math.nan, BOX)
        ),
        (
            "column 1 has 1 missing value",
            "label 4",
            "make_pipeline(SimpleImputer(), RadiusNeighborsTransformer(...))",
            "X[np.isfinite(X).all(axis=1)]",
        ),
    ),
    "pipeline: a sparse matrix": Mistake(
        lambda: KNeighborsTransformer(n_neighbors=3).fit(sparse()),
        (
            "sparse matrix of shape (200, 3)",
            "dense data is required",
            "pass X.toarray()",
            "accept_sparse=True",
            "takes 4.8 kB",
        ),
    ),
    "pipeline: a function as metric": Mistake(
        lambda: DBSCAN(eps=0.5, metric=math.dist).fit(BOX),
        ("metric=<built-in function dist>", "not supported", "use 'euclidean'"),
    ),
}
"""Mistakes in ten jobs."""


def unguarded():
    """Start worker processes where `if __name__ == "__main__":` is missing."""
    lines = "from distributed import Client\nClient(n_workers=1)\n"
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "job.py")
        path.write_text(lines)
        found = subprocess.run(
            [sys.executable, path], capture_output=True, text=True, check=False
        )
    return Output(found.stderr.strip().splitlines()[-1])


SLOW = {"worker processes without __main__": unguarded}
"""Mistakes whose message is not from this package, or that take long."""


def outcome(call):
    """What a user sees: lines of text, and whether anything was said."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            result, error = call(), None
        except Exception as caught:
            result, error = None, caught
    # other packages warn of what they will change
    own = [one for one in heard if "dask_simjoin" in one.category.__module__]
    said = [f"{one.category.__name__}: {one.message}" for one in own or heard]
    if error is not None:
        return [*said, f"{type(error).__name__}: {error}"], isinstance(
            error, SimJoinError
        ) or bool(said)
    if isinstance(result, str):
        return [*said, *result.splitlines()], True
    return [*said, f"no error: {str(result).splitlines()[0]}"], bool(said)


def main():
    """Print those that the arguments name, or all."""
    words = [word for word in sys.argv[1:] if word != "--all"]
    calls = MISTAKES | {name: mistake.call for name, mistake in JOBS.items()}
    if "--all" in sys.argv:
        calls |= SLOW
    with contextlib.suppress(KeyboardInterrupt):
        for number, (name, call) in enumerate(calls.items(), 1):
            if words and not any(word in name for word in words):
                continue
            print(f"{number}. {name}")
            for line in outcome(call)[0]:
                print(f"   {line}")


if __name__ == "__main__":
    main()
