"""Turns pairs of places in two indexes into pairs of positions and distances."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, error_model="numpy")
def measure(q_y: Any, q_order: Any, d_y: Any, d_order: Any, same: bool, left: Any, right: Any,
            distance: Any) -> None:  # fmt: skip
    """Fill `distance`; replace places in `left` and `right` by positions, in place.

    `q_y`, `d_y` (n, d): coordinates in the indexes' order; `q_order`, `d_order`: positions.
    With `same` the smaller position comes first.
    """
    dims = q_y.shape[1]
    for n in range(left.size):
        i, j = left[n], right[n]
        total = 0.0
        for k in range(dims):
            t = q_y[i, k] - d_y[j, k]
            total += t * t
        distance[n] = np.sqrt(total)
        a, b = q_order[i], d_order[j]
        if same and b < a:
            a, b = b, a
        left[n], right[n] = a, b
