"""Cluster one chunk that is all there is by DBSCAN, in the order of its index.

There rows that are near each other lie side by side, in memory too, while in the frame's order, by which rows
of several chunks are told apart, each look at a neighbour misses the cache.  So a row is its place here,
and becomes a row of the frame once, at the end.  The steps are those of `dbscan`; tasks may share out each
of the three that meet neighbours, by places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np

from dask_simjoin.cluster.algorithms.dbscan import Border, border_labels, final_labels
from dask_simjoin.engine.base import host_kernels, joiner_for
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.protocols import Joiner
from dask_simjoin.engine.threads import shared_out
from dask_simjoin.metrics.types import Array
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.components import new_nodes
from dask_simjoin.tasks.meeting import Meeting


def order_of(chunk: Chunk) -> Array:
    """Tell the row at each place of a chunk's index (n,), int32."""
    return chunk["order"][: len(chunk["ids"])]


def _by_place(meeting: Meeting) -> Meeting:
    """Number the rows of a chunk that meets itself by their places."""
    order = meeting.q["order"]
    chunk = cast(Chunk, meeting.q | {"order": meeting.xp.arange(len(order), dtype=order.dtype)})
    return meeting._replace(q=chunk, d=chunk)


class PlaceCounts(NamedTuple):
    """Hold the neighbours that a part of the work found of some places that follow each other.

    Attributes
    ----------
    start : int
        The first place.
    counts : array (k,), int64
    """

    start: int
    counts: Array


def counts_by_place(meeting: Meeting, min_samples: int) -> PlaceCounts:
    """Count the neighbours of places; of a part of the work, those that it finds: none before its own."""
    placed = _by_place(meeting)
    rows, xp = placed.rows, placed.xp
    found = placed.joiner.counts(*placed.operands, same=True, enough=min_samples - 1, rows=rows)[0]
    if rows is None or xp is not np:
        return PlaceCounts(0, found)
    start, stop = rows
    return PlaceCounts(start, found[start:] if found[stop:].any() else found[start:stop])


def cores_by_place(min_samples: int, *parts: PlaceCounts) -> Array:
    """Tell at which places (n,) bool there are core rows; `parts`: what all parts of the work found."""
    xp, least = module_of(parts[0].counts), min_samples - 1
    ends = [start + len(counts) for start, counts in parts]
    if [start for start, _ in parts] == [0, *ends[:-1]]:  # each place was looked at by one
        return xp.concatenate([counts >= least for _, counts in parts])
    found = xp.zeros(max(ends), np.int64)
    for start, counts in parts:
        found[start : start + len(counts)] += counts
    return found >= least


def components_by_place(meeting: Meeting, core: Array) -> Array:
    """Find for each place (n,) the first one of its component; of those of no core row they are themselves.

    Of a part of the work they are the components that it finds.
    """
    placed = _by_place(meeting)
    parent = new_nodes(len(core), placed.xp)
    placed.joiner.connect(*placed.operands, parent, (core, core), 0, same=True, rows=placed.rows)
    placed.joiner.roots(parent)
    return parent


def _joined(parts: Sequence[Array], joiner: Joiner) -> Array:
    """Join the components that parts of the work found: most places have neighbours in one part only."""
    parent, xp = parts[0], joiner.xp
    for part in parts[1:]:
        later = xp.maximum(parent, part)
        both = xp.flatnonzero(later < xp.arange(len(part), dtype=part.dtype))  # tied in both of them
        parent = xp.minimum(parent, part)
        joiner.link(parent, both, later[both])
        joiner.roots(parent)
    return parent


def labels_by_place(chunk: Chunk, core: Array, *parts: Array) -> Array:
    """Label the places of core rows (n,), int64, others -1; `parts`: the components that the parts found."""
    joiner = joiner_for(chunk["example"])
    within, xp, order = _joined(parts, joiner), joiner.xp, order_of(chunk)
    first = xp.full(len(within), len(within), np.int32)
    xp.minimum.at(first, within.astype(np.int64), order)
    roots = xp.flatnonzero(core & (within == xp.arange(len(within), dtype=within.dtype)))
    number = xp.full(len(within), -1, np.int64)
    number[roots[xp.argsort(first[roots])]] = xp.arange(len(roots))
    labels: Array = number[within]
    return labels


def border_by_place(meeting: Meeting, labels: Array) -> Border:
    """Find the lowest label among the core neighbours of places that are none of core rows."""
    return border_labels(_by_place(meeting), (labels, labels))[0]


def labels_of_rows(chunk: Chunk, threads: int, labels: Array, *borders: Border) -> Array:
    """Label the chunk's rows (n,), in their own order; `threads`: that share the work on the host."""
    found, order = final_labels(labels, *borders), order_of(chunk)
    return rows_of_places(found, order, threads)


def rows_of_places(values: Array, order: Array, threads: int = 1) -> Array:
    """Put values of places into the order of rows; `threads`: see `labels_of_rows`."""
    out = module_of(values).empty_like(values)
    if module_of(values) is not np or values.dtype != np.int64:
        out[order] = values
        return out

    def some(start: int, stop: int) -> None:
        host_kernels("finish").scatter(order[start:stop], values[start:stop], out)

    shared_out(some, len(values), threads)
    return out


def dbscan_alone(meeting: Meeting, core: Array) -> Array:
    """Label the rows of the chunk; `core`: at which places there are core rows."""
    labels = labels_by_place(meeting.q, core, components_by_place(meeting, core))
    return labels_of_rows(meeting.q, 1, labels, border_by_place(meeting, labels))
