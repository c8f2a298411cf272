"""Draw the pictures that pages show and that are kept in docs/images: `python
docs/_ext/pictures.py`.
"""

from pathlib import Path

import dask.dataframe as dd
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from PIL import Image
from thumbnails import BRIGHT, DARK, GRAY, match_places, nightly

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor .simjoin)
from dask_simjoin.cluster.plots import plot_k_distances

DOCS = Path(__file__).parents[1]
HOW = {"on": ["latitude", "longitude"], "metric": "haversine"}


def k_distances(places):
    """Distances to the seventh other place, sorted."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    plot_k_distances(places.simjoin.k_distances(7, **HOW), ax=axes)
    axes.set(ylim=(0, 60_000), ylabel="meters to the 7th other place")
    axes.axhline(10_000, linestyle="--", color="tab:orange")
    figure.savefig(DOCS / "images" / "k-distances.png", dpi=110)


def plans(places):
    """The block pairs of two plans of one join."""
    figure, both = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    for axes, partitioning in zip(both, ("spatial", "entity"), strict=True):
        how = {"blocksize": "100 kB", "partitioning": partitioning, "id": "geonameid", **HOW}
        places.simjoin.plan(2_000, **how).plot(axes)
        axes.set_title(f'partitioning="{partitioning}"')
    figure.savefig(DOCS / "images" / "plan.png", dpi=110)


def near_duplicates(axes, places):
    """Places of a region, and circles around those that are nearly at one spot."""
    here = places[places["longitude"].between(-99.6, -98.6) & places["latitude"].between(19.0, 19.9)]
    pairs = here.simjoin.self_join(700, id="geonameid", keep=HOW["on"], **HOW)
    axes.scatter(here["longitude"], here["latitude"], s=7, color=GRAY, linewidths=0)
    for side in ("left", "right"):
        axes.scatter(pairs[f"longitude_{side}"], pairs[f"latitude_{side}"], s=14, color=DARK, linewidths=0)
    middle = [(pairs[f"{name}_left"] + pairs[f"{name}_right"]) / 2 for name in ("longitude", "latitude")]
    axes.plot(*middle, "o", ms=13, mfc="none", mec=BRIGHT, mew=1.6)


def clusters(axes, places):
    """Places by the cluster of DBSCAN."""
    here = places[places["longitude"].between(-100, -66) & places["latitude"].between(25, 48)]
    labels = here.simjoin.dbscan(12_000, min_samples=10, **HOW).to_numpy()
    colors = matplotlib.colormaps["tab20"](labels % 14)
    noise = labels < 0
    x, y = here["longitude"].to_numpy(), here["latitude"].to_numpy()
    axes.scatter(x[noise], y[noise], s=1, color="#d0d0d0", linewidths=0)
    axes.scatter(x[~noise], y[~noise], s=5, color=colors[~noise], linewidths=0)


def cluster_map(places):
    """Draw the map of the guide to clusters."""
    table = places.assign(cluster=places.simjoin.dbscan(10_000, min_samples=8, **HOW)).compute()
    noise = table["cluster"] < 0
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    axes.scatter(table["longitude"][noise], table["latitude"][noise], s=1, color="lightgray", linewidths=0)
    cluster = table["cluster"][~noise]
    colors = cluster.value_counts().index.get_indexer(cluster) % 14
    near = table["longitude"][~noise], table["latitude"][~noise]
    axes.scatter(*near, s=2, c=colors, cmap="tab20", vmax=19, linewidths=0)
    middle = np.radians(table["latitude"].mean())
    axes.set(xlabel="longitude", ylabel="latitude", aspect=1 / np.cos(middle))
    path = DOCS / "images" / "cluster-map.png"
    figure.savefig(path, dpi=90)
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


def cards():
    """The pictures of the start page's cards."""
    places = pd.read_parquet(DOCS.parent / "examples" / "data" / "places.parquet")
    folder = DOCS / "images" / "cards"
    folder.mkdir(exist_ok=True)
    for draw in (near_duplicates, match_places, clusters, nightly):
        figure, axes = plt.subplots(figsize=(4.2, 2.4), layout="constrained")
        axes.set_axis_off()
        draw(axes, places)
        path = folder / f"{draw.__name__}.png"
        figure.savefig(path, dpi=110)
        plt.close(figure)
        Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    table = dd.read_parquet(DOCS.parent / "examples" / "data" / "places.parquet", split_row_groups=True)
    k_distances(table)
    plans(table)
    cluster_map(table)
    cards()
