"""An independent DBSCAN of points in the unit square, from the pairs that
`benchmarks.oracles.strips` finds.

This clustering shares nothing with the package.  Pairs come from SciPy's kd-tree and
are decided by the definition.  SciPy's `connected_components` connects the core rows of
each strip, and then the strips.  Pairs wait on disk, because a row's number of
neighbors is known only after the last strip.  A few numbers for each row are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from benchmarks.oracles.strips import Joined, pairs_by_strip

NONE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Clustered:
    """Return the labels (int64) of all rows by their positions, and how many rows are
    core rows.
    """

    labels: np.ndarray
    cores: int


def independent_labels(
    files: Iterable[Path], eps: float, min_samples: int, rows: int, folder: Path
) -> Clustered:
    """Cluster the points in `files` (id, x, y), which are `rows` in all."""
    neighbors = np.zeros(rows, np.int32)
    strips = 0
    for points, i, j in pairs_by_strip(files, eps, rows, folder):
        position = points["position"]
        for side in (i, j):
            neighbors[position] += np.bincount(side, minlength=len(position)).astype(
                np.int32
            )
        np.savez(
            folder / f"{strips:06}.npz",
            position=position,
            i=i.astype(np.int32),
            j=j.astype(np.int32),
        )
        strips += 1
    core = neighbors + 1 >= min_samples
    del neighbors
    labels = _core_labels(core, lambda: _saved(folder, strips))
    low = np.full(rows, NONE)
    for position, i, j in _saved(folder, strips):
        for own, other in ((i, j), (j, i)):
            border = ~core[position[own]] & core[position[other]]
            np.minimum.at(low, position[own[border]], labels[position[other[border]]])
    reached = low < NONE
    labels[reached] = low[reached]
    return Clustered(labels, int(core.sum()))


def _saved(folder: Path, strips: int) -> Iterator[Joined]:
    for s in range(strips):
        with np.load(folder / f"{s:06}.npz") as file:
            yield file["position"], file["i"], file["j"]


def _core_labels(
    core: np.ndarray, strips: Callable[[], Iterator[Joined]]
) -> np.ndarray:
    """Return the labels of core rows, numbered by their first rows; -1 for other rows."""
    # the group of each core row in the first strip that has it
    group = np.full(len(core), -1)
    edges = [np.zeros((2, 0), np.int64)]
    groups = 0
    for position, i, j in strips():
        own = core[position]
        place = np.cumsum(own) - 1
        both = own[i] & own[j]
        found, within = _connected(int(own.sum()), place[i[both]], place[j[both]])
        position, within = position[own], within + groups
        known = group[position] >= 0
        edges.append(
            np.unique(np.stack([group[position[known]], within[known]]), axis=1)
        )
        group[position[~known]] = within[~known]
        groups += found
    _, cluster = _connected(groups, *np.concatenate(edges, axis=1))
    of_cores = cluster[group[core]]
    _, first, which = np.unique(of_cores, return_index=True, return_inverse=True)
    labels = np.full(len(core), -1)
    labels[core] = np.argsort(np.argsort(first))[which]
    return labels


def _connected(
    nodes: int, left: np.ndarray, right: np.ndarray
) -> tuple[int, np.ndarray]:
    graph = coo_array(
        (np.ones(len(left), np.int8), (left, right)), shape=(nodes, nodes)
    )
    return connected_components(graph.tocsr(), directed=False)


def compare(files: Iterable[Path], expected: np.ndarray) -> dict[str, int]:
    """Compare a written result (id, label), whose ids are positions, with the expected
    labels.

    Returns
    -------
    dict
        clusters and noise of the result; rows that differ, that are missing and that
        came again.
    """
    seen = np.zeros(len(expected), np.uint8)
    differ = noise = 0
    largest = -1
    for file in files:
        with pq.ParquetFile(file) as reader:
            for batch in reader.iter_batches(
                columns=["id", "label"], batch_size=1 << 20
            ):
                id, label = (batch.column(name).to_numpy() for name in ("id", "label"))
                seen[id] += 1
                differ += int((expected[id] != label).sum())
                noise += int((label < 0).sum())
                largest = max(largest, int(label.max(initial=-1)))
    missing, again = int((seen == 0).sum()), int((seen > 1).sum())
    return {
        "clusters": largest + 1,
        "noise": noise,
        "differ": differ,
        "missing": missing,
        "again": again,
    }
