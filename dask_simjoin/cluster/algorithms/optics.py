"""Order rows by OPTICS, and extract clusters from the order.

The result depends on all edges within `max_eps`, also on edges that a spanning forest leaves out.  So all
edges are kept, in files if there are many, and one task orders the rows.  Among rows with equal reachability,
the first in the frame comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_simjoin.cluster.algorithms.condense import numbers_of
from dask_simjoin.cluster.algorithms.edges import (
    EdgeRuns,
    Reachable,
    SpillLimits,
    edges_of_block,
    gather_edges,
)
from dask_simjoin.engine.base import frames_for, host_kernels
from dask_simjoin.engine.compat import to_host
from dask_simjoin.errors import ColumnError, OptionError
from dask_simjoin.metrics.norms import Array, Frame, Series
from dask_simjoin.request.columns import optional
from dask_simjoin.tasks.counts import PREDECESSOR
from dask_simjoin.tasks.matches import BlockPair

COLUMNS = {
    "ordering": np.int64,
    "reachability": np.float64,
    "core_distance": np.float64,
    PREDECESSOR: np.int64,
}
"""The columns of the result."""

IN_MEMORY = 2**30
"""Maximum bytes of edges to keep in memory if the memory limit is unknown."""

FOREST = "forest"
"""The mode that keeps a spanning forest instead of all edges."""


def order_rows(numbers: list[Array | int], parts: list[Reachable]) -> list[np.ndarray]:
    """Order all rows.

    Parameters
    ----------
    numbers : list of array or int
        For each chunk its row numbers, ascending, or the chunk's number if chunks are in frame order.
    parts : list of Reachable
        The edges of each chunk; nodes number the rows of all chunks consecutively.

    Returns
    -------
    list of array (n, 4), int64
        For each chunk the values of `COLUMNS` of its rows; floats are stored as their bits.
    """
    sizes = [len(part.core) for part in parts]
    firsts = np.cumsum([0, *sizes])
    n = int(firsts[-1])
    if all(isinstance(own, int) for own in numbers):
        by_rank = np.arange(n, dtype=np.int32)
    else:
        by_rank = np.argsort(np.concatenate([to_host(own) for own in numbers])).astype(np.int32)
    rank = np.empty(n, np.int32)
    rank[by_rank] = np.arange(n, dtype=np.int32)
    nodes_at, weights_at = np.empty(n, np.int64), np.empty(n, np.int64)
    kept = []  # keeps arrays alive: their addresses are stored
    for part, first, size in zip(parts, firsts, sizes, strict=False):
        others, reach = part.others.array(), part.reach.array()
        kept += [others, reach]
        begin = np.cumsum(part.degree, dtype=np.int64) - part.degree
        nodes_at[first : first + size] = others.ctypes.data + 4 * begin
        weights_at[first : first + size] = reach.ctypes.data + 8 * begin
    core = np.concatenate([part.core for part in parts]) if parts else np.zeros(0)
    degree = np.concatenate([part.degree for part in parts]) if parts else np.zeros(0, np.int32)
    found = visit_in_order(rank, by_rank, np.isfinite(core), degree, nodes_at, weights_at)
    table = table_of(found[0], found[1], core, found[2])
    return [table[a : a + size] for a, size in zip(firsts, sizes, strict=False)]


def table_of(place: np.ndarray, reach: np.ndarray, core: np.ndarray, predecessor: np.ndarray) -> np.ndarray:
    """Stack the values of `COLUMNS` (n, 4) int64; floats as their bits."""
    return np.stack([place, reach.view(np.int64), core.view(np.int64), predecessor], axis=1)


def visit_in_order(rank: np.ndarray, by_rank: np.ndarray, expands: np.ndarray, degree: np.ndarray,
                   nodes_at: np.ndarray, weights_at: np.ndarray) -> tuple[np.ndarray, ...]:  # fmt: skip
    """Return for all nodes: place in the order, reachability, and rank of the predecessor (-1: none)."""
    n = len(rank)
    reach, before, place = np.full(n, np.inf), np.full(n, -1, np.int32), np.full(n, -1, np.int64)
    room = np.empty(n, np.int32), np.empty(n, np.int32)
    host_kernels("optics").order(
        rank, by_rank, expands, degree, nodes_at, weights_at, reach, before, place, *room
    )
    predecessor = np.full(n, -1, np.int64)
    predecessor[before >= 0] = rank[before[before >= 0]]
    return place, reach, predecessor


def optics_of_chunk(
    block_pair: BlockPair, max_eps: float, min_samples: int, limits: SpillLimits
) -> np.ndarray:
    """Return the result (n, 4) for the rows of a single chunk."""
    n = len(block_pair.q["ids"])
    runs: EdgeRuns = edges_of_block(block_pair, limits)[0]
    part = gather_edges(n, max_eps, min_samples, [0], limits, runs)
    found = order_rows([n], [part])[0]
    discard([part])
    return found


def discard(parts: list[Reachable]) -> None:
    """Remove all files of edges."""
    for part in parts:
        for held in (part.others, part.reach, *part.used):
            held.discard()


def at_distance(order: np.ndarray, reach: np.ndarray, core: np.ndarray, eps: float) -> np.ndarray:
    """Label (n,) the clusters at a smaller distance (Ankerst et al. 1999, section 4.3, figure 19).

    `order`: the rows in order, (n,).
    """
    labels = np.empty(len(order), np.int64)
    far, near = reach > eps, core <= eps
    labels[order] = np.cumsum((far & near)[order]) - 1
    labels[far & ~near] = -1
    return labels


def steep_clusters() -> Any:
    """Scikit-learn's function for clusters by steepness."""
    return optional("sklearn.cluster", "scikit-learn", "Clusters by steepness").cluster_optics_xi


