"""When two sets match: every threshold as integers, so that no pair is lost or won by rounding.

With sizes a and b, an overlap o and a threshold p/q, each similarity reaches the threshold where

- Jaccard, o / (a+b-o) >= p/q:   o / (a+b) >= p / (p+q)
- Dice, 2o / (a+b) >= p/q:       o / (a+b) >= p / (2q)
- cosine, o / sqrt(ab) >= p/q:   o**2 / (ab) >= p**2 / q**2
- overlap:                       o >= p/q

so that `Rule.ratio`, on the right, is compared with a fraction of two whole numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dask_simjoin.errors import OptionError
from dask_simjoin.sets.kinds import NEVER, NONE, PRODUCT, SUM

SIMILARITIES = ("jaccard", "dice", "cosine", "overlap")
COMPARISONS = (">=", ">", "=")

KINDS = {"jaccard": SUM, "dice": SUM, "cosine": PRODUCT, "overlap": NONE}


class Limits(NamedTuple):
    """The predicate for sets up to some sizes, in numbers that kernels can multiply as int64.

    With f the overlap, or its square, and g the sum or product of sizes, or 1, pairs match where
    f * denominator >= numerator * g; with `above` they must be more.  With `exact` they must not be more
    (`more_above`), or not as much.
    """

    kind: int
    numerator: int
    denominator: int
    above: bool
    exact: bool
    more_above: bool


@dataclass(frozen=True)
class Rule:
    """A similarity and what it is compared with.

    Parameters
    ----------
    similarity : {"jaccard", "dice", "cosine", "overlap"}
        "overlap": the number of common tokens.
    threshold : Fraction
        Above 0 and up to 1; of overlap a whole number above 0.
    comparison : {">=", ">", "="}
        Of the similarity with the threshold.
    """

    similarity: str
    threshold: Fraction
    comparison: str = ">="

    @property
    def kind(self) -> int:
        """What overlaps are compared with."""
        return KINDS[self.similarity]

    @property
    def ratio(self) -> Fraction:
        """What o / (a+b), o**2 / (ab) or o is compared with."""
        p, q = self.threshold.numerator, self.threshold.denominator
        if self.similarity == "jaccard":
            return Fraction(p, p + q)
        if self.similarity == "dice":
            return Fraction(p, 2 * q)
        return self.threshold**2 if self.similarity == "cosine" else self.threshold

    def need(self, a: int, b: int) -> int:
        """Return the least overlap of a pair of sets that may match; with "=" it must match just so."""
        return self._least(a, b, above=self.comparison == ">")

    def beyond(self, a: int, b: int) -> int:
        """Return the least overlap that is too much: `NEVER` but for "="."""
        return self._least(a, b, above=True) if self.comparison == "=" else NEVER

    def _least(self, a: int, b: int, above: bool) -> int:
        n, d = self.ratio.numerator, self.ratio.denominator
        if self.kind == PRODUCT:
            whole, rest = divmod(n * a * b, d)
            root = math.isqrt(whole)
            return root if not above and not rest and root**2 == whole else root + 1
        top = n * (a + b) if self.kind == SUM else n
        return top // d + 1 if above else -(-top // d)

    def smallest(self, a: int) -> int:
        """Return the least size of a set that a set of this size can match: it may be none that large."""
        p, q, above = self.threshold.numerator, self.threshold.denominator, self.comparison == ">"
        top, bottom = {
            "jaccard": (p * a, q),
            "dice": (p * a, 2 * q - p),
            "cosine": (p * p * a, q * q),
            "overlap": (p, q),
        }[self.similarity]
        return top // bottom + 1 if above else -(-top // bottom)

    def largest(self, a: int) -> int | None:
        """Return the largest size of a set that a set of this size can match; None: any."""
        p, q, above = self.threshold.numerator, self.threshold.denominator, self.comparison == ">"
        if self.similarity == "overlap":
            return None
        top, bottom = {
            "jaccard": (q * a, p),
            "dice": ((2 * q - p) * a, p),
            "cosine": (q * q * a, p * p),
        }[self.similarity]
        return -(-top // bottom) - 1 if above else top // bottom

    def need_table(self, most: int) -> np.ndarray:
        """Return `need` (most + 1,), int32, of each sum of sizes up to `most`: for Jaccard and Dice."""
        if self.kind != SUM:
            raise OptionError(
                f"need_table() is not allowed for {self.similarity!r}; use 'jaccard' or 'dice', or need()."
            )
        return np.array([self.need(total, 0) for total in range(most + 1)], np.int32)

    def limits(self, left: int, right: int) -> Limits:
        """Return the predicate for sets up to these sizes, in numbers whose products fit int64.

        Fractions that overlaps make have denominators up to `left * right`, or the sum: a threshold that is
        none of them can be replaced by the next one above.  Raises `OptionError` where that does not help.
        """
        most = {SUM: left + right, PRODUCT: left * right, NONE: 1}[self.kind]
        ratio, above, exact = self.ratio, self.comparison == ">", self.comparison == "="
        if self.kind == NONE:
            ratio = min(ratio, Fraction(max(left, right) + 1))  # more than any two have in common
        more_above = exact
        if ratio.denominator > most and not _fits(ratio, most):
            ratio, above, more_above = next_fraction(ratio, most, above), False, False
        if not _fits(ratio, most):
            raise OptionError(
                f"{self.similarity}: threshold={self.threshold} is not allowed for sets of {left:,} and "
                f"{right:,} tokens, which int64 cannot compare; use a threshold of fewer digits, or leave "
                "out large sets."
            )
        return Limits(self.kind, ratio.numerator, ratio.denominator, above, exact, more_above)

    def score(self, a: np.ndarray, b: np.ndarray, overlap: np.ndarray) -> np.ndarray:
        """Return the similarities (pairs,), float64, of pairs of sizes and overlaps: each rounded once.

        Of cosine the root is rounded before the quotient is.
        """
        if self.similarity == "jaccard":
            return overlap / (a + b - overlap.astype(np.int64))
        if self.similarity == "dice":
            return 2.0 * overlap / (a + b)
        if self.similarity == "cosine":
            return overlap / np.sqrt(a.astype(np.float64) * b)
        return overlap.astype(np.float64)


def _fits(ratio: Fraction, most: int) -> bool:
    """Tell whether int64 holds both sides of a comparison, also for the next overlap."""
    return 4 * max(ratio.numerator, ratio.denominator) * most < 1 << 63


def next_fraction(ratio: Fraction, most: int, above: bool) -> Fraction:
    """Return the least fraction of a denominator up to `most` that is at least `ratio`, or above it.

    It is found by the Stern-Brocot tree, whose steps in one direction are taken at once.
    """
    if not above and ratio.denominator <= most:
        return ratio
    whole = ratio.numerator // ratio.denominator
    low, high = (whole, 1), (whole + 1, 1)  # low <= ratio < high, neighbours of every order
    n, d = ratio.numerator, ratio.denominator
    while low[1] + high[1] <= most:
        # raise low by as many steps as stay at or below the ratio
        gain, gap = high[0] * d - n * high[1], n * low[1] - low[0] * d
        steps = min(gap // gain, (most - low[1]) // high[1])
        low = low[0] + steps * high[0], low[1] + steps * high[1]
        if low[1] + high[1] > most:
            break
        # lower high by as many steps as stay above the ratio
        gain, gap = high[0] * d - n * high[1], n * low[1] - low[0] * d
        steps = (most - high[1]) // low[1]
        if gap:
            steps = min(steps, -(-gain // gap) - 1)
        high = high[0] + steps * low[0], high[1] + steps * low[1]
    return Fraction(*high)
