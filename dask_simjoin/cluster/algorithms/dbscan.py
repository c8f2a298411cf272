"""DBSCAN of chunks, step by step (Ester, Kriegel, Sander & Xu 1996, "A density-based algorithm for
discovering clusters in large spatial databases with noise").

No list of neighbours is made.  Counts of neighbours give the core rows; the core rows of each chunk
are connected within it, and then only its components, of which there are few, across chunks.  Clusters
are numbered by their first core row; a border row takes the lowest number among its core neighbours:
so labels are those of scikit-learn, whatever the chunks.

Rows of all chunks have names, numbers in the order of the frame: their positions in it, or, of chunks of
rows that follow each other, their chunk and their place in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.cluster.algorithms.components import component_roots, new_nodes, spanning_forest
from dask_simjoin.engine.base import joiner_for
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.row_numbers import RowNumbers, row_numbers

NOWHERE = np.iinfo(np.int64).max


Border = tuple[Any, Any]
"""Some rows of a chunk, and the lowest labels that they are near."""

Numbering = tuple[np.ndarray, np.ndarray]
"""First rows of the chunks' components, ascending, and the numbers of their clusters."""


def core_rows(counts: Any, min_samples: int) -> Any:
    """Which rows have enough neighbours, themselves included (n,), bool."""
    return counts + 1 >= min_samples


def components_within(chunk: Chunk, core: Any, layout: Any) -> Any:
    """For each core row of a chunk the first row of its component there (n,); -1 for others."""
    joiner = joiner_for(chunk["example"])
    parent = new_nodes(len(core), joiner.xp)
    joiner.connect(chunk, chunk, layout, parent, (core, core), 0, same=True)
    joiner.roots(parent)
    parent[~core] = -1
    return parent


def first_rows(within: Any, names: RowNumbers) -> np.ndarray:
    """The names of the rows that stand for a chunk's components."""
    xp = module_of(within)
    return to_host(row_numbers(xp.flatnonzero(within == xp.arange(len(within))), names))


def edges_across(q: Chunk, d: Chunk, within: tuple[Any, Any], names: tuple[RowNumbers, RowNumbers],
                 layout: Any) -> np.ndarray:  # fmt: skip
    """As few edges (k, 2) as connect the components of two chunks, between rows that stand for them."""
    joiner = joiner_for(q["example"])
    xp = joiner.xp
    core = within[0] >= 0, within[1] >= 0
    offset = len(within[0])
    nodes = new_nodes(offset + len(within[1]), xp)
    parent = nodes.copy()
    for side, taking, start in zip(within, core, (0, offset), strict=True):
        rows = xp.flatnonzero(taking)
        parent[start + rows] = side[rows] + start
    first = (parent == nodes) & xp.concatenate(core)
    joiner.connect(q, d, layout, parent, core, offset, same=False)
    joiner.roots(parent)
    tied = xp.flatnonzero(first & (parent != nodes))

    every = xp.concatenate(
        [row_numbers(xp.arange(len(some)), name) for some, name in zip(within, names, strict=True)]
    )
    return to_host(xp.stack([every[tied], every[parent[tied]]], axis=1))


def _no_edges() -> np.ndarray:
    return np.zeros((0, 2), np.int64)


def merge_edges(*parts: np.ndarray) -> np.ndarray:
    """As few edges (k, 2) as connect what all of these connect."""
    return spanning_forest(np.concatenate(parts)) if parts else _no_edges()


def number_clusters(edges: np.ndarray, *rows: np.ndarray) -> Numbering:
    """Number the clusters by their first rows; `rows`: those that stand for the chunks' components."""
    names = np.sort(np.concatenate([np.zeros(0, np.int64), *rows]))
    left, right = (np.searchsorted(names, edges[:, k]) for k in (0, 1))
    root = component_roots(len(names), left, right)
    return names, np.unique(root, return_inverse=True)[1].reshape(-1).astype(np.int64)


def label_cores(within: Any, own: RowNumbers, numbering: Numbering) -> Any:
    """Cluster numbers of a chunk's core rows (n,), int64; -1 for others.  `own`: names of its rows."""
    xp = module_of(within)
    names, clusters = (xp.asarray(some) for some in numbering)
    labels = xp.full(len(within), -1, np.int64)
    core = within >= 0
    labels[core] = clusters[xp.searchsorted(names, row_numbers(within[core], own))]
    return labels


def border_labels(q: Chunk, d: Chunk, labels: tuple[Any, Any], layout: Any,
                  same: bool) -> tuple[Border, Border | None]:  # fmt: skip
    """The lowest label among the core neighbours that rows of two chunks have in each other."""
    joiner = joiner_for(q["example"])
    xp = joiner.xp
    low = [xp.full(len(some), NOWHERE) for some in labels[: 1 if same else 2]]
    if any(bool((some < 0).any()) for some in labels):
        joiner.lowest(q, d, layout, labels, (low[0], low[-1]), same=same)
    # few rows have any, and many block pairs tell of them
    found = [(xp.flatnonzero(some < NOWHERE), some[some < NOWHERE]) for some in low]
    return found[0], None if same else found[1]


def final_labels(labels: Any, *borders: Border) -> Any:
    """Labels of a chunk's rows: of core rows their own, of border rows the lowest, of others -1."""
    xp = module_of(labels)
    final = xp.where(labels < 0, NOWHERE, labels)
    for rows, low in borders:
        final[rows] = xp.minimum(final[rows], low)  # only of rows that have none of their own
    final[final == NOWHERE] = -1
    return final


def dbscan_of_chunk(chunk: Chunk, layout: Any, min_samples: int) -> Any:
    """Labels of the rows of one chunk that is all there is."""
    counts = joiner_for(chunk["example"]).counts(chunk, chunk, layout, same=True)[0]
    within = components_within(chunk, core_rows(counts, min_samples), layout)
    labels = label_cores(within, 0, number_clusters(_no_edges(), first_rows(within, 0)))
    return final_labels(labels, border_labels(chunk, chunk, (labels, labels), layout, True)[0])