def by_steepness(
    order: np.ndarray, reach: np.ndarray, predecessor: np.ndarray, options: dict[str, Any]
) -> np.ndarray:
    """Label (n,) the clusters between steep parts of the plot (section 4.3.2), by scikit-learn."""
    if not len(order):
        return order
    for name in ("min_samples", "min_cluster_size"):
        number = options.get(name)
        if number is not None and number > len(order):
            raise OptionError(
                f"{name}={number} is not allowed for {len(order)} rows; use a smaller number, or "
                "cluster_optics_dbscan() with eps=."
            )
    known = {"reachability": reach, "predecessor": predecessor, "ordering": order}
    found: np.ndarray = steep_clusters()(**known, **options)[0]
    return found.astype(np.int64)


def columns_for(eps: float | None) -> list[str]:
    """List the columns that labels depend on: at the distance `eps`, or by steepness if it is None."""
    return [name for name in COLUMNS if eps is None or name != PREDECESSOR]


def labels_of(parts: Sequence[Frame], eps: float | None, options: dict[str, Any]) -> np.ndarray:
    """Label the rows of a result of OPTICS in parts: at the distance `eps`, or by steepness if it is None."""
    place, reach, core, *predecessor = (
        np.concatenate([numbers_of(part, name, COLUMNS[name], "optics()") for part in parts])
        for name in columns_for(eps)
    )
    number = len(place)
    if place.min(initial=0) < 0 or (np.bincount(place, minlength=number) != 1).any():
        raise ColumnError(
            f"The column 'ordering' does not order its {number:,} rows; pass all rows of one result of "
            "optics()."
        )
    order = np.empty(number, np.int64)
    order[place] = np.arange(number)
    if eps is not None:
        return at_distance(order, reach, core, eps)
    return by_steepness(order, reach, predecessor[0], options)


def whole_labels(frame: Frame, eps: float | None, options: dict[str, Any], name: str) -> Series:
    """Label the rows of a whole result of OPTICS, as a Series."""
    frames = frames_for(frame)
    return frames.series(frames.xp.asarray(labels_of([frame], eps, options)), frame.index, name)
