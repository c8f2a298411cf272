"""Cluster chunks by DBSCAN, step by step (Ester, Kriegel, Sander & Xu 1996, "A density-based algorithm for
discovering clusters in large spatial databases with noise").

No list of neighbours is made.  Counts of neighbours give the core rows; the core rows of each chunk
are connected within it, and then only its components, of which there are few, across chunks.  Clusters
are numbered by their first core row; a border row takes the lowest number among its core neighbours:
so labels are those of scikit-learn, whatever the chunks.

Rows of all chunks have numbers in the order of the frame: their positions in it, or, of chunks of rows that
follow each other, their chunk and their place in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_simjoin.cluster.algorithms.components import component_roots, new_nodes, spanning_forest
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.metrics.types import Array
from dask_simjoin.tasks.meeting import Meeting
from dask_simjoin.tasks.row_numbers import RowNumbers, row_numbers

NOWHERE = np.iinfo(np.int64).max


Border = tuple[Array, Array]
"""Some rows of a chunk, and the lowest labels that they are near."""

Numbering = tuple[np.ndarray, np.ndarray]
"""First rows of the chunks' components, ascending, and the numbers of their clusters."""


def components_within(meeting: Meeting, counts: Array | int, min_samples: int) -> Array:
    """Find for each core row of a chunk the first row of its component there (n,); -1 for others.

    `counts`: of each row's neighbours; 0 if the chunk meets none, not even itself.
    """
    joiner = meeting.joiner
    core = joiner.xp.zeros(len(meeting.q["ids"]), np.int64) + counts + 1 >= min_samples
    parent = new_nodes(len(core), joiner.xp)
    joiner.connect(*meeting.operands, parent, (core, core), 0, same=True)
    joiner.roots(parent)
    parent[~core] = -1
    return parent


def first_rows(within: Array, own: RowNumbers) -> np.ndarray:
    """Number the rows that stand for a chunk's components; `own`: numbers of its rows."""
    xp = module_of(within)
    return to_host(row_numbers(xp.flatnonzero(within == xp.arange(len(within))), own))


def edges_across(meeting: Meeting, within: Sequence[Array], numbers: Sequence[RowNumbers]) -> np.ndarray:
    """Connect the components of two chunks by as few edges (k, 2) as do, between rows that stand for them."""
    joiner = meeting.joiner
    xp = joiner.xp
    core = within[0] >= 0, within[1] >= 0
    offset = len(within[0])
    nodes = new_nodes(offset + len(within[1]), xp)
    parent = nodes.copy()
    for side, taking, start in zip(within, core, (0, offset), strict=True):
        rows = xp.flatnonzero(taking)
        parent[start + rows] = side[rows] + start
    first = (parent == nodes) & xp.concatenate(core)
    joiner.connect(*meeting.operands, parent, core, offset, same=False)
    joiner.roots(parent)
    tied = xp.flatnonzero(first & (parent != nodes))

    every = xp.concatenate(
        [row_numbers(xp.arange(len(some)), own) for some, own in zip(within, numbers, strict=True)]
    )
    return to_host(xp.stack([every[tied], every[parent[tied]]], axis=1))


def _no_edges() -> np.ndarray:
    return np.zeros((0, 2), np.int64)


def merge_edges(*parts: np.ndarray) -> np.ndarray:
    """Connect by as few edges (k, 2) as do what all of these connect."""
    return spanning_forest(np.concatenate(parts)) if parts else _no_edges()


def number_clusters(edges: np.ndarray, *rows: np.ndarray) -> Numbering:
    """Number the clusters by their first rows; `rows`: those that stand for the chunks' components."""
    firsts = np.sort(np.concatenate([np.zeros(0, np.int64), *rows]))
    left, right = (np.searchsorted(firsts, edges[:, k]) for k in (0, 1))
    root = component_roots(len(firsts), left, right)
    return firsts, np.unique(root, return_inverse=True)[1].reshape(-1).astype(np.int64)


def label_cores(within: Array, own: RowNumbers, numbering: Numbering) -> Array:
    """Label a chunk's core rows (n,), int64; others have -1.  `own`: numbers of its rows."""
    xp = module_of(within)
    firsts, clusters = (xp.asarray(some) for some in numbering)
    labels = xp.full(len(within), -1, np.int64)
    core = within >= 0
    labels[core] = clusters[xp.searchsorted(firsts, row_numbers(within[core], own))]
    return labels


def border_labels(meeting: Meeting, labels: Sequence[Array]) -> tuple[Border, Border | None]:
    """Find the lowest label among the core neighbours that rows of two chunks have in each other."""
    joiner, same = meeting.joiner, meeting.same
    xp = joiner.xp
    low = [xp.full(len(some), NOWHERE) for some in labels[: len(meeting.chunks)]]
    if any(bool((some < 0).any()) for some in labels):
        joiner.lowest(*meeting.operands, (labels[0], labels[1]), (low[0], low[-1]), same=same)
    # few rows have any, and many block pairs give them
    found = [(xp.flatnonzero(some < NOWHERE), some[some < NOWHERE]) for some in low]
    return found[0], None if same else found[1]


def final_labels(labels: Array, *borders: Border) -> Array:
    """Label a chunk's rows: core rows by their own, border rows by the lowest, others by -1."""
    xp = module_of(labels)
    final = xp.where(labels < 0, NOWHERE, labels)
    for rows, low in borders:
        final[rows] = xp.minimum(final[rows], low)  # only of rows that have none of their own
    final[final == NOWHERE] = -1
    return final


def dbscan_of_chunk(meeting: Meeting, min_samples: int) -> Array:
    """Label the rows of one chunk that is all there is, and meets itself."""
    counts = meeting.joiner.counts(*meeting.operands, same=True)[0]
    within = components_within(meeting, counts, min_samples)
    labels = label_cores(within, 0, number_clusters(_no_edges(), first_rows(within, 0)))
    return final_labels(labels, border_labels(meeting, (labels, labels))[0])
