"""Cluster one chunk that is all there is by DBSCAN.

The steps are those of `dbscan`; tasks may share out each of the three that meet neighbours, by places.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.cluster.algorithms.borders import NOWHERE, border_labels, labels_of_rows, lowered
from dask_simjoin.cluster.algorithms.places import (
    components_by_place,
    cores_by_place,
    counts_by_place,
    joined,
    order_of,
    rows_of_places,
)
from dask_simjoin.engine.base import joiner_for
from dask_simjoin.metrics.types import Array
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.meeting import Meeting


def labels_by_place(chunk: Chunk, threads: int, core: Array, *parts: Array) -> Array:
    """Label the places of core rows (n,), int64, others -1; `parts`: the components that the parts found.

    `threads`: that share the work on the host.
    """
    joiner = joiner_for(chunk["example"])
    return joiner.numbers(joined(parts, joiner), (core, order_of(chunk)), threads)


def dbscan_alone(meeting: Meeting, core: Array, threads: int = 1) -> Array:
    """Label the rows of the chunk; `core`: at which places there are core rows."""
    within, xp = components_by_place(meeting, core), meeting.xp
    labels = labels_by_place(meeting.q, threads, core, within)
    if xp is np:
        del within  # as large as what is found at borders
        return labels_of_rows(meeting.q, threads, labels, *border_labels(meeting, [labels]))
    (low,) = lowered(meeting, [labels])
    return rows_of_places(xp.where(low < NOWHERE, low, labels), order_of(meeting.q))


def label_alone(meeting: Meeting, min_samples: int, threads: int) -> Array:
    """Label the rows of the chunk in one task: several, each of which waits for another, take longer."""
    core = cores_by_place(min_samples, *counts_by_place(meeting, min_samples))
    return dbscan_alone(meeting, core, threads)
