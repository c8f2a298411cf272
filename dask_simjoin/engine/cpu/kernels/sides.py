"""What a kernel is told of a side of a join of tiles: addresses and numbers.

It is a `Filtered`, or a `Filtered` and a `Quantized` or `QuantizedLongs`, or a `Rounded`, or a `Decided`.
With arrays in them, every call in the innermost loop would count references to each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Filtered(NamedTuple):
    """A side's float32 vectors `z` (tiles, dims, 64), the filter's terms, and float64 `y` (n, width).

    Terms are float32: `limit` (n,) and `sure` (n,) of queries, `start` (tiles, 64) and `sure` (tiles,) of
    points.
    """

    dims: int
    z: int
    term: int
    sure: int
    y: int
    width: int


class Quantized(NamedTuple):
    """A side's arrays of the 8-bit filter, and what all of them are compared with.

    `queries` (n, steps, 4) int8 and `take` (n, 2) int16, `tiles` (tiles, steps, 64, 4) uint8 and `first`
    (tiles, 64, 2) int16: see `filters.int8`; `marked` (tiles,) uint64: points that pass it in any case.
    """

    queries: int
    take: int
    tiles: int
    first: int
    marked: int
    steps: int
    least: np.int32


class QuantizedLongs(NamedTuple):
    """The same, but that `take` (n, 1) and `first` (tiles, 64, 1) are int32, and sums do not wrap."""

    queries: int
    take: int
    tiles: int
    first: int
    marked: int
    steps: int
    least: np.int32


class Decided(NamedTuple):
    """A side's float64 vectors `z` (tiles, dims, 64), and `y` (n, width).

    `sure`: mask of all where those are all dimensions, so that what they find is decided, and else of none.
    """

    z: int
    dims: int
    threshold: float
    y: int
    width: int
    sure: np.uint64


class Rounded(NamedTuple):
    """A side's float32 vectors `z` (tiles, dims, 64), what totals are compared with, and `y` (n, dims)."""

    z: int
    dims: int
    reach: np.float32
    sure: np.float32
    y: int
