"""Draw small pictures for the gallery, of the data of its programs: `python
docs/_ext/thumbnails.py`.
"""

from pathlib import Path

import dask.dataframe as dd
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor .simjoin)

DOCS = Path(__file__).parents[1]
HOW = {"on": ["latitude", "longitude"], "metric": "haversine"}
DARK, BRIGHT, GRAY = "#2c7fb8", "#e8743b", "#b8b8b8"


def match_places(axes, places):
    """Places of a region, and lines to the nearest town of each."""
    here = places[places["longitude"].between(-99, -93) & places["latitude"].between(29, 34)]
    towns = here[here["population"] >= 50_000]
    near = here.simjoin.knn_join(towns, 1, id="geonameid", keep=HOW["on"], **HOW)
    x = near[["longitude_left", "longitude_right"]].to_numpy().T
    y = near[["latitude_left", "latitude_right"]].to_numpy().T
    axes.plot(x, y, color=GRAY, linewidth=0.5)
    axes.scatter(x[0], y[0], s=5, color=DARK)
    axes.scatter(towns["longitude"], towns["latitude"], s=30, color=BRIGHT, zorder=3)


def near_duplicates(axes, places):
    """Distances to the most alike other vector: copies, and all others."""
    random = np.random.default_rng(0)
    x = random.normal(size=(3_000, 64))
    x[-600:] = x[:600] + random.uniform(0.05, 0.8, (600, 1)) * random.normal(size=(600, 64))
    frame = pd.DataFrame({"embedding": list(x)})
    distances = frame.simjoin.k_distances(1, on="embedding", metric="cosine")
    axes.hist(distances, bins=60, color=DARK)
    axes.axvspan(0, 0.25, color=BRIGHT, alpha=0.3)
    axes.text(0.02, 0.92, "copies", transform=axes.transAxes, fontsize=16, va="top")
    _labeled(axes, "cosine distance", "rows")


def near_duplicate_texts(axes, places):
    """How similar names are that have most pairs of letters in common."""
    pairs = places.simjoin.set_self_join(
        "name", 0.6, tokenizer=("qgrams", 2), id="geonameid", return_similarity=True
    )
    axes.hist(pairs["similarity"], bins=30, color=DARK, log=True)
    axes.axvspan(0.9, 1, color=BRIGHT, alpha=0.3)
    _labeled(axes, "Jaccard similarity", "pairs")


def analytics(axes, places):
    """Countries by the mean number of neighbors of a place."""
    places = places.assign(neighbors=places.simjoin.neighbor_counts(5_000, **HOW))
    means = places.groupby("country")["neighbors"].agg(["mean", "size"])
    means = means[means["size"] > 300]["mean"].nlargest(10)
    axes.barh(means.index[::-1], means[::-1], color=[DARK] * 7 + [BRIGHT] * 3)
    _labeled(axes, "neighbors per place", "country")
    axes.set_yticks(means.index, means.index, fontsize=12)


def nightly(axes, places):
    """Places that are known, new ones, and the pairs that come with them."""
    here = places[places["longitude"].between(-97, -95.5) & places["latitude"].between(32, 33.2)]
    new = np.random.default_rng(3).uniform(size=len(here)) < 0.15
    pairs = here.simjoin.self_join(12_000, id="geonameid", keep=[*HOW["on"], "population"], **HOW)
    fresh = set(here["geonameid"][new])
    came = pairs["left"].isin(fresh) | pairs["right"].isin(fresh)
    for some, color in ((pairs[~came], GRAY), (pairs[came], BRIGHT)):
        x = some[["longitude_left", "longitude_right"]].to_numpy().T
        axes.plot(x, some[["latitude_left", "latitude_right"]].to_numpy().T, color=color, linewidth=0.8)
    axes.scatter(here["longitude"][~new], here["latitude"][~new], s=8, color=DARK, zorder=3)
    axes.scatter(here["longitude"][new], here["latitude"][new], s=16, color=BRIGHT, zorder=3)


def _points(rows):
    random = np.random.default_rng(7)
    centers = random.uniform(0, 1, (40, 2))
    x = centers[random.integers(40, size=rows)] + random.normal(0, 0.02, (rows, 2))
    x[: rows // 3] = random.uniform(0, 1, (rows // 3, 2))
    return x


def _regions(x, depth):
    """Halves of halves, along the wider side: which one each point is in."""
    numbers = np.zeros(len(x), int)
    for _ in range(depth):
        for number in np.unique(numbers):
            inside = np.flatnonzero(numbers == number)
            side = np.argmax(np.ptp(x[inside], axis=0))
            upper = x[inside, side] > np.median(x[inside, side])
            numbers[inside] = 2 * number + upper
    return numbers


def larger_than_memory(axes, places):
    """Points in regions of as many points each."""
    x = _points(6_000)
    axes.scatter(*x.T, s=3, c=_regions(x, 5) * 7 % 20, cmap="tab20", linewidths=0)


def clusters_larger_than_memory(axes, places):
    """Reachability: clusters are valleys."""
    order = pd.DataFrame(_points(3_000), columns=["x", "y"]).simjoin.optics(0.1, min_samples=10)
    reach = order.sort_values("ordering")["reachability"].replace(np.inf, np.nan)
    axes.fill_between(np.arange(len(reach)), reach, color=DARK, linewidth=0)
    axes.axhline(0.02, color=BRIGHT)
    _labeled(axes, "points in OPTICS order", "reachability")


def _labeled(axes, x, y):
    """Show the names of both axes, but no ticks."""
    axes.set_axis_on()
    axes.set(xticks=[], yticks=[])
    axes.set_xlabel(x, fontsize=16)
    axes.set_ylabel(y, fontsize=16)


def reading_a_plan(axes, places):
    """Draw the block pairs of a plan: regions meet only themselves."""
    rows = dd.from_pandas(places, npartitions=4)
    how = {"id": "geonameid", "blocksize": "150 kB", "partitioning": "spatial", **HOW}
    rows.simjoin.plan(2_000, **how).plot(axes)
    axes.figure.axes[1].remove()
    axes.set_title("block pairs", fontsize=17)
    _labeled(axes, "chunk", "chunk")


def local_cuda_cluster(axes, places):
    """Draw which of four GPUs has the pairs of two chunks."""
    gpus = np.add.outer(np.arange(8), np.arange(8)) % 4
    colors = matplotlib.colors.ListedColormap([DARK, BRIGHT, GRAY, "#41ab5d"])
    axes.imshow(np.where(np.tri(8), gpus, np.nan), cmap=colors)
    for number, color in enumerate(colors.colors):
        axes.text(4.3, 0.3 + 0.95 * number, f"GPU {number}", color=color, fontsize=17, weight="bold")
    _labeled(axes, "chunk", "chunk")


if __name__ == "__main__":
    table = pd.read_parquet(DOCS.parent / "examples" / "data" / "places.parquet")
    folder = DOCS / "images" / "thumbnails"
    folder.mkdir(exist_ok=True)
    for draw in (
        match_places, near_duplicates, near_duplicate_texts, analytics, nightly, larger_than_memory,
        clusters_larger_than_memory, local_cuda_cluster, reading_a_plan,
    ):
        figure, drawn = plt.subplots(figsize=(4, 2.8), layout="constrained")
        drawn.set_axis_off()
        draw(drawn, table)
        figure.savefig(folder / f"{draw.__name__}.png", dpi=70)
        plt.close(figure)
