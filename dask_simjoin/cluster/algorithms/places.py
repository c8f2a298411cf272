"""Tell the rows of a chunk by their places in its index, and find core rows and what connects them so.

Rows that are near each other lie side by side there, in memory too, while in the frame's order each look at
a neighbour misses the cache.  So rows are their places until they are labelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np

from dask_simjoin.engine.base import joiner_of_library
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.protocols import Joiner
from dask_simjoin.metrics.types import Array
from dask_simjoin.planning.checks import MAX_ROWS
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.components import new_nodes
from dask_simjoin.tasks.meeting import Meeting


def order_of(chunk: Chunk) -> Array:
    """Tell the row at each place of a chunk's index (n,), int32."""
    return chunk["order"][: len(chunk["ids"])]


def rows_of_places(values: Array, order: Array) -> Array:
    """Put values of places into the order of rows."""
    out = module_of(values).empty_like(values)
    out[order] = values
    return out


def by_place(meeting: Meeting) -> Meeting:
    """Number the rows of chunks that meet by their places.

    Which of them are a part of the work is for the meeting itself to tell, which tells all parts at once.
    """
    placed = []
    for chunk in meeting.chunks:
        order = chunk["order"]
        placed.append(cast(Chunk, chunk | {"order": meeting.xp.arange(len(order), dtype=order.dtype)}))
    return meeting._replace(q=placed[0], d=placed[-1])


class PlaceCounts(NamedTuple):
    """Hold the neighbours that a part of the work found of some places that follow each other.

    Attributes
    ----------
    start : int
        The first place.
    counts : array (k,)
        Of the smallest unsigned integers that hold as many as make a core row: more are cut to what fits.
    """

    start: int
    counts: Array


def counts_by_place(meeting: Meeting, min_samples: int) -> tuple[PlaceCounts, ...]:
    """Count the neighbours of places of a chunk, or of two in each other: of each the counts.

    Of a part of the work, those that it finds: of one chunk none before its own places.
    """
    placed, rows, xp, least = by_place(meeting), meeting.rows, meeting.xp, min_samples - 1
    found = placed.joiner.counts(*placed.operands, same=meeting.same, enough=least, rows=rows)
    starts = [0] * len(found)
    if rows is not None and xp is np:
        start, stop = rows
        starts[0], some = start, found[0]
        found[0] = some[start:] if meeting.same and some[stop:].any() else some[start:stop]
    kind = np.min_scalar_type(min(least, MAX_ROWS))  # they travel; and are added up as wider ones
    found = [xp.minimum(some, np.iinfo(kind).max).astype(kind) for some in found]
    return tuple(map(PlaceCounts, starts, found))


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


def all_cores(chunk: Chunk) -> Array:
    """Take all rows of a chunk (n,) for core rows."""
    order = order_of(chunk)
    return module_of(order).ones(len(order), bool)


def components_by_place(meeting: Meeting, core: Array) -> Array:
    """Find for each place (n,) the first one of its component; of those of no core row they are themselves.

    Of a part of the work they are the components that it finds.
    """
    placed = by_place(meeting)
    parent = new_nodes(len(core), placed.xp)
    placed.joiner.connect(*placed.operands, parent, (core, core), 0, same=True, rows=meeting.rows)
    placed.joiner.roots(parent)
    return parent


def joined_places(library: str, *parts: Array) -> Array:
    """Join the components that parts of the work found in one chunk."""
    return joined(parts, joiner_of_library(library))


def joined(parts: Sequence[Array], joiner: Joiner) -> Array:
    """Join the components that parts of the work found: most places have neighbours in one part only."""
    parent, xp = parts[0], joiner.xp
    for part in parts[1:]:
        later = xp.maximum(parent, part)
        both = xp.flatnonzero(later < xp.arange(len(part), dtype=part.dtype))  # tied in both of them
        parent = xp.minimum(parent, part)
        joiner.link(parent, both, later[both])
        joiner.roots(parent)
    return parent
