"""
Clusters without a distance
===========================

HDBSCAN finds crowded regions without a distance: suburbs a few kilometers apart, and
valleys of the Andes.

The program clusters places lazily, with distances in meters. Then it chooses other
clusters from the same spanning tree, which takes almost no time. Finally, it cuts a
tree at one distance, which gives groups of "friends of friends".

::

    python examples/hdbscan_places.py            # writes two pictures to out/ (with matplotlib)
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
"""Degrees in, meters out."""


def largest(places: pd.DataFrame) -> None:
    """Print the largest clusters, and how near their places are."""
    for cluster, size in (
        places.loc[places["label"] >= 0, "label"].value_counts().head(5).items()
    ):
        inside = places[places["label"] == cluster]
        town = inside.nlargest(1, "population").iloc[0]
        nearest = inside["nearest"].median()
        print(
            f"  {size:6,} places around {town['name']} ({town['country']}), "
            f"{nearest:,.0f} m apart"
        )


def names(places: pd.DataFrame) -> pd.Series:
    """Return the largest town of each cluster, by label."""
    members = places[places["label"] >= 0].sort_values("population", ascending=False)
    return members.drop_duplicates("label").set_index("label")["name"]


def draw_tree(condensed: pd.DataFrame, places: pd.DataFrame, path: Path) -> None:
    """Draw how clusters split, and label the largest of the chosen clusters with their
    towns.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Ellipse
    from matplotlib.patheffects import withStroke

    figure, axes = plt.subplots(figsize=(11, 7), layout="constrained")
    plot_condensed_tree(condensed, axes)
    # a cluster has a larger node than its parent, and ellipses are in the order of
    # their nodes
    rows = condensed[condensed["child"] < len(places)].set_index("child")
    nodes = (
        rows["parent"]
        .groupby(places["label"].to_numpy()[rows.index])
        .min()
        .drop(-1, errors="ignore")
    )
    ellipses = [patch for patch in axes.patches if isinstance(patch, Ellipse)]
    town, size = names(places), places["label"].value_counts()
    for label, ellipse in zip(nodes.sort_values().index, ellipses, strict=True):
        x, y = ellipse.get_center()
        if size[label] >= size.drop(-1).nlargest(8).min():
            below = (0, -16 - 14 * (label % 3))
            text = axes.annotate(
                f"{town[label]}, {size[label]:,}",
                (x, y + ellipse.get_height() / 2),
                below,
                textcoords="offset points",
                ha="center",
                fontsize=9,
                arrowprops={"arrowstyle": "-", "color": "gray", "linewidth": 0.7},
            )
            text.set_path_effects([withStroke(linewidth=3, foreground="white")])
    axes.set(ylabel="1 / distance (1/m)")
    axes.set_title(
        "Clusters from sparse to dense, chosen ones in red, with the main towns and "
        "sizes of the largest"
    )
    figure.savefig(path, dpi=100)
    plt.close(figure)


def draw_map(places: pd.DataFrame, path: Path) -> None:
    """Draw the places on a map, colored by cluster, and label the largest clusters."""
    import matplotlib.pyplot as plt
    from matplotlib.patheffects import withStroke

    figure, axes = plt.subplots(figsize=(11, 8), layout="constrained")
    noise = places[places["label"] < 0]
    inside = places[places["label"] >= 0]
    axes.scatter(
        noise["longitude"], noise["latitude"], s=1, color="lightgray", linewidths=0
    )
    colors = inside["label"] * 5 % 14  # the first 14 of tab20 have no gray
    axes.scatter(
        inside["longitude"],
        inside["latitude"],
        s=3,
        c=colors,
        cmap="tab20",
        vmax=19,
        linewidths=0,
    )
    town = names(places)
    for label, size in inside["label"].value_counts().head(10).items():
        middle = inside.loc[
            inside["label"] == label, ["longitude", "latitude"]
        ].median()
        text = axes.annotate(
            f"{town[label]}, {size:,}", tuple(middle), fontsize=9, ha="center"
        )
        text.set_path_effects([withStroke(linewidth=3, foreground="white")])
    axes.set(
        xlabel="longitude (degrees)",
        ylabel="latitude (degrees)",
        xlim=(-128, -57),
        ylim=(5, 53),
    )
    axes.set_title(
        "Clusters on a map, noise in gray, with the main towns and sizes of the largest"
    )
    figure.savefig(path, dpi=100)
    plt.close(figure)


def draw(condensed: pd.DataFrame, places: pd.DataFrame, folder: Path) -> str:
    """Draw both pictures, and return a line about them."""
    try:
        import matplotlib
    except ImportError:
        return "No pictures: matplotlib is not installed"
    matplotlib.use("Agg")
    draw_tree(condensed, places, folder / "condensed-tree.png")
    draw_map(places, folder / "map.png")
    return f"Pictures: {folder / 'condensed-tree.png'} and {folder / 'map.png'}"


def main() -> None:
    """Cluster, try other choices, cut, draw, and print the results."""
    parser = argparse.ArgumentParser(description="Clusters of places by HDBSCAN.")
    parser.add_argument("--min-cluster-size", type=int, default=200)
    parser.add_argument("--min-samples", type=int, default=10)
    parser.add_argument(
        "--friends",
        type=float,
        default=30_000,
        help="largest distance of friends, in meters (default 30000)",
    )
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    places = dd.read_parquet(DATA, split_row_groups=True)
    found = places.simjoin.hdbscan(
        options.min_cluster_size, min_samples=options.min_samples, **HOW
    )
    nearest = places.simjoin.k_distances(1, **HOW)
    table = places.assign(
        label=found["label"], outlier=found["outlier_score"], nearest=nearest
    ).compute()
    noise = int((table["label"] < 0).sum())
    print(
        f"{len(table):,} places: {table['label'].max() + 1:,} clusters, {noise:,} "
        "places of noise"
    )
    largest(table)
    alone = table.nlargest(1, "outlier").iloc[0]
    print(f"The largest outlier: {alone['name']} ({alone['country']})")

    tree = places.simjoin.spanning_tree(
        min_samples=options.min_samples, **HOW
    ).compute()
    condensed = condensed_tree(tree, options.min_cluster_size)
    for method in ("eom", "leaf"):
        chosen = choose_clusters(condensed, cluster_selection_method=method)
        print(f"{chosen['label'].max() + 1:4,} clusters are chosen by {method!r}")

    single = places.simjoin.spanning_tree(**HOW).compute()
    friends = dask_simjoin.connected_components(
        single[single["distance"] <= options.friends]
    )
    groups = friends["component"].value_counts()
    print(
        f"{len(groups):,} groups of friends within {options.friends:,g} m, "
        f"{groups.max():,} in one"
    )
    print(draw(condensed, table, options.out))


# %%
# Output
# ------

if __name__ == "__main__":
    main()
