"""The pairs of two chunks, as places in their indexes, and what rows of chunks are called and have.

Where each row has a radius of its own, chunks are joined by the largest one, and pairs are decided by the
left row's: which row is left is settled here, and never by which side was searched.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.ids import from_id_keys
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk, joined


class Matches(NamedTuple):
    """Pairs of rows of some chunks.

    Attributes
    ----------
    left, right : array (pairs,)
        Places in the indexes of `left_of` and `right_of`, one after the other.
    distance : array (pairs,), float64, or None
    left_of, right_of : tuple of Chunk
    """

    left: Any
    right: Any
    distance: Any
    left_of: tuple[Chunk, ...]
    right_of: tuple[Chunk, ...]


def comparisons(q: Chunk, d: Chunk, same: bool) -> Iterator[tuple[Chunk, Chunk, bool]]:
    """The chunks that are compared when two chunks (or one with itself) meet."""
    yield q, d, same
    if "halo" in d and len(d["halo"]["ids"]):
        yield q, d["halo"], False


def order_unknown(q: Chunk, same: bool, spec: JoinSpec) -> bool:
    """Whether either row of a pair may come first in the frame."""
    return not same and "position" in q and spec.other is None


def measured(spec: JoinSpec, xp: Any) -> Any:
    """What makes distances of totals."""
    return functools.partial(spec.measure.distance, xp=xp)


def matches(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool, distance: bool,
            rows: tuple[int, int] | None) -> Matches:  # fmt: skip
    """All pairs of two chunks, or of one with itself, each once; the left row is the frame's first."""
    if spec.radius is not None:
        return _within_radius(q, d, spec, layout, same, distance, rows)
    joiner = joiner_for(q["example"])
    xp = joiner.xp
    made = measured(spec, xp) if distance else None
    places = tuple(xp.arange(len(side["ids"]), dtype=xp.int64) for side in (q, d))
    found = joiner.pairs(q, d, layout, same=same, distance=made, labels=places, rows=rows)
    left, right = found.left, found.right
    if not order_unknown(q, same, spec):
        return Matches(left, right, found.distance, (q,), (d,))
    swap = d["position"][d["order"][right]] < q["position"][q["order"][left]]
    right = right + len(q["ids"])
    left, right = xp.where(swap, right, left), xp.where(swap, left, right)
    return Matches(left, right, found.distance, (q, d), (q, d))


def _within_radius(q: Chunk, d: Chunk, spec: JoinSpec, layout: Any, same: bool, distance: bool,
                   rows: tuple[int, int] | None) -> Matches:  # fmt: skip
    """Pairs within the left row's radius; of one table in both directions, each decided by itself."""
    joiner = joiner_for(q["example"])
    xp, both = joiner.xp, spec.other is None
    # of one table a row of either chunk may be the left one
    sides = ((q, d), (q, d)) if both and not same else ((q,), (d,))
    first = len(q["ids"]) if both and not same else 0
    limits = [by_position(side, side["own_limit"], xp) for side in ((q, d) if both else (q,))]
    parts: list[tuple[Any, Any, Any]] = []

    def visitor(left: Any, right: Any, totals: Any) -> None:
        found = totals <= limits[0][left]
        parts.append((left[found], right[found] + first, totals[found]))
        if both:
            found = totals <= limits[1][right]
            parts.append((right[found] + first, left[found], totals[found]))

    joiner.visit(q, d, layout, visitor, same=same, rows=rows)
    kinds = xp.int64, xp.int64, xp.float64
    left, right, totals = (
        xp.concatenate([xp.zeros(0, kind), *(part[k] for part in parts)]) for k, kind in enumerate(kinds)
    )
    away = spec.measure.distance(totals, xp) if distance else None
    places = [xp.concatenate(_ranks(chunks, xp)) for chunks in sides]
    return Matches(places[0][left], places[1][right], away, *sides)


def _ranks(chunks: tuple[Chunk, ...], xp: Any) -> list[Any]:
    """The places of rows in the indexes of chunks, one after the other."""
    firsts = [0, *(len(chunk["ids"]) for chunk in chunks[:-1])]
    return [rank(chunk, xp) + first for chunk, first in zip(chunks, firsts, strict=True)]


def by_position(chunk: Chunk, values: Any, xp: Any) -> Any:
    """Values in the order of the index as values in the order of the rows."""
    out = xp.empty_like(values)
    out[chunk["order"][: len(values)]] = values
    return out


def rank(chunk: Chunk, xp: Any) -> Any:
    """The place in the index (n,) int64 of each row."""
    return by_position(chunk, xp.arange(len(chunk["ids"]), dtype=xp.int64), xp)


def names(chunks: tuple[Chunk, ...], places: Any) -> Any:
    """The ids of rows: an array or an Index."""
    xp = frames_for(chunks[0]["example"]).xp
    labels = [chunk["id_keys"] for chunk in chunks]
    if all(some is not None for some in labels):
        return from_id_keys(_whole(labels, xp)[places], chunks[0]["ids"])
    firsts = [0, *(len(chunk["ids"]) for chunk in chunks[:-1])]
    orders = [
        chunk["order"][: len(chunk["ids"])] + start for chunk, start in zip(chunks, firsts, strict=True)
    ]
    return joined([chunk["ids"] for chunk in chunks]).take(_whole(orders, xp)[places])


def kept_values(chunks: tuple[Chunk, ...], column: Any, places: Any) -> Any:
    """The values of a kept column of rows, as `Frames.result` takes them."""
    frames = frames_for(chunks[0]["example"])
    parts = [chunk["kept"] for chunk in chunks]
    whole = parts[0] if len(parts) == 1 else frames.stacked([part[[column]] for part in parts])
    return frames.values(whole, column, places)


def _whole(parts: list[Any], xp: Any) -> Any:
    return parts[0] if len(parts) == 1 else xp.concatenate(parts)
