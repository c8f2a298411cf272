"""The predicate of a join of sets. Thresholds are compared by integers, so rounding
changes no pair.

With sizes a and b, an overlap o and a threshold p/q, each similarity reaches the
threshold if

- Jaccard, o / (a+b-o) >= p/q:   o / (a+b) >= p / (p+q)
- Dice, 2o / (a+b) >= p/q:       o / (a+b) >= p / (2q)
- cosine, o / sqrt(ab) >= p/q:   o**2 / (ab) >= p**2 / q**2
- overlap:                       o >= p/q

`Rule.ratio` is the right side of these comparisons. The left side is a fraction of two
integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dask_simjoin.errors import OptionError

SUM, PRODUCT, NONE = range(3)
"""Kinds of predicates on the overlap o of two sets with sizes a and b.

`SUM` compares o with a multiple of a+b, `PRODUCT` compares o**2 with a multiple of ab,
and `NONE` compares o with a constant.
"""

NEVER = int(np.iinfo(np.int32).max)
"""A number of tokens that is larger than any overlap of two sets."""


SIMILARITIES = ("jaccard", "dice", "cosine", "overlap")
COMPARISONS = (">=", ">", "=")

KINDS = {"jaccard": SUM, "dice": SUM, "cosine": PRODUCT, "overlap": NONE}


class Limits(NamedTuple):
    """The predicate for sets up to certain sizes, by numbers whose products fit in
    int64.

    Let f be the overlap or its square. Let g be the sum of the sizes, their product, or
    1. A pair matches if f * denominator >= numerator * g; with `above`, it must be >.
    With `exact`, a pair must also not exceed the threshold: f * denominator < numerator
    * g; with `more_above`, it may be <=.
    """

    kind: int
    numerator: int
    denominator: int
    above: bool
    exact: bool
    more_above: bool


@dataclass(frozen=True)
class Rule:
    """A similarity of sets, and how it is compared with a threshold."""

    similarity: str  # one of `SIMILARITIES`; "overlap" is the number of common tokens
    threshold: Fraction  # above 0 and up to 1; for overlap a whole number above 0
    comparison: str = ">="  # one of `COMPARISONS`

    @property
    def kind(self) -> int:
        return KINDS[self.similarity]

    @property
    def ratio(self) -> Fraction:
        """The right side of the comparison of integers. The left side is o / (a+b),
        o**2 / (ab) or o.
        """
        p, q = self.threshold.numerator, self.threshold.denominator
        if self.similarity == "jaccard":
            return Fraction(p, p + q)
        if self.similarity == "dice":
            return Fraction(p, 2 * q)
        return self.threshold**2 if self.similarity == "cosine" else self.threshold

    def need(self, a: int, b: int) -> int:
        """Return the smallest overlap of two matching sets with sizes `a` and `b`. See
        also `beyond`.
        """
        return self._smallest_overlap(a, b, above=self.comparison == ">")

    def beyond(self, a: int, b: int) -> int:
        """With the comparison "=", return the smallest overlap that is too large; else
        return `NEVER`.
        """
        return (
            self._smallest_overlap(a, b, above=True)
            if self.comparison == "="
            else NEVER
        )

    def _smallest_overlap(self, a: int, b: int, above: bool) -> int:
        n, d = self.ratio.numerator, self.ratio.denominator
        if self.kind == PRODUCT:
            whole, rest = divmod(n * a * b, d)
            root = math.isqrt(whole)
            return root if not above and not rest and root**2 == whole else root + 1
        top = n * (a + b) if self.kind == SUM else n
        return top // d + 1 if above else -(-top // d)

    @property
    def _size_ratio(self) -> tuple[int, int]:
        """The smallest ratio that the sizes of two matching sets can have, as a
        fraction. It is undefined for "overlap".
        """
        p, q = self.threshold.numerator, self.threshold.denominator
        return {"jaccard": (p, q), "dice": (p, 2 * q - p), "cosine": (p * p, q * q)}[
            self.similarity
        ]

    def smallest(self, a: int) -> int:
        """Return the smallest size that a set may have if it matches a set of size `a`."""
        above = self.comparison == ">"
        if self.similarity == "overlap":
            return (
                math.floor(self.threshold) + 1 if above else math.ceil(self.threshold)
            )
        p, q = self._size_ratio
        return p * a // q + 1 if above else -(-p * a // q)

    def largest(self, a: int) -> int | None:
        """Return the largest size that a set may have if it matches a set of size `a`;
        None if there is no limit.
        """
        if self.similarity == "overlap":
            return None
        bottom, q = self._size_ratio
        top, above = q * a, self.comparison == ">"
        return -(-top // bottom) - 1 if above else top // bottom

    def limits(self, left: int, right: int) -> Limits:
        """Return the predicate for sets up to the sizes `left` and `right`, by numbers
        whose products fit in int64.

        The similarity of such sets is a fraction with a denominator of at most `left *
        right`, or at most `left + right`. So a threshold with a larger denominator can
        be replaced by the next larger fraction of this kind. If even this fraction does
        not fit, an `OptionError` is raised.
        """
        max_denominator = {SUM: left + right, PRODUCT: left * right, NONE: 1}[self.kind]
        ratio, above, exact = self.ratio, self.comparison == ">", self.comparison == "="
        if self.kind == NONE:
            # this is larger than any overlap, so no pair matches
            ratio = min(ratio, Fraction(max(left, right) + 1))
        more_above = exact
        if ratio.denominator > max_denominator and not _fits(ratio, max_denominator):
            ratio, above, more_above = (
                next_fraction(ratio, max_denominator, above),
                False,
                False,
            )
        if not _fits(ratio, max_denominator):
            raise OptionError(
                f"{self.similarity}: threshold={self.threshold} cannot be compared "
                "exactly for sets of "
                f"{left:,} and {right:,} tokens, because int64 would overflow. Round "
                "the threshold to fewer "
                "digits, or leave out large sets."
            )
        return Limits(
            self.kind, ratio.numerator, ratio.denominator, above, exact, more_above
        )

    def score(self, a: np.ndarray, b: np.ndarray, overlap: np.ndarray) -> np.ndarray:
        """Return the similarity of each pair (pairs,), float64, computed from the sizes
        and the overlap.

        The result is rounded only once; for cosine twice, because the root is rounded,
        too.
        """
        if self.similarity == "jaccard":
            return overlap / (a + b - overlap.astype(np.int64))
        if self.similarity == "dice":
            return 2.0 * overlap / (a + b)
        if self.similarity == "cosine":
            return overlap / np.sqrt(a.astype(np.float64) * b)
        return overlap.astype(np.float64)

    def rank(self, a: np.ndarray, b: np.ndarray, score: np.ndarray) -> np.ndarray:
        """Return a number for each pair (pairs,), float64, which is smaller for more
        similar sets. `score`: the similarity.
        """
        return -score

    def score_of_equals(self, sizes: np.ndarray) -> np.ndarray:
        return self.score(sizes, sizes, sizes)


def _fits(ratio: Fraction, max_factor: int) -> bool:
    """Return whether int64 can hold both sides of the comparison, even if the overlap
    is larger by 1.
    """
    return 4 * max(ratio.numerator, ratio.denominator) * max_factor < 1 << 63


def next_fraction(ratio: Fraction, max_denominator: int, above: bool) -> Fraction:
    """Return the smallest fraction >= `ratio` whose denominator is at most
    `max_denominator`. With `above`, it must be > `ratio`.

    The search goes down the Stern-Brocot tree. All steps in the same direction are made
    at once.
    """
    if not above and ratio.denominator <= max_denominator:
        return ratio
    whole = ratio.numerator // ratio.denominator
    # low and high are neighbors in the tree, and low <= ratio < high
    low, high = (whole, 1), (whole + 1, 1)
    n, d = ratio.numerator, ratio.denominator
    while low[1] + high[1] <= max_denominator:
        # raise `low` by as many steps as it stays at or below the ratio
        gain, gap = high[0] * d - n * high[1], n * low[1] - low[0] * d
        steps = min(gap // gain, (max_denominator - low[1]) // high[1])
        low = low[0] + steps * high[0], low[1] + steps * high[1]
        if low[1] + high[1] > max_denominator:
            break
        # lower `high` by as many steps as it stays above the ratio
        gain, gap = high[0] * d - n * high[1], n * low[1] - low[0] * d
        steps = (max_denominator - high[1]) // low[1]
        if gap:
            steps = min(steps, -(-gain // gap) - 1)
        high = high[0] + steps * low[0], high[1] + steps * low[1]
    return Fraction(*high)
