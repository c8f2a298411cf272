"""Weigh the rows that DBSCAN counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.metrics.types import Array, Frame
from dask_simjoin.options.frames import example_of
from dask_simjoin.options.messages import shown
from dask_simjoin.options.requests import Dbscan
from dask_simjoin.tasks.fingerprints import kept_rows
from dask_simjoin.tasks.meeting import Meeting

BITS = 62
"""Of sums of weights."""


def checked_weights(weights: Any, rows: int) -> np.ndarray | None:
    """Weights as an array (rows,) float64; refuses what is none."""
    if weights is None:
        return None
    try:
        given = np.asarray(weights)
        real = given.dtype.kind in "biufO"
        found = given.astype(np.float64) if real else given
    except (TypeError, ValueError):
        real = False
    if not real:
        raise OptionTypeError(f"sample_weight={shown(weights)} has other values than real numbers; use such.")
    if found.shape != (rows,):
        raise OptionError(
            f"sample_weight= is of shape {found.shape}, and there are {rows:,} rows; use one number for each."
        )
    if not np.isfinite(found).all():
        raise OptionError("sample_weight= has NaN or infinite numbers; use finite ones.")
    with np.errstate(over="ignore"):
        fits = bool(np.isfinite(np.abs(found).sum()))
    if not fits:
        raise OptionError("sample_weight= has a sum beyond the largest float64; use smaller numbers.")
    if rows and not found.any():
        raise OptionError("sample_weight= is zero throughout, so that no row counts; use some other numbers.")
    return found


def whole_weights(weights: np.ndarray) -> tuple[np.ndarray, int]:
    """Weights as whole numbers (n,) int64 of a unit of 2**-bits, and that number of bits.

    The unit is the smallest for which no sum of them overflows.
    """
    total = float(np.abs(weights).sum()) or 1.0
    bits = BITS - int(np.frexp(total)[1]) - 1
    return np.rint(np.ldexp(weights, bits)).astype(np.int64), bits


def weighted_cores(meeting: Meeting, weights: Array, min_samples: int) -> Array:
    """Tell which rows of a chunk that meets itself are core rows (n,) bool; `weights`: of its rows."""
    xp = meeting.xp
    whole, bits = whole_weights(weights)
    whole = xp.asarray(whole)
    sums = whole.copy()

    def visitor(left: Array, right: Array, totals: Array) -> None:
        xp.add.at(sums, left, whole[right])
        xp.add.at(sums, right, whole[left])

    meeting.joiner.visit(*meeting.operands, visitor, same=True)
    enough = np.ldexp(float(min_samples), bits)
    if enough >= 2.0**63:
        return xp.zeros(len(sums), bool)
    return sums >= int(np.ceil(enough))


def kept_points(frame: Frame, asked: Dbscan) -> Frame:
    """The coordinates of the rows of a frame that are clustered."""
    spec = asked.spec(example_of(frame))
    kept = kept_rows(frame, spec)
    return (frame if kept is None else frame[kept])[list(spec.on)]


def weights_of_kept(weights: np.ndarray, frame: Frame, asked: Dbscan) -> np.ndarray:
    """The weights of those rows."""
    kept = kept_rows(frame, asked.spec(example_of(frame)))
    if kept is None:
        return weights
    return weights[frames_for(frame).xp.asarray(kept)]
