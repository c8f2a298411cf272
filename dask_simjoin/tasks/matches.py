"""Find the pairs of two chunks, as places in their indexes, and what rows of chunks are called and have.

Where each row has a radius of its own, pairs are decided by the left row's: which row is left is settled
here, and never by which side was searched.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import NamedTuple

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.ids import from_id_keys, joined
from dask_simjoin.engine.protocols import Measured, Rows
from dask_simjoin.metrics.types import Array, ArrayModule, Values
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.meeting import Meeting
from dask_simjoin.tasks.radii import by_position, visit_radii


class Matches(NamedTuple):
    """Hold pairs of rows of some chunks.

    Attributes
    ----------
    left, right : array (pairs,)
        Places in the indexes of `left_of` and `right_of`, one after the other.
    distance : array (pairs,), float64, or None
    left_of, right_of : tuple of Chunk
    """

    left: Array
    right: Array
    distance: Array | None
    left_of: tuple[Chunk, ...]
    right_of: tuple[Chunk, ...]


def measured(spec: JoinSpec, xp: ArrayModule) -> Measured:
    """Make what turns totals into distances."""
    return functools.partial(spec.measure.distance, xp=xp)


def matches(meeting: Meeting, distance: bool, rows: Rows | None) -> Matches:
    """Find all pairs of two chunks, or of one with itself, each once; the left row is the frame's first."""
    q, d, same, spec = meeting[:4]
    if spec.radius is not None:
        return _within_radius(meeting, distance, rows)
    joiner = meeting.joiner
    xp = joiner.xp
    made = measured(spec, xp) if distance else None
    places = tuple(xp.arange(len(side["ids"]), dtype=xp.int64) for side in (q, d))
    found = joiner.pairs(
        *meeting.operands, same=same, distance=made, labels=(places[0], places[1]), rows=rows
    )
    left, right = found.left, found.right
    if not meeting.order_unknown:
        return Matches(left, right, found.distance, (q,), (d,))
    swap = d["position"][d["order"][right]] < q["position"][q["order"][left]]
    right = right + len(q["ids"])
    left, right = xp.where(swap, right, left), xp.where(swap, left, right)
    return Matches(left, right, found.distance, (q, d), (q, d))


def _within_radius(meeting: Meeting, distance: bool, rows: Rows | None) -> Matches:
    """Find pairs within the left row's radius; of one table in both directions, each decided by itself."""
    q, d, same, spec = meeting[:4]
    xp, both = meeting.xp, spec.other is None
    # of one table a row of either chunk may be the left one
    sides = ((q, d), (q, d)) if both and not same else ((q,), (d,))
    first = len(q["ids"]) if both and not same else 0
    parts: list[tuple[Array, Array, Array]] = []

    def show(side: int, left: Array, right: Array, totals: Array) -> None:
        parts.append((left + first, right, totals) if side else (left, right + first, totals))

    visit_radii(meeting, show, rows)
    kinds = xp.int64, xp.int64, xp.float64
    left, right, totals = (
        xp.concatenate([xp.zeros(0, kind), *(part[k] for part in parts)]) for k, kind in enumerate(kinds)
    )
    away = spec.measure.distance(totals, xp) if distance else None
    places = [xp.concatenate(_ranks(chunks, xp)) for chunks in sides]
    return Matches(places[0][left], places[1][right], away, *sides)


def _ranks(chunks: tuple[Chunk, ...], xp: ArrayModule) -> list[Array]:
    """List the places of rows in the indexes of chunks, one after the other."""
    firsts = [0, *(len(chunk["ids"]) for chunk in chunks[:-1])]
    return [rank(chunk, xp) + first for chunk, first in zip(chunks, firsts, strict=True)]


def rank(chunk: Chunk, xp: ArrayModule) -> Array:
    """Find the place in the index (n,) int64 of each row."""
    return by_position(chunk, xp.arange(len(chunk["ids"]), dtype=xp.int64), xp)


def ids_of(chunks: tuple[Chunk, ...], places: Array) -> Values:
    """Take the ids of rows: an array or an Index."""
    xp = frames_for(chunks[0]["example"]).xp
    keys = [chunk["id_keys"] for chunk in chunks]
    if all(some is not None for some in keys):
        return from_id_keys(_whole(keys, xp)[places], chunks[0]["ids"])
    firsts = [0, *(len(chunk["ids"]) for chunk in chunks[:-1])]
    orders = [
        chunk["order"][: len(chunk["ids"])] + start for chunk, start in zip(chunks, firsts, strict=True)
    ]
    return joined([chunk["ids"] for chunk in chunks]).take(_whole(orders, xp)[places])


def kept_values(chunks: tuple[Chunk, ...], column: Hashable, places: Array) -> Values:
    """Take the values of a kept column of rows, as `Frames.result` takes them."""
    frames = frames_for(chunks[0]["example"])
    parts = [chunk["kept"] for chunk in chunks]
    whole = parts[0] if len(parts) == 1 else frames.stacked([part[[column]] for part in parts])
    return frames.values(whole, column, places)


def _whole(parts: list[Array], xp: ArrayModule) -> Array:
    return parts[0] if len(parts) == 1 else xp.concatenate(parts)
