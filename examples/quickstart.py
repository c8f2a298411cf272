"""Near-duplicate places: which places with the same name lie close together?

Reads places of North and Central America (GeoNames), finds every pair within ``--eps`` of each
other, writes the pairs to parquet, and shows those whose names agree.  A gazetteer that was merged
from several sources has such rows: ``Villa Unión`` and ``Villa Union``, a kilometre apart.

The distance is Euclidean, in degrees of latitude and longitude: not metres.  A degree of longitude
is 111 km at the equator and half of that at 60 degrees north, and the date line is an edge.  The
report adds kilometres for the pairs that it shows; they do not decide which rows are pairs.

    python examples/quickstart.py --eps 0.05 --output out
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401  (gives Dask DataFrames the accessor .simjoin)

DATA = Path(__file__).resolve().parent / "data" / "places.parquet"
ON = ["latitude", "longitude"]
EARTH_RADIUS = 6371.0  # km, of the sphere


def plain(names: Any) -> Any:
    """Names without case, accents, spaces and punctuation; a Dask or a pandas Series."""
    folded = names.str.normalize("NFKD").str.casefold()
    return folded.str.replace("[\u0300-\u036f\u2019 '.,-]+", "", regex=True)


def with_names(pairs: dd.DataFrame, places: dd.DataFrame) -> dd.DataFrame:
    """The pairs, with the attributes of both places merged back.

    The attributes are small enough for one partition: then merging moves no pairs.
    """
    attributes = places[["geonameid", "name", "country", *ON]].repartition(npartitions=1)
    for side in ("left", "right"):
        own = attributes.rename(columns={c: f"{c}_{side}" for c in attributes.columns if c != "geonameid"})
        pairs = pairs.merge(own.rename(columns={"geonameid": side}), on=side)
    return pairs


def kilometres(pairs: pd.DataFrame) -> pd.Series:
    """Great-circle distances of the pairs (haversine), for the report only."""
    lat1, lon1, lat2, lon2 = (np.radians(pairs[f"{c}_{s}"]) for s in ("left", "right") for c in ON)
    h = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH_RADIUS * np.arcsin(np.sqrt(h))


def draw(places: pd.DataFrame, counts: pd.Series, near: pd.DataFrame, eps: float, path: Path) -> bool:
    """Draw the places by number of neighbours, and the near-duplicates; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm
    from matplotlib.patheffects import withStroke

    x, y, n = (values.to_numpy() for values in (places["longitude"], places["latitude"], counts))
    figure, axes = plt.subplots(figsize=(11, 8.5), layout="constrained")
    alone = n == 0
    axes.scatter(x[alone], y[alone], s=2, c="silver", linewidths=0, label="no neighbour")
    order = np.argsort(n, kind="stable")[int(alone.sum()) :]  # the crowded ones on top
    norm = LogNorm(1, max(2, n.max()))
    dots = axes.scatter(x[order], y[order], s=4, c=n[order], linewidths=0, cmap="viridis_r", norm=norm)
    near_x, near_y = near["longitude_left"].to_numpy(), near["latitude_left"].to_numpy()
    axes.scatter(near_x, near_y, s=90, c="none", edgecolors="crimson", linewidths=1.5, label="same name")
    for i, name in enumerate(near["name_left"]):
        right, up = near_x - near_x[i], near_y - near_y[i]
        if not ((right > 0) & (right < 13) & (abs(up) < 1.5)).any():  # there is room for the name
            text = axes.annotate(name, (near_x[i], near_y[i]), (8, 4), textcoords="offset points", fontsize=9)
            text.set_path_effects([withStroke(linewidth=3, foreground="white")])
    margin = np.array([-2.0, 2.0])
    axes.set(
        title=f"{len(x):,} places by neighbours within {eps:g} degrees, and {len(near)} pairs of one name",
        xlabel="longitude (degrees)",
        ylabel="latitude (degrees)",
        xlim=np.quantile(x, [0.011, 0.9995]) + margin,  # a few far islands are not in the picture
        ylim=np.quantile(y, [0.0005, 0.997]) + margin,
    )
    axes.set_aspect(1 / np.cos(np.radians(np.mean(axes.get_ylim()))))
    axes.grid(alpha=0.3, linewidth=0.5)
    axes.set_axisbelow(True)
    legend = axes.legend(loc="lower left", framealpha=1.0)
    legend.legend_handles[0].set_sizes([20])
    bar = figure.colorbar(dots, ax=axes, shrink=0.7, label="neighbours")
    bar.set_ticks([t for t in (1, 3, 10, 30, 100, 300, 1000, 3000) if t <= norm.vmax])
    bar.ax.yaxis.set_major_formatter("{x:g}")
    bar.ax.minorticks_off()
    figure.supxlabel("Data: GeoNames (geonames.org), CC BY 4.0", fontsize=9, color="dimgray")
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
    return True


