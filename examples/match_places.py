"""
Two tables, matched on the sphere
=================================

Match two tables of places on the sphere, with distances in meters and the names of both
rows.

The program splits places of North and Central America (GeoNames) into towns and others.
Then it asks: which places lie within 2 km of a city? Which town is nearest to each
place? Which places have no town near them?

::

    python examples/match_places.py
    python examples/match_places.py --town 50000 --far 200000
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import dask
import dask.dataframe as dd
import pandas as pd

import dask_simjoin  # noqa: F401  (gives Dask DataFrames the accessor .simjoin)

DATA = Path(__file__).resolve().parent / "data" / "places.parquet"
HOW = {"on": ["latitude", "longitude"], "id": "geonameid", "metric": "haversine"}


def show(title: str, table: pd.DataFrame) -> None:
    """Print a small table."""
    print(f"\n{title}\n{table.to_string(index=False, float_format='{:,.0f}'.format)}")


def main() -> None:
    """Match, and print the results."""
    parser = argparse.ArgumentParser(
        description="Match two tables of places on the sphere."
    )
    parser.add_argument(
        "--town",
        type=int,
        default=15_000,
        help="smallest population of a town (default 15000)",
    )
    parser.add_argument(
        "--city",
        type=int,
        default=1_000_000,
        help="smallest population of a city (default 1000000)",
    )
    parser.add_argument(
        "--near", type=float, default=2000.0, help="meters from a city (default 2000)"
    )
    parser.add_argument(
        "--far", type=float, default=100_000.0, help="meters to a town (default 100000)"
    )
    options = parser.parse_args()

    start = time.perf_counter()
    places = dd.read_parquet(DATA, split_row_groups=True)
    is_town = places["population"] >= options.town
    towns, others = places[is_town], places[~is_town]
    cities = places[places["population"] >= options.city]

    # every pair within some meters; `keep` adds columns of both tables
    near = cities.simjoin.join(
        others, options.near, keep=["name", "country"], return_distance=True, **HOW
    )
    # the nearest town of each place, if it is not too far
    nearest = others.simjoin.knn_join(
        towns, 1, max_distance=options.far, keep=["name", "country"], **HOW
    )
    served = nearest.groupby(["right", "name_right", "country_right"])["distance"].agg(
        ["size", "max"]
    )
    # the rows of the left table that are in no pair, with all their columns
    alone = others.simjoin.join(towns, options.far, how="leftanti", **HOW)

    rows, near, distances, served, alone = dask.compute(
        (towns.shape[0], others.shape[0]), near, nearest["distance"], served, alone
    )
    print(
        f"{rows[0]:,} towns of {options.town:,} people or more, {rows[1]:,} other "
        "places"
    )
    print(f"{len(near):,} other places are within {options.near:,.0f} m of a city")
    print(
        f"{len(distances):,} have a town within {options.far:,.0f} m, "
        f"{distances.mean():,.0f} m on average"
    )
    print(f"{len(alone):,} have no town within that distance")
    print(f"{time.perf_counter() - start:.1f} seconds")

    columns = ["name_left", "name_right", "country_right", "distance"]
    show("Places closest to a city (meters)", near.nsmallest(6, "distance")[columns])
    served = served.sort_values(["size", "max"], ascending=False).reset_index()
    columns = ["name_right", "country_right", "size", "max"]
    show(
        "Towns that are nearest to the most places, and the largest distance (meters)",
        served[columns].head(6),
    )
    columns = ["name", "country", "latitude", "longitude"]
    show("Northernmost places without a town", alone.nlargest(6, "latitude")[columns])


# %%
# Output
# ------

if __name__ == "__main__":
    main()

# sphinx_gallery_thumbnail_path = 'images/thumbnails/match_places.png'
