"""Label the rows that are near core rows, and are none: by the lowest label of those."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_simjoin.cluster.algorithms.places import by_place, order_of, rows_of_places
from dask_simjoin.engine.base import host_kernels
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.threads import shared_out
from dask_simjoin.metrics.types import Array
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.meeting import Meeting

NOWHERE = np.iinfo(np.int64).max

Border = tuple[Array, Array]
"""Some places of a chunk, ascending, and the lowest labels that they are near."""


def border_labels(meeting: Meeting, labels: Sequence[Array]) -> tuple[Border, ...]:
    """Find the lowest label among the core neighbours that places of chunks have in each other.

    `labels`: of the places of each chunk, -1 where there is no core row; what is found, too, is of each.
    """
    xp, low = meeting.xp, lowered(meeting, labels)
    # few rows have any, and many block pairs give them
    return tuple((rows, some[rows]) for some in low for rows in (xp.flatnonzero(some < NOWHERE),))


def lowered(meeting: Meeting, labels: Sequence[Array]) -> list[Array]:
    """Do the same for all places (n,) of each chunk: `NOWHERE` where there is none."""
    joiner, same, placed = meeting.joiner, meeting.same, by_place(meeting)
    low = [joiner.xp.full(len(some), NOWHERE) for some in labels]
    # for `any` of booleans CuPy compiles kernels of CUB, for seconds; their least number has one
    if any(len(some) and int(some.min()) < 0 for some in labels):
        lists = (labels[0], labels[-1]), (low[0], low[-1])
        joiner.lowest(*placed.operands, *lists, same=same, rows=meeting.rows)
    return low


def labels_of_rows(chunk: Chunk, threads: int, labels: Array, *borders: Border) -> Array:
    """Label the chunk's rows (n,), in their own order: core rows by their own, border rows by the lowest.

    `labels`: of its places; `threads`: that share the work on the host.
    """
    order = order_of(chunk)
    if module_of(labels) is not np:
        return rows_of_places(_final(labels, *borders), order)
    out, scatter = np.empty_like(labels), host_kernels("finish").scatter

    def some(start: int, stop: int) -> None:
        here = [np.searchsorted(rows, [start, stop]) for rows, _ in borders]
        near = [(rows[a:b] - start, low[a:b]) for (rows, low), (a, b) in zip(borders, here, strict=True)]
        scatter(order[start:stop], _final(labels[start:stop], *near), out)

    shared_out(some, len(labels), threads)
    return out


def _final(labels: Array, *borders: Border) -> Array:
    xp, final = module_of(labels), labels.copy()
    for rows, low in borders:  # only rows that have none of their own
        so_far = final[rows]
        final[rows] = xp.where(so_far < 0, low, xp.minimum(so_far, low))
    return final
