"""Compare rows that came or went with rows that are held in memory: the work of one task."""

from __future__ import annotations

from typing import NamedTuple

from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.compat import all_of, module_of
from dask_simjoin.incremental.compare import Comparison
from dask_simjoin.incremental.loaded import Loaded, layout_for, near_box, some
from dask_simjoin.incremental.replaced import Replaced, in_other_version
from dask_simjoin.incremental.slabs import Chosen, Slab, index_of, points_at, rows_at, taken, within
from dask_simjoin.metrics.types import Array, Frame
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.matches import measured
from dask_simjoin.tasks.pairs import Side, pair_columns, put_together


class Hits(NamedTuple):
    """Hold pairs: rows that came or went, rows of a slab, and, if they are asked for, distances."""

    own: Array
    held: Array
    distance: Array | None

    def only(self, which: Array) -> Hits:
        """Take some of them."""
        away = self.distance
        return Hits(self.own[which], self.held[which], None if away is None else away[which])


def pairs_with_slabs(how: Comparison, rows: Loaded, chosen: tuple[Chosen, ...], replaced: Replaced | None,
                     columns: list[str], *slabs: Slab) -> Frame:  # fmt: skip
    """Find the pairs of rows that came or went with those of slabs that stayed."""
    found = [
        _with_slab(how, rows, slab, one, replaced, columns) for slab, one in zip(slabs, chosen, strict=True)
    ]
    filled = [part for part in found if len(part)] or [how.like[columns]]
    return filled[0] if len(filled) == 1 else frames_for(how.like).stacked(filled)


def _with_slab(how: Comparison, rows: Loaded, slab: Slab, chosen: Chosen, replaced: Replaced | None,
               columns: list[str]) -> Frame:  # fmt: skip
    rows = near_box(rows, *slab["box"], how.cut, how.spec)
    near = module_of(rows["x"]).flatnonzero(within(rows["x"], slab["reach"]))
    if not len(near):
        return how.like[columns]
    rows = some(rows, near) if len(near) < len(rows["seq"]) else rows
    # which pairs changed does not depend on which of their columns are asked for
    distance = "distance" in columns or (replaced is not None and how.spec.return_distance)
    found, count = hits(rows, slab, how, distance), taken(slab, chosen)
    if count is not None:
        found = found.only(count[found.held])
    if replaced is not None and len(found.own):
        xp = module_of(found.own)
        every = xp.arange(len(found.own))
        there = Loaded(
            x=points_at(slab, found.held), seq=slab["seq"][found.held], ids=slab["ids"][:0],
            example=slab["example"],
        )  # fmt: skip
        both = (rows, found.own, False), (there, every, True)
        found = found.only(~in_other_version(replaced, *both, found.distance, how.spec))
    if not len(found.own):
        return how.like[columns]
    return _as_frame(how, rows, slab, found, columns)


def hits(rows: Loaded, slab: Slab, how: Comparison, distance: bool) -> Hits:
    """Find the pairs of rows with all rows of a slab."""
    xp, n = module_of(rows["x"]), len(rows["seq"])
    served = within(rows["x"], slab["serves"])
    inside = xp.flatnonzero(served)
    parts = [_served(rows if len(inside) == n else some(rows, inside), slab, how, distance)]
    if len(inside) == n:
        return parts[0]
    outside = xp.flatnonzero(~served)
    parts.append(_not_served(some(rows, outside), slab, how, distance))
    own = [at[part.own] for at, part in zip((inside, outside), parts, strict=True)]
    away = [part.distance for part in parts if part.distance is not None]
    held = xp.concatenate([part.held for part in parts])
    return Hits(xp.concatenate(own), held, xp.concatenate(away) if away else None)


def _served(rows: Loaded, slab: Slab, how: Comparison, distance: bool) -> Hits:
    """Find the same by the slab's index."""
    joiner, layout = joiner_for(slab["example"]), slab["layout"]
    xp, n = joiner.xp, len(rows["seq"])
    own = joiner.build(rows["x"], layout)
    found = joiner.pairs(
        own, index_of(slab), layout, same=False, distance=measured(how.spec, xp) if distance else None,
        labels=(own["order"][:n].astype(xp.int64), slab["position"]),
    )  # fmt: skip
    return Hits(found.left, found.right, found.distance)


def _not_served(rows: Loaded, slab: Slab, how: Comparison, distance: bool) -> Hits:
    """Find the same by an index of both."""
    joiner = joiner_for(slab["example"])
    xp, n, m = joiner.xp, len(rows["seq"]), len(slab["seq"])
    x = joiner.points(index_of(slab), slab["layout"])
    held = Loaded(x=x, seq=slab["seq"], ids=slab["ids"], example=slab["example"])
    layout = layout_for([held, rows], how.spec)
    own, other = joiner.build(rows["x"], layout), joiner.build(x, layout)
    found = joiner.pairs(
        own, other, layout, same=False, distance=measured(how.spec, xp) if distance else None,
        labels=(own["order"][:n].astype(xp.int64), slab["position"][other["order"][:m]]),
    )  # fmt: skip
    return Hits(found.left, found.right, found.distance)


def _as_frame(how: Comparison, rows: Loaded, slab: Slab, found: Hits, columns: list[str]) -> Frame:
    """Make rows of the result, in which the smaller number is left."""
    xp, n = module_of(found.own), len(found.own)
    own, held = _named(some_names(rows, found.own)), _named(rows_at(slab, found.held, how.spec, False))
    every = xp.arange(n)
    swap = slab["seq"][found.held] < rows["seq"][found.own]
    left: Side = (held,), every
    right: Side = (own,), every
    if not all_of(swap):
        both = (own, held)
        left, right = (both, xp.where(swap, every + n, every)), (both, xp.where(swap, every, every + n))
    part = pair_columns(left, right, how.spec, columns)
    if "distance" in columns:
        part["distance"] = found.distance
    return put_together([(n, part)], columns, frames_for(slab["example"]))


def some_names(rows: Loaded, places: Array) -> Loaded:
    """Take what rows at some places are called and have, without their coordinates."""
    x = module_of(places).empty((len(places), 0))
    found = Loaded(x=x, seq=rows["seq"][places], ids=rows["ids"].take(places), example=rows["example"])
    if "kept" in rows:
        found["kept"] = rows["kept"].take(places)
    return found


def _named(rows: Loaded) -> Chunk:
    """Make what columns of pairs are taken of: rows in their order."""
    order = module_of(rows["seq"]).arange(len(rows["seq"]))
    found = Chunk(ids=rows["ids"], id_keys=None, example=rows["example"], order=order)
    if "kept" in rows:
        found["kept"] = rows["kept"]
    return found
