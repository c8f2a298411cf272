"""Rows that were replaced: pairs that they were in before and are in after are no change.

A replaced row keeps its number.  So its pair with a row that stayed, or that was replaced too, may be among
those that came and among those that went.  Each task tells those of its pairs by the rows' other coordinates,
by the definition itself: no task needs the pairs of another.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from dask_simjoin.engine.compat import module_of
from dask_simjoin.incremental.loaded import Loaded
from dask_simjoin.metrics.norms import Norm, add
from dask_simjoin.metrics.types import Array
from dask_simjoin.options.spec import JoinSpec


class Replaced(TypedDict):
    """Hold the coordinates that replaced rows have in the other version."""

    seq: Array
    """Their numbers (m,), ascending."""
    x: Array
    """Embedded (m, d)."""


def replaced_of(own: list[Array], other: Loaded) -> Replaced:
    """Take of rows of one side those whose numbers, some arrays, are on the other side too."""
    xp = module_of(other["x"])
    both = xp.flatnonzero(xp.isin(other["seq"], xp.concatenate(own)))
    return Replaced(seq=other["seq"][both], x=other["x"][both])


def put_replaced(parts: list[Replaced]) -> Replaced | None:
    """Put together what was taken of parts of a side; None: no row was replaced."""
    xp = module_of(parts[0]["x"])
    seq, x = (xp.concatenate([part[name] for part in parts]) for name in ("seq", "x"))
    order = xp.argsort(seq)
    return Replaced(seq=seq[order], x=x[order]) if len(seq) else None


def other_values(replaced: Replaced, rows: Loaded, places: Array, stay: bool) -> tuple[Array, Array, Array]:
    """Return what rows are in the other version: their coordinates, whether they are there, if others.

    `stay`: rows that were not replaced are there as they are; else they came or went.
    """
    xp = module_of(places)
    seq = rows["seq"][places]
    at = xp.minimum(xp.searchsorted(replaced["seq"], seq), len(replaced["seq"]) - 1)
    found = replaced["seq"][at] == seq
    x = xp.where(found[:, None], replaced["x"][at], rows["x"][places])
    return x, found | stay, found


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
