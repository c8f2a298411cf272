"""Draw the pictures that pages show and that are kept in docs/images: `python docs/_ext/pictures.py`."""

from pathlib import Path

import dask.dataframe as dd
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor .simjoin)
from dask_simjoin.cluster.plots import plot_k_distances

DOCS = Path(__file__).parents[1]
HOW = {"on": ["latitude", "longitude"], "metric": "haversine"}


def k_distances(places):
    """Distances to the seventh other place, sorted."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    plot_k_distances(places.simjoin.k_distances(7, **HOW), ax=axes)
    axes.set(ylim=(0, 60_000), ylabel="metres to the 7th other place")
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


if __name__ == "__main__":
    table = dd.read_parquet(DOCS.parent / "examples" / "data" / "places.parquet", split_row_groups=True)
    k_distances(table)
    plans(table)
