"""Rows that were replaced: pairs that they were in before and are in after are no change.

A replaced row keeps its number.  So its pair with a row that stayed, or that was replaced too, may be among
those that came and among those that went.  Each task tells those of its pairs by the rows' other coordinates,
by the definition itself: no task needs the pairs of another.  A pair of which something else is kept now is
one that went and one that came, as one at another distance is.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import module_of
from dask_simjoin.incremental.loaded import Loaded
from dask_simjoin.incremental.schema import arrow_of
from dask_simjoin.metrics.norms import Norm, add
from dask_simjoin.metrics.types import Array, Frame
from dask_simjoin.options.spec import JoinSpec


class Replaced(TypedDict):
    """Hold the coordinates that replaced rows have in the other version, and what is kept of them."""

    seq: Array
    """Their numbers (m,), ascending."""
    x: Array
    """Embedded (m, d)."""
    kept: NotRequired[Frame]


def replaced_of(own: list[Array], other: Loaded) -> Replaced:
    """Take of rows of one side those whose numbers, some arrays, are on the other side too."""
    xp = module_of(other["x"])
    both = xp.flatnonzero(xp.isin(other["seq"], xp.concatenate(own)))
    found = Replaced(seq=other["seq"][both], x=other["x"][both])
    if "kept" in other:
        found["kept"] = other["kept"].take(both)
    return found


def put_replaced(parts: list[Replaced]) -> Replaced | None:
    """Put together what was taken of parts of a side; None: no row was replaced."""
    xp = module_of(parts[0]["x"])
    seq, x = (xp.concatenate([part[name] for part in parts]) for name in ("seq", "x"))
    if not len(seq):
        return None
    order = xp.argsort(seq)
    found = Replaced(seq=seq[order], x=x[order])
    if "kept" in parts[0]:
        kept = [part["kept"] for part in parts]
        found["kept"] = frames_for(kept[0]).stacked(kept).take(order)
    return found


def other_values(replaced: Replaced, rows: Loaded, places: Array, stay: bool) -> tuple[Array, Array, Array]:
    """Return what rows are in the other version: coordinates, whether they are there, if they were replaced.

    `stay`: rows that were not replaced are there as they are; else they came or went.
    """
    xp = module_of(places)
    at, found = _there(replaced, rows["seq"][places])
    x = xp.where(found[:, None], replaced["x"][at], rows["x"][places])
    there = found | stay
    if "kept" in replaced and "kept" in rows:
        there &= ~_kept_otherwise(replaced, rows)[places]
    return x, there, found


def _there(replaced: Replaced, seq: Array) -> tuple[Array, Array]:
    """Find rows among the replaced ones: their places, and whether they are there."""
    xp = module_of(seq)
    at = xp.minimum(xp.searchsorted(replaced["seq"], seq), len(replaced["seq"]) - 1)
    return at, replaced["seq"][at] == seq


def _kept_otherwise(replaced: Replaced, rows: Loaded) -> Array:
    """Tell of which rows (n,) something else is kept in the other version."""
    xp = module_of(rows["seq"])
    at, there = _there(replaced, rows["seq"])
    both, found = xp.flatnonzero(there), xp.zeros(len(there), bool)
    if len(both):
        sides = (rows["kept"].take(both), replaced["kept"].take(at[both]))
        columns = zip(*(arrow_of(side).columns for side in sides), strict=True)
        found[both] = xp.asarray(np.any([_unlike(*pair) for pair in columns], axis=0))
    return found


def _unlike(own: pa.ChunkedArray, other: pa.ChunkedArray) -> np.ndarray:
    """Tell which values (n,) differ; missing ones and NaN are alike."""
    kinds = own.type, other.type
    odd = pa.types.is_nested, pa.types.is_decimal  # decimal numbers of objects have each their own digits
    if any(isinstance(kind, pa.BaseExtensionType) or any(is_odd(kind) for is_odd in odd) for kind in kinds):
        texts = zip(map(repr, own.to_pylist()), map(repr, other.to_pylist()), strict=True)
        return np.array([first != second for first, second in texts], bool)
    if pa.types.is_null(own.type):  # no value tells which kind they are
        own = own.cast(pa.large_string() if pa.types.is_null(other.type) else other.type)
    none = [np.asarray(pc.is_null(side, nan_is_null=True), bool) for side in (own, other)]
    values = np.asarray(pc.fill_null(pc.not_equal(own, other.cast(own.type)), False), bool)
    return np.where(none[0] | none[1], none[0] != none[1], values)


def totals_of(x: Array, y: Array, norm: Norm) -> Array:
    """The totals (m,) of rows (m, d), as every decision sums them up."""
    total = module_of(x).zeros(len(x))
    with np.errstate(over="ignore", under="ignore"):
        for k in range(x.shape[1]):
            total = add(total, abs(x[:, k] - y[:, k]), norm)
    return total


def in_other_version(replaced: Replaced, left: tuple[Loaded, Array, bool], right: tuple[Loaded, Array, bool],
                     distance: Array | None, spec: JoinSpec) -> Array:  # fmt: skip
    """Tell which pairs are pairs of the other version too (m,), bool.

    `left`, `right`: rows, places of them, and whether those that were not replaced stay.  `distance`: if it
    is told of pairs, they must have the same one.
    """
    xp = module_of(left[1])
    (x, there, changed), (y, also, too) = (other_values(replaced, *side) for side in (left, right))
    places = xp.flatnonzero(there & also & (changed | too))
    found = xp.zeros(len(there), bool)
    if not len(places):
        return found
    total = totals_of(x[places], y[places], spec.norm)
    same = total <= spec.threshold
    if distance is not None:
        same &= spec.measure.distance(total, xp) == distance[places]
    found[places] = same
    return found
