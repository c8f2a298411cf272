"""Print what comes of the mistakes that newcomers make: `python -m
tests.checks.mistakes`.

Each is a call that is wrong, or means something else than was meant. What is printed is
what a user sees: the last line of the traceback, warnings, or the result where nothing
is said.
"""

import contextlib
import decimal
import math
import warnings

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin
from dask_simjoin.errors import SimJoinError

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
EQUAL = pd.DataFrame({"x": np.zeros(2_000_000)})
VECTORS = pd.DataFrame({"v": list(RNG.normal(size=(2000, 4)) + 1)})


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
    "eps far too large": lambda: EQUAL.simjoin.self_join(1.0),
    "the same, lazily": lambda: (
        dd.from_pandas(EQUAL, npartitions=2).simjoin.self_join(1.0).npartitions
    ),
    "a column of dates": lambda: with_column(
        pd.date_range("2020", periods=10)
    ).simjoin.self_join(1, on="z"),
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
    "how='right'": lambda: POINTS.simjoin.join(POINTS, 1, on="x", how="right"),
    "metric='l2'": lambda: POINTS.simjoin.self_join(1, on="x", metric="l2"),
    "n_neighbors=": lambda: POINTS.simjoin.knn_join(n_neighbors=3, on="x"),
    "a function as metric": lambda: POINTS.simjoin.self_join(
        1, on="x", metric=math.dist
    ),
    "a NumPy array": lambda: dask_simjoin.self_join(np.zeros(5), 1),
    "a column of objects, as shapes are": lambda: with_column(
        [object()] * 10
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


def outcome(call):
    """What a user sees: lines of text, and whether anything was said."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            result, error = call(), None
        except Exception as caught:
            result, error = None, caught
    said = [f"{one.category.__name__}: {one.message}" for one in heard]
    if error is not None:
        return [*said, f"{type(error).__name__}: {error}"], isinstance(
            error, SimJoinError
        ) or bool(said)
    return [*said, f"no error: {str(result).splitlines()[0]}"], bool(said)


def main():
    """Print all of them."""
    with dask.config.set(scheduler="sync"), contextlib.suppress(KeyboardInterrupt):
        for number, (name, call) in enumerate(MISTAKES.items(), 1):
            print(f"{number}. {name}")
            for line in outcome(call)[0]:
                print(f"   {line}")


if __name__ == "__main__":
    main()
