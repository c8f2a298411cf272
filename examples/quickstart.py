"""
Places that are listed twice
============================

Find places with the same name that lie close together.

The program reads places of North and Central America (GeoNames). It finds every pair
within ``--eps`` meters, writes the pairs to Parquet, and shows the pairs whose names
agree. A gazetteer that was merged from several sources has such rows: ``Villa Unión``
and ``Villa Union``, a kilometer apart.

::

    python examples/quickstart.py --eps 3000 --output out
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
from places_map import draw

import dask_simjoin  # noqa: F401  (gives Dask DataFrames the accessor .simjoin)

DATA = Path(__file__).resolve().parent / "data" / "places.parquet"
ON = ["latitude", "longitude"]


def plain(names: Any) -> Any:
    """Remove case, accents, spaces and punctuation from a Dask or pandas Series of
    names.
    """
    folded = names.str.normalize("NFKD").str.casefold()
    return folded.str.replace("[\u0300-\u036f\u2019 '.,-]+", "", regex=True)


def main() -> None:
    """Find near-duplicate places, write them, draw them and print the results."""
    parser = argparse.ArgumentParser(
        description="Near-duplicate places: a self-join of GeoNames."
    )
    parser.add_argument(
        "--eps",
        type=float,
        default=3000,
        help="largest distance, in meters (default 3000)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("out"),
        help="folder to write to (default out)",
    )
    options = parser.parse_args()
    out, eps, start = options.output, options.eps, time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)

    places = dd.read_parquet(DATA, split_row_groups=True)
    how = {"on": ON, "id": "geonameid", "metric": "haversine"}  # degrees in, meters out

    # lazy: nothing is computed before to_parquet
    pairs = places.simjoin.self_join(
        eps, keep=["name", "country", *ON], return_distance=True, **how
    )
    pairs.to_parquet(out / "pairs", write_index=False, overwrite=True)
    seconds = time.perf_counter() - start

    # the written pairs are a Dask DataFrame like any other
    pairs = dd.read_parquet(out / "pairs")
    near = pairs[plain(pairs["name_left"]) == plain(pairs["name_right"])]
    counts = places.simjoin.neighbor_counts(eps, **how)
    near, rows, counts, total = dask.compute(near, places[ON], counts, pairs.shape[0])
    near = near.sort_values("distance", ignore_index=True)
    near.to_csv(out / "near_duplicates.csv", index=False)
    title = f"{len(rows):,} places by neighbors within {eps:,g} m, and {len(near)} pairs with the same name"
    picture = draw(rows, counts, near, title, out / "places.png")

    across = int((near["country_left"] != near["country_right"]).sum())
    print(f"{len(rows):>10,}  places, in {places.npartitions} partitions")
    print(f"{total:>10,}  pairs within {eps:,g} m")
    print(f"{len(near):>10,}  of them have the same name ({across} across a border)")
    print(f"{int((counts == 0).sum()):>10,}  places without a neighbor")
    print(
        f"{seconds:>10.2f}  seconds to plan the join, run it, and write the pairs to "
        "Parquet"
    )
    print(
        f"{time.perf_counter() - start:>10.2f}  seconds in total\n\nThe closest pairs "
        "with the same name:"
    )
    for row in near.head(5).itertuples():
        left, right = (
            f"{row.name_left} ({row.country_left})",
            f"{row.name_right} ({row.country_right})",
        )
        print(f"  {row.distance:8.1f} m  {left:32} {right:32} {row.left} {row.right}")
    print(
        f"\nWritten: {out / 'pairs'} (parquet), "
        f"{out / 'near_duplicates.csv'}\nPicture: {picture}"
    )


# %%
# Output
# ------

if __name__ == "__main__":
    main()