def main() -> None:
    """Find near-duplicate places, write them, draw them and say what was found."""
    parser = argparse.ArgumentParser(description="Near-duplicate places: a self-join of GeoNames.")
    parser.add_argument("--data", type=Path, default=DATA, help="parquet file of places")
    parser.add_argument("--eps", type=float, default=0.05, help="largest distance, in degrees (default 0.05)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder to write to (default out)")
    options = parser.parse_args()
    if not options.data.exists():
        parser.error(f"no such file: {options.data}")
    options.output.mkdir(parents=True, exist_ok=True)
    eps, written = options.eps, options.output / "pairs"

    # each row group of the file is one partition of the frame
    places = dd.read_parquet(options.data, split_row_groups=True)

    # lazy: nothing is computed before to_parquet
    start = time.perf_counter()
    pairs = places.simjoin.self_join(eps, on=ON, id="geonameid", return_distance=True)
    pairs.to_parquet(written, write_index=False, overwrite=True)
    join_seconds = time.perf_counter() - start

    # the pairs are a Dask DataFrame of ids: merge the names back, keep those that agree
    pairs = dd.read_parquet(written)
    named = with_names(pairs, places)
    near = named[plain(named["name_left"]) == plain(named["name_right"])]
    counts = places.simjoin.neighbor_counts(eps, on=ON)
    near, rows, counts, total = dask.compute(near, places[ON], counts, pairs.shape[0])
    near = near.assign(km=kilometres(near)).sort_values("distance", ignore_index=True)
    near.to_csv(options.output / "near_duplicates.csv", index=False)

    picture = options.output / "places.png"
    drawn = draw(rows, counts, near, eps, picture)

    across = int((near["country_left"] != near["country_right"]).sum())
    print(f"{len(rows):>10,}  places, in {places.npartitions} partitions")
    print(f"{total:>10,}  pairs within {eps:g} degrees")
    print(f"{len(near):>10,}  of them of the same name ({across} across a border)")
    print(f"{int((counts == 0).sum()):>10,}  places without a neighbour")
    print(f"{join_seconds:>10.2f}  seconds for the join: planned, joined, written to parquet")
    print(f"{time.perf_counter() - start:>10.2f}  seconds in all")
    if len(near):
        print("\nThe closest of the same name (km is for the reader: eps is in degrees):")
    for row in near.head(5).itertuples():
        left, right = f"{row.name_left} ({row.country_left})", f"{row.name_right} ({row.country_right})"
        print(f"  {row.distance:.5f} deg  {row.km:5.2f} km  {left:32} {right:32} {row.left} {row.right}")
    print(f"\nWritten: {written} (parquet), {options.output / 'near_duplicates.csv'}")
    if drawn:
        print(f"Drawn:   {picture}")
    else:
        print("No picture: matplotlib is not installed (pip install matplotlib, or '.[examples]').")


if __name__ == "__main__":
    main()
