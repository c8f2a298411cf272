"""Put rows in the order of OPTICS (Ankerst, Breunig, Kriegel & Sander 1999, "OPTICS: ordering points to
identify the clustering structure"), with the result of scikit-learn, ties included.

Which row is reached from which depends on all edges within `max_eps`: among equal reachability distances
the order of the rows decides, so edges that a spanning forest leaves out matter.  All of them are kept,
in files if they are many, and rows are put in order by one task.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.cluster.algorithms.edges import Reachable, Runs, SpillLimits, edges_of_block, gather_edges
from dask_simjoin.engine.base import host_kernels
from dask_simjoin.engine.compat import to_host
from dask_simjoin.metrics.types import Array
from dask_simjoin.tasks.fingerprints import PREDECESSOR
from dask_simjoin.tasks.meeting import Meeting

COLUMNS = {
    "ordering": np.int64,
    "reachability": np.float64,
    "core_distance": np.float64,
    PREDECESSOR: np.int64,
}
"""The columns of the result."""


def order_rows(numbers: list[Array | int], parts: list[Reachable]) -> list[np.ndarray]:
    """Put all rows in order.

    Parameters
    ----------
    numbers : list of array or int
        For each chunk the numbers of its rows, ascending, or only its own: then the rows of chunks follow
        each other.
    parts : list of Reachable
        Of each chunk; nodes are rows of one chunk after the other.

    Returns
    -------
    list of array (n, 4), int64
        For each chunk's rows the numbers of `COLUMNS`; floats as their bits.
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
    kept = []  # holds what addresses point at
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
    """Stack the numbers of `COLUMNS` (n, 4), int64; floats as their bits."""
    return np.stack([place, reach.view(np.int64), core.view(np.int64), predecessor], axis=1)


def visit_in_order(rank: np.ndarray, by_rank: np.ndarray, expands: np.ndarray, degree: np.ndarray,
                   nodes_at: np.ndarray, weights_at: np.ndarray) -> tuple[np.ndarray, ...]:  # fmt: skip
    """Find places in the order, reachability distances, and ranks of predecessors (-1: none) of all nodes."""
    n = len(rank)
    reach, before, place = np.full(n, np.inf), np.full(n, -1, np.int32), np.full(n, -1, np.int64)
    room = np.empty(n, np.int32), np.empty(n, np.int32)
    host_kernels("optics").order(
        rank, by_rank, expands, degree, nodes_at, weights_at, reach, before, place, *room
    )
    predecessor = np.full(n, -1, np.int64)
    predecessor[before >= 0] = rank[before[before >= 0]]
    return place, reach, predecessor


def optics_of_chunk(meeting: Meeting, max_eps: float, min_samples: int, limits: SpillLimits) -> np.ndarray:
    """Give the result (n, 4) for the rows of one chunk that is all there is, and meets itself."""
    n = len(meeting.q["ids"])
    runs: Runs = edges_of_block(meeting, limits)[0]
    part = gather_edges(n, max_eps, min_samples, [0], limits, runs)
    found = order_rows([n], [part])[0]
    discard([part])
    return found


def discard(parts: list[Reachable]) -> None:
    """Remove all files."""
    for part in parts:
        for held in (part.others, part.reach, *part.used):
            held.discard()
