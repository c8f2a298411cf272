"""
Pairs in Dask analytics
=======================

Pairs are Dask DataFrames: groupby, assign and filter stay lazy until one compute.

The program asks three questions about places of North and Central America. How crowded
is each country? Where do close pairs lie across a border? Which places of the same name
are near-duplicates?

::

    python examples/analytics.py                  # threads of this process, with progress bars
    python examples/analytics.py --distributed    # a LocalCluster of two worker processes
"""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
from dask.diagnostics import ProgressBar
from distributed import Client, LocalCluster

import dask_simjoin  # noqa: F401  (gives Dask DataFrames the accessor .simjoin)

DATA = Path(__file__).resolve().parent / "data" / "places.parquet"
HOW = {"on": ["latitude", "longitude"], "metric": "haversine"}
"""Degrees in, meters out."""


def questions(places: dd.DataFrame, eps: float, small: int) -> dict[str, Any]:
    """Return lazy answers to all questions. `places` has unique index labels and known
    divisions.
    """
    # the number of neighbors as a new column, aligned by index labels
    crowded = places.assign(neighbors=places.simjoin.neighbor_counts(eps, **HOW))
    by_country = crowded.groupby("country")["neighbors"].agg(["size", "mean", "max"])
    villages = crowded[crowded["population"] < small].nlargest(10, "neighbors")

    # pairs have the index labels of both places, and the columns in keep=
    pairs = places.simjoin.self_join(
        eps, keep=["name", "country"], return_distance=True, **HOW
    )
    across = pairs[pairs["country_left"] != pairs["country_right"]]
    left, right = across["country_left"], across["country_right"]
    border = left.where(left < right, right) + "-" + right.where(left < right, left)
    same = pairs[
        pairs["name_left"].str.casefold() == pairs["name_right"].str.casefold()
    ]
    return {
        "places": places.shape[0],
        "pairs": places.simjoin.count_pairs(eps, **HOW),
        "by_country": by_country,
        "villages": villages[["name", "country", "population", "neighbors"]],
        "borders": across.assign(border=border).groupby("border").size(split_out=1),
        "same_by_country": same.groupby("country_left").size(split_out=1),
        "same": same.nsmallest(10, "distance"),
    }


def most(numbers: pd.Series) -> pd.Series:
    """Return the ten largest numbers; equal ones stay in the order of their labels."""
    return numbers.sort_index().sort_values(ascending=False, kind="stable").head(10)


def report(found: dict[str, Any], eps: float, small: int) -> None:
    """Print the answers."""
    print(f"{found['places']:,} places, {found['pairs']:,} pairs within {eps:,g} m")
    tables = [
        (
            "The ten countries with the most places: neighbors per place, mean and "
            "maximum",
            found["by_country"]
            .nlargest(10, "size")
            .rename(columns={"size": "places"})
            .round(2),
        ),
        (
            "Near-duplicates by country: pairs with the same name, ignoring case",
            most(found["same_by_country"]).rename("pairs"),
        ),
        ("The ten closest near-duplicates", found["same"].reset_index(drop=True)),
        (
            "Ten borders with the most pairs across them",
            most(found["borders"]).rename("pairs"),
        ),
        (
            f"The ten places below {small:,} people with the most neighbors",
            found["villages"],
        ),
    ]
    for title, table in tables:
        print(f"\n{title}")
        frame = table.to_frame() if isinstance(table, pd.Series) else table
        print(frame.rename_axis(index=None).to_string())


def main() -> None:
    """Ask the questions, with threads or on a local cluster."""
    parser = argparse.ArgumentParser(
        description="Analytics on the pairs of a self-join of GeoNames."
    )
    parser.add_argument(
        "--data", type=Path, default=DATA, help="parquet file of places"
    )
    parser.add_argument(
        "--eps",
        type=float,
        default=5000,
        help="largest distance, in meters (default 5000)",
    )
    parser.add_argument(
        "--small",
        type=int,
        default=1000,
        help="places with fewer people are small (default 1000)",
    )
    parser.add_argument(
        "--distributed",
        action="store_true",
        help="run on a LocalCluster of two workers",
    )
    options = parser.parse_args()
    if not options.data.exists():
        parser.error(f"no such file: {options.data}")

    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if options.distributed:
            cluster = LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0"
            )
            stack.enter_context(cluster)
            stack.enter_context(Client(cluster))
        else:
            # no bar for computations of less than a second
            stack.enter_context(ProgressBar(minimum=1))
        # labels from the column geonameid; the file's statistics give the divisions
        places = dd.read_parquet(
            options.data,
            index="geonameid",
            split_row_groups=True,
            calculate_divisions=True,
        )
        asked = questions(places, options.eps, options.small)
        (found,) = dask.compute(asked)
    report(found, options.eps, options.small)
    print(f"\n{time.perf_counter() - start:.1f} seconds")


# %%
# Output
# ------

if __name__ == "__main__":
    main()

# sphinx_gallery_thumbnail_path = 'images/thumbnails/analytics.png'
