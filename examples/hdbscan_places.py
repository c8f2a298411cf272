"""
Clusters at distances of their own
==================================

Where places crowd, from suburbs a few kilometres apart to valleys of the Andes: HDBSCAN needs no distance.

Clusters of places are found lazily, in metres. Then other choices of clusters are tried on the same spanning
tree, which takes no time, and the tree is cut at one distance: friends of friends.

::

    python examples/hdbscan_places.py            # writes out/condensed-tree.png if it can
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd

import dask_simjoin
from dask_simjoin.cluster import choose_clusters, condensed_tree
from dask_simjoin.cluster.plots import plot_condensed_tree

DATA = Path(__file__).resolve().parent / "data" / "places.parquet"
HOW: dict[str, Any] = {"on": ["latitude", "longitude"], "metric": "haversine"}
"""Degrees in, metres out."""


def largest(places: pd.DataFrame) -> None:
    """Say which clusters are the largest, and how near their places are."""
    for cluster, size in places.loc[places["label"] >= 0, "label"].value_counts().head(5).items():
        inside = places[places["label"] == cluster]
        town = inside.nlargest(1, "population").iloc[0]
        nearest = inside["nearest"].median()
        print(f"  {size:6,} places around {town['name']} ({town['country']}), {nearest:,.0f} m apart")


def draw(condensed: pd.DataFrame, path: Path) -> bool:
    """Draw the clusters as they split; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(11, 7), layout="constrained")
    plot_condensed_tree(condensed, axes)
    axes.set(ylabel="1 / distance (1/m)", title="Clusters, from the sparsest to the densest")
    figure.savefig(path, dpi=100)
    plt.close(figure)
    return True


def main() -> None:
    """Cluster, try other choices, cut, draw, and say what was found."""
    parser = argparse.ArgumentParser(description="Clusters of places at distances of their own.")
    parser.add_argument("--min-cluster-size", type=int, default=200)
    parser.add_argument("--min-samples", type=int, default=10)
    parser.add_argument("--friends", type=float, default=30_000, help="linking length in metres (30000)")
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    places = dd.read_parquet(DATA, split_row_groups=True)
    found = places.simjoin.hdbscan(options.min_cluster_size, min_samples=options.min_samples, **HOW)
    nearest = places.simjoin.k_distances(1, **HOW)
    table = places.assign(label=found["label"], outlier=found["outlier_score"], nearest=nearest).compute()
    noise = int((table["label"] < 0).sum())
    print(f"{len(table):,} places: {table['label'].max() + 1:,} clusters, {noise:,} places of noise")
    largest(table)
    alone = table.nlargest(1, "outlier").iloc[0]
    print(f"The furthest from any crowd: {alone['name']} ({alone['country']})")

    tree = places.simjoin.spanning_tree(min_samples=options.min_samples, **HOW).compute()
    condensed = condensed_tree(tree, options.min_cluster_size)
    for method in ("eom", "leaf"):
        chosen = choose_clusters(condensed, cluster_selection_method=method)
        print(f"{chosen['label'].max() + 1:4,} clusters are chosen by {method!r}")

    single = places.simjoin.spanning_tree(**HOW).compute()
    friends = dask_simjoin.connected_components(single[single["distance"] <= options.friends])
    groups = friends["component"].value_counts()
    print(f"{len(groups):,} groups of friends within {options.friends:,g} m, {groups.max():,} in one")
    picture = options.out / "condensed-tree.png"
    print(f"Picture: {picture}" if draw(condensed, picture) else "No picture: matplotlib is not installed")


# %%
# What it prints
# --------------

if __name__ == "__main__":
    main()
