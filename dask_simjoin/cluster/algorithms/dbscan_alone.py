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

from dask_simjoin.cluster.algorithms.dbscan import NOWHERE, Border, final_labels, lowered, lowest_labels
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
    """Number the rows of a chunk that meets itself by their places.

    Which of them are a part of the work is for the chunk itself to tell, which tells all parts at once.
    """
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
    placed, rows, xp = _by_place(meeting), meeting.rows, meeting.xp
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
        cores = [counts >= least for _, counts in parts]
        return cores[0] if len(cores) == 1 else xp.concatenate(cores)
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
    placed.joiner.connect(*placed.operands, parent, (core, core), 0, same=True, rows=meeting.rows)
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


def labels_by_place(chunk: Chunk, threads: int, core: Array, *parts: Array) -> Array:
    """Label the places of core rows (n,), int64, others -1; `parts`: the components that the parts found.

    `threads`: that share the work on the host.
    """
    joiner = joiner_for(chunk["example"])
    return joiner.numbers(_joined(parts, joiner), (core, order_of(chunk)), threads)


def border_by_place(meeting: Meeting, labels: Array) -> Border:
    """Find the lowest label among the core neighbours of places that are none of core rows."""
    return lowest_labels(_by_place(meeting), (labels, labels), meeting.rows)[0]


def labels_of_rows(chunk: Chunk, threads: int, labels: Array, *borders: Border) -> Array:
    """Label the chunk's rows (n,), in their own order; `threads`: that share the work on the host."""
    order = order_of(chunk)
    if module_of(labels) is not np:
        return rows_of_places(final_labels(labels, *borders), order)
    out, scatter = np.empty_like(labels), host_kernels("finish").scatter

    def some(start: int, stop: int) -> None:
        here = [np.searchsorted(rows, [start, stop]) for rows, _ in borders]  # rows ascend
        near = [(rows[a:b] - start, low[a:b]) for (rows, low), (a, b) in zip(borders, here, strict=True)]
        scatter(order[start:stop], final_labels(labels[start:stop], *near), out)

    shared_out(some, len(labels), threads)
    return out


def rows_of_places(values: Array, order: Array) -> Array:
    """Put values of places into the order of rows."""
    out = module_of(values).empty_like(values)
    out[order] = values
    return out


def dbscan_alone(meeting: Meeting, core: Array) -> Array:
    """Label the rows of the chunk; `core`: at which places there are core rows."""
    labels, xp = labels_by_place(meeting.q, 1, core, components_by_place(meeting, core)), meeting.xp
    if xp is np:
        return labels_of_rows(meeting.q, 1, labels, border_by_place(meeting, labels))
    (low,) = lowered(_by_place(meeting), (labels, labels), None)
    return rows_of_places(xp.where(low < NOWHERE, low, labels), order_of(meeting.q))
