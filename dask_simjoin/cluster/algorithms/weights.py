"""Weights of rows: checks, and core rows by the sum of weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.metrics.norms import Array
from dask_simjoin.request.messages import shown
from dask_simjoin.tasks.matches import BlockPair


def checked_weights(weights: Any, rows: int) -> np.ndarray | None:
    """Return weights as an array (rows,), float64; raise an error if a value is not
    allowed.
    """
    if weights is None:
        return None
    if np.ma.is_masked(weights):
        raise OptionError(
            "sample_weight= has masked numbers, which are missing; use one number for "
            "each row."
        )
    try:
        given = np.asarray(weights)
        real = given.dtype.kind in "biufO"
        found = given.astype(np.float64) if real else given
    except (TypeError, ValueError):
        real = False
    if not real:
        raise OptionTypeError(
            f"sample_weight={shown(weights)} has values that are not real numbers; use "
            "real numbers."
        )
    if found.shape != (rows,):
        raise OptionError(
            f"sample_weight= has shape {found.shape}, and there are {rows:,} rows; use "
            "one number for "
            "each row."
        )
    if not np.isfinite(found).all():
        raise OptionError(
            "sample_weight= has NaN or infinite numbers; use finite numbers."
        )
    with np.errstate(over="ignore"):
        fits = bool(np.isfinite(np.abs(found).sum()))
    if not fits:
        raise OptionError(
            "sample_weight= has a sum beyond the largest float64; use smaller numbers."
        )
    if rows and not found.any():
        raise OptionError(
            "sample_weight= has only zeros, so no row has a weight; use other numbers."
        )
    return found


def weighted_cores(block_pair: BlockPair, weights: Array, min_samples: int) -> Array:
    """Return a mask of the core rows of a chunk (n,), if rows have weights. `weights`
    (n,): the weight of each row.

    Weights are rounded to multiples of a power of two, so that sums do not depend on
    the order. The power is the smallest one that keeps all sums from overflowing.
    """
    xp = block_pair.xp
    total = float(np.abs(weights).sum()) or 1.0
    # sums of integers of 62 bits do not overflow int64
    bits = 62 - int(np.frexp(total)[1]) - 1
    whole = xp.asarray(np.rint(np.ldexp(weights, bits)).astype(np.int64))
    sums = whole.copy()

    def visitor(left: Array, right: Array, totals: Array) -> None:
        xp.add.at(sums, left, whole[right])
        xp.add.at(sums, right, whole[left])

    block_pair.joiner.visit(*block_pair.operands, visitor, is_self_join=True)
    enough = np.ldexp(float(min_samples), bits)
    if enough >= 2.0**63:
        return xp.zeros(len(sums), bool)
    return sums >= int(np.ceil(enough))
