"""
Clusters on a map
=================

Draw clusters of places on a map, and keep one row per place that is listed several
times.

DBSCAN finds the crowded regions of North and Central America. Then duplicates are
removed in two ways. The first way groups close places, whatever their names, and keeps
one place per group. The second way also compares names and countries: it filters pairs,
connects them to groups, and keeps the first place of each group.

::

    python examples/clusters.py            # writes out/places-once.parquet, and a picture (with matplotlib)
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin

DATA = Path(__file__).resolve().parent / "data" / "places.parquet"
HOW = {"on": ["latitude", "longitude"], "metric": "haversine"}
"""Degrees in, meters out."""


def without_duplicates(
    places: dd.DataFrame, eps: float
) -> tuple[dd.DataFrame, pd.DataFrame]:
    """Return each place once, and the groups (`id`, `component`) of places that are
    listed several times.
    """
    pairs = places.simjoin.self_join(
        eps, id="geonameid", keep=["name", "country"], **HOW
    )
    one_name = pairs["name_left"] == pairs["name_right"]
    same = pairs[one_name & (pairs["country_left"] == pairs["country_right"])]
    groups = dask_simjoin.connected_components(same).compute()
    again = groups["id"][groups.duplicated("component")]
    return places[~places["geonameid"].isin(again.tolist())], groups


def draw(places: pd.DataFrame, path: Path) -> bool:
    """Draw the places by cluster. Return False if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patheffects import withStroke

    x, y, label = (
        places[name].to_numpy() for name in ("longitude", "latitude", "cluster")
    )
    shades = np.delete(np.arange(20), [14, 15])  # not the grays, which are for noise
    order = np.random.default_rng(0).permutation(label.max() + 1) % len(shades)
    colors = plt.get_cmap("tab20")(shades[order])
    figure, axes = plt.subplots(figsize=(11, 8.5), layout="constrained")
    noise = label < 0
    axes.scatter(x[noise], y[noise], s=1, c="silver", linewidths=0, label="noise")
    axes.scatter(x[~noise], y[~noise], s=4, c=colors[label[~noise]], linewidths=0)
    sizes = places.loc[~noise, "cluster"].value_counts().head(12)
    members = places[places["cluster"].isin(sizes.index)].sort_values(
        "population", ascending=False
    )
    # clusters are named after their largest towns
    towns = members.drop_duplicates("cluster")
    margin = np.array([-2.0, 2.0])
    axes.set(
        title=f"{label.max() + 1:,} clusters of places, and the main towns and sizes of the largest ones",
        xlabel="longitude (degrees)",
        ylabel="latitude (degrees)",
        # a few far islands are not in the picture
        xlim=np.quantile(x, [0.011, 0.9995]) + margin,
        ylim=np.quantile(y, [0.0005, 0.997]) + margin,
    )
    axes.set_aspect(1 / np.cos(np.radians(np.mean(axes.get_ylim()))))
    figure.canvas.draw()
    taken: list[Any] = []
    for town in towns.itertuples():
        for side, right, up in (
            ("left", 5, 5),
            ("right", -5, 5),
            ("left", 5, -12),
            ("right", -5, -12),
        ):
            text = axes.annotate(
                f"{town.name}, {sizes[town.cluster]:,}",
                (town.longitude, town.latitude),
                (right, up),
                textcoords="offset points",
                fontsize=8,
                ha=side,
            )
            text.set_path_effects([withStroke(linewidth=3, foreground="white")])
            room = text.get_window_extent()
            if not any(room.overlaps(other) for other in taken):
                taken.append(room)
                break
            text.remove()  # another name covers it there
    axes.legend(loc="lower left", markerscale=5)
    figure.supxlabel(
        "Data: GeoNames (geonames.org), CC BY 4.0", fontsize=9, color="dimgray"
    )
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
    return True


def main() -> None:
    """Cluster, de-duplicate, write, draw, and print the results."""
    parser = argparse.ArgumentParser(
        description="Clusters of places, and places that are listed twice."
    )
    parser.add_argument(
        "--eps",
        type=float,
        default=10_000,
        help="eps of the clusters, in meters (default 10000)",
    )
    parser.add_argument("--min-samples", type=int, default=10)
    parser.add_argument(
        "--near",
        type=float,
        default=5000,
        help="largest distance of duplicates with the same name, in meters (default 5000)",
    )
    parser.add_argument(
        "--apart",
        type=float,
        default=100,
        help="largest distance of other duplicates, in meters (default 100)",
    )
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    places = dd.read_parquet(DATA, split_row_groups=True)
    places["cluster"] = places.simjoin.dbscan(options.eps, options.min_samples, **HOW)
    table = places.compute()
    sizes = table.loc[table["cluster"] >= 0, "cluster"].value_counts()
    noise = int((table["cluster"] < 0).sum())
    print(f"{len(table):,} places: {len(sizes):,} clusters, {noise:,} places of noise")
    for cluster, size in sizes.head(5).items():
        inside = table[table["cluster"] == cluster]
        town = inside.nlargest(1, "population").iloc[0]
        print(f"  {size:6,} places around {town['name']} ({town['country']})")

    # with min_samples=1 clusters are the groups that pairs connect, and every row is in
    # one
    apart = table.assign(
        group=table.simjoin.dbscan(options.apart, 1, **HOW)
    ).drop_duplicates("group")
    print(
        f"{len(apart):,} places remain, with one of each group within "
        f"{options.apart:,g} m"
    )

    once, groups = without_duplicates(places, options.near)
    once.to_parquet(options.out / "places-once.parquet", write_index=False)
    number = groups["component"].nunique()
    print(
        f"{len(groups):,} places share names in {number:,} groups; {len(once):,} "
        "places remain"
    )
    picture = options.out / "clusters.png"
    print(
        f"Picture: {picture}"
        if draw(table, picture)
        else "No picture: matplotlib is not installed"
    )


# %%
# Output
# ------

if __name__ == "__main__":
    main()
