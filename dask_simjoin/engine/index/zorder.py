"""The layout of joins by lists in Z-order: which bits of coordinates make a key, and how lists are shifted.

See `dask_simjoin.engine.zorder`.  A list is the order of rows by their keys.  A key has the cell of each
coordinate, ``floor(((x - low) / extent + shift) * 2**(bits - 1))``, its bits interleaved from the highest on.
All these operations are monotone, as rounded, and so is cutting a key after its first words: a point whose
coordinates all are at least another's has at least its key (LSS, lemma 4.1).  So all points of a box have
keys from that of its lower to that of its upper corner (lemma 4.2); what lies outside is moved to the edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.engine.zorder import ZOrder
from dask_simjoin.metrics.norms import Norm, reach

WORD = 64
"""Bits of a word of a key."""

MAX_BITS = 20
"""Of a coordinate."""


@dataclass(frozen=True)
class ZOrderLayout:
    """How the chunks of one join are sorted in Z-order: alike, so that any two can meet.

    Attributes
    ----------
    threshold : float
        Of the float64 decision.
    options : ZOrder
    dims : int
        Dimensions of points.
    columns : tuple of int
        The dimensions of keys, of largest variance first: all, or as many as there are bits.
    bits : int
        Of each of them in a key, one of which the shift needs.
    low : tuple of float
        Where each of them begins, times `scale`.
    extent : float
        Of the widest one, times `scale`.
    scale : float
        Power of two that keeps differences of coordinates finite.
    shifts : tuple of float
        Of the lists, as parts of the extent.
    norm : int or float
        Of the totals that the decision compares.
    bounds : Bounds or None
        Of the float32 filter, where there is one: on GPUs.
    """

    threshold: float
    options: ZOrder
    dims: int
    columns: tuple[int, ...]
    bits: int
    low: tuple[float, ...]
    extent: float
    scale: float
    shifts: tuple[float, ...]
    norm: Norm = 2
    bounds: Bounds | None = None

    @property
    def method(self) -> str:
        """The method's name."""
        return "zorder"

    @property
    def grain(self) -> int:
        """Points at whose multiples queries can be cut."""
        return 1

    @property
    def corner(self) -> float:
        """How far from a point, at least, the corners of its box are in each dimension.

        A pair's difference as rounded is at most the norm's reach, so it is at most this, and the sum of this
        and a coordinate, as rounded, is at least the other one: rounding is monotone.
        """
        return math.nextafter(reach(self.norm, self.threshold), math.inf)

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""
        asked, number = self.options, len(self.shifts)
        words = [f"{number} list{'s' * (number != 1)} in Z-order, {asked.shifts} shifts"]
        words.append(f"{self.bits} bit{'s' * (self.bits != 1)} of {len(self.columns)} of {self.dims} columns")
        words.append(f"walk {asked.walk}")
        return "; ".join(words + ["float32"] * (self.bounds is not None))


def lists_of(options: ZOrder, dims: int) -> int:
    """Return the number of lists; "auto" is decided where there is a sample, and else is "log".

    Even shifts of an odd number of lists never are those of larger cells (LSS, lemma 4.4).
    """
    if isinstance(options.lists, int):
        return options.lists
    number = dims + 1 if options.lists == "d+1" else dims.bit_length()
    return number + 1 - number % 2


def shifts_of(options: ZOrder, dims: int) -> tuple[float, ...]:
    """Return by which part of the extent each list is shifted."""
    number = lists_of(options, dims)
    if options.shifts == "even":
        return tuple(j / number for j in range(number))
    return tuple(np.random.default_rng(options.seed).uniform(size=number).tolist())


def make_zorder_layout(options: ZOrder, lower: np.ndarray, upper: np.ndarray, variance: np.ndarray,
                       threshold: float, norm: Norm = 2) -> ZOrderLayout:  # fmt: skip
    """Choose keys for points within the box [lower, upper], of this variance (d,)."""
    dims = len(lower)
    order = sorted(range(dims), key=lambda k: (-float(variance[k]), k))[: WORD * options.words]
    bits = min(MAX_BITS, max(1, WORD * options.words // dims))
    span = max(float(u) * 0.25 - float(v) * 0.25 for u, v in zip(upper, lower, strict=True))
    scale = 1.0 if span < 2.0**1020 else 0.25
    extent = span * (4 * scale) or 1.0  # four times the span alone may be infinite
    low = tuple(float(lower[k]) * scale for k in order)
    shifts = shifts_of(options, dims)
    return ZOrderLayout(threshold, options, dims, tuple(order), bits, low, extent, scale, shifts, norm)
