"""
A table that grows every night
==============================

Places come, move and go every night. Which pairs are new, and which have gone?

The places of North and Central America (GeoNames) are loaded once into an index on
disk. Every night, a file of new, moved and closed places updates it, and only the
changed pairs are found. A consumer sometimes reads these changes, and keeps its table
of pairs up to date. One night the program is killed in the middle. At the end of the
week, the index is compacted, and old versions are removed.

::

    python examples/nightly.py
    python examples/nightly.py --near 2000 --nights 14
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import dask_simjoin
from dask_simjoin.disk_index.index import Index, IndexChanges

DATA = Path(__file__).resolve().parent / "data" / "places.parquet"
HOW = {"on": ["latitude", "longitude"], "id": "geonameid", "metric": "haversine"}
BAD_NIGHT = 3


def files_of(
    places: pd.DataFrame, nights: int
) -> tuple[pd.DataFrame, list[tuple[pd.DataFrame, list[int]]]]:
    """Divide places into a first load and nightly files: places that are new or move,
    and ids to delete.
    """
    random = np.random.default_rng(0)
    lot = random.permutation(len(places))
    each = 200
    first, rest = lot[each * nights :], lot[: each * nights]
    known, files = first, []
    for night in range(nights):
        new = places.iloc[rest[night * each :][:each]]
        touched = random.choice(known, 60, replace=False)
        moved = places.iloc[touched[:40]].copy()
        moved["latitude"] += random.normal(0, 0.02, len(moved))
        files.append(
            (pd.concat([new, moved]), places["geonameid"].iloc[touched[40:]].tolist())
        )
        known = np.setdiff1d(known, touched[40:])
    return places.iloc[first], files


class Consumer:
    """A consumer that keeps a table of pairs, and the index version that the table
    corresponds to.
    """

    def __init__(self, index: Index) -> None:
        self.version = index.version
        self.pairs = index.pairs().compute().set_index(["left", "right"])

    def catch_up(self, index: Index) -> None:
        """Apply all changes since the version of the table, even of many updates."""
        version = index.version
        changes = (
            index.changes(self.version, until=version)
            .compute()
            .set_index(["left", "right"])
        )
        gone = changes.index[changes["diff"] == -1]
        came = changes.index[changes["diff"] == 1]
        self.pairs = pd.concat([self.pairs.drop(gone), pd.DataFrame(index=came)])
        self.version = version


def killed(folder: Path, night: int, nights: int) -> None:
    """Start a process that adds the file of a night, and kill it once it has written
    something.
    """
    before = set((folder / "rows").iterdir())
    command = [
        sys.executable,
        __file__,
        "--folder",
        folder,
        "--nights",
        nights,
        "--only",
        night,
    ]
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL)
    while process.poll() is None and set((folder / "rows").iterdir()) == before:
        time.sleep(0.001)
    process.kill()
    process.wait()


def main() -> None:
    """Load the places, add a file per night, and keep a consumer up to date."""
    parser = argparse.ArgumentParser(
        description="Nightly files of places, and the pairs that change."
    )
    parser.add_argument(
        "--near",
        type=float,
        default=5000.0,
        help="largest distance, in meters (default 5000)",
    )
    parser.add_argument("--nights", type=int, default=7)
    parser.add_argument(
        "--folder", type=Path, help="folder of the index (default: a temporary one)"
    )
    parser.add_argument("--only", type=int, help="add only the file of this night")
    options = parser.parse_args()
    first, files = files_of(pd.read_parquet(DATA), options.nights)
    folder = options.folder or Path(tempfile.mkdtemp()) / "places"

    def take_in(index: Index, night: int) -> IndexChanges:
        rows, gone = files[night]
        # the name of the batch makes it safe to repeat the update after a crash
        return index.update(
            rows, delete=gone, if_exists="replace", batch=f"night {night}"
        )

    if options.only is not None:
        take_in(dask_simjoin.open_index(folder), options.only)
        return

    # the first load writes the index at once, as to_parquet does
    index = first.simjoin.index(options.near, folder, **HOW)
    consumer = Consumer(index)
    print(
        f"{len(index):,} places, {len(consumer.pairs):,} pairs within "
        f"{options.near:,.0f} m"
    )

    for night in range(options.nights):
        if night == BAD_NIGHT:
            killed(folder, night, options.nights)
            # the version before or after the update
            index = dask_simjoin.open_index(folder)
        changes = take_in(index, night)
        again = " (done before the crash)" if changes.report.known else ""
        print(
            f"night {night}: {len(changes.added):5,} pairs came, "
            f"{len(changes.removed):4,} went{again}"
        )
        if night % 3 == 2:
            consumer.catch_up(index)

    # once a week
    index.optimize("all")
    # back to the version that the consumer has
    index.vacuum(keep=index.version - consumer.version + 1)
    consumer.catch_up(index)

    anew = index.rows().compute().simjoin.self_join(options.near, **HOW)
    same = {frozenset(pair) for pair in consumer.pairs.index} == {
        frozenset(pair) for pair in zip(anew["left"], anew["right"], strict=True)
    }
    print(
        f"{len(index):,} places, {len(consumer.pairs):,} pairs; a full join finds the "
        f"same pairs: {same}"
    )
    groups = index.components().compute()
    largest = groups["component"].value_counts().head(1)
    print(
        f"{groups['component'].nunique():,} groups, the largest of {largest.iloc[0]:,} "
        "places"
    )
    print(index.history().tail(4).to_string())


# %%
# Output
# ------

if __name__ == "__main__":
    main()

# sphinx_gallery_thumbnail_path = 'images/thumbnails/nightly.png'
