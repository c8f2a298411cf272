"""Kernels that convert totals to distances, and do the same as functions of NumPy in
`dask_simjoin.metrics`, in less time.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import inline_function, kernel
from dask_simjoin.metrics.norms import NORMAL, Array
from dask_simjoin.metrics.sphere import ARCSINE, SHORT_ARC, SPLIT, TINY_CHORD

A, B, C, D, E, F, G = ARCSINE
NEXT = 2.0**-53 * (1 + 2.0**-52)
"""If a float is not subnormal, adding this multiple of it gives the next float."""

SERIES, OTHER = 2.0**-52, 2.0**-90
"""Bounds of relative errors: of the series, as a multiple of w, and of all others."""


@kernel
def fill_roots(totals: Array, found: Array) -> bool:
    """Fill `found` with the roots of totals. Return whether all of them are exact."""
    exact = True
    for i in range(totals.size):
        t = totals[i]
        root = np.sqrt(t)
        found[i] = root + (root * NEXT if root * root < t else 0.0)
        exact = exact and (t >= NORMAL or t == 0.0)
    return exact


def roots(totals: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return the roots of totals (n,), and whether all of them are exact: see
    `inverse.near_roots`.
    """
    found = np.empty(len(totals))
    return found, fill_roots(totals, found)


@inline_function
def product_error(a: float, b: float, product: float) -> float:
    """Return the exact product minus the rounded one: see `sphere.two_product`."""
    a_high = a * SPLIT
    a_high = a_high - (a_high - a)
    a_low = a - a_high
    b_high = b * SPLIT
    b_high = b_high - (b_high - b)
    b_low = b - b_high
    return (
        (a_high * b_high - product) + a_high * b_low + a_low * b_high
    ) + a_low * b_low


@kernel
def fill_short_arcs(squared: Array, radius: float, away: Array, open_: Array) -> None:
    """Fill `away` with distances, and `open_` with 1 for those that are not exact."""
    for i in range(squared.size):
        t = squared[i]
        root = np.sqrt(t)
        high = root * root
        half = t * NEXT
        half = (t - (t - half)) * 0.5
        rest = (((t - high) - product_error(root, root, high)) - half) / (2.0 * root)
        w = t * 0.25
        series = (((((A * w + B) * w + C) * w + D) * w + E) * w + F) * w + G
        low = root * (w * series) + rest * (1.0 + w * (0.5 + 0.375 * w))
        high = root * radius
        low = product_error(root, radius, high) + radius * low
        far = high + low
        second = far - high
        rest = (high - (far - second)) + (low - second)
        sure = abs(rest) > far * (w * SERIES + OTHER)
        sure = sure and w < SHORT_ARC and t > TINY_CHORD
        far = far + (far * NEXT if rest > 0.0 else 0.0)
        away[i] = far if t > 0.0 else 0.0
        open_[i] = 0 if sure or t == 0.0 else 1


def short_arcs(squared: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Return distances, and a mask of those that are not exact: see
    `sphere.short_arcs`.
    """
    away, rest = np.empty(len(squared)), np.empty(len(squared), np.uint8)
    fill_short_arcs(squared, radius, away, rest)
    return away, rest.view(np.bool_)
