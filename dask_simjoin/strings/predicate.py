"""The predicate of an edit join: the largest distance of two strings, in whole numbers.

With a similarity of p/q, strings of a and b code points match if 1 - distance / max(a, b) >= p/q.  So the
distance is at most (q - p) * max(a, b) // q.  Two empty strings have the distance 0, and match.

A size is a length plus the tail, the codes that name the string's group: see `dask_simjoin.strings.codes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dask_simjoin.sets.kinds import NEVER


@dataclass(frozen=True)
class EditRule:
    """The largest number of edits between two strings that match.

    Parameters
    ----------
    k : int or None
        The largest distance.
    similarity : Fraction or None
        The smallest similarity, above 0 and up to 1; given instead of `k`.
    transpositions : bool
        Whether a transposition of adjacent code points is one edit.
    tail : int
        Number of codes after each string.
    """

    k: int | None
    similarity: Fraction | None = None
    transpositions: bool = False
    tail: int = 1

    def limit(self, length: int) -> int:
        """Return the largest distance of a pair whose longer string has this length."""
        if self.similarity is None:
            assert self.k is not None
            return min(self.k, length)  # no distance is larger
        p, q = self.similarity.numerator, self.similarity.denominator
        return (q - p) * length // q

    def longest(self, length: int) -> int | None:
        """Return the largest length that a string of this length may match."""
        if self.similarity is None:
            assert self.k is not None
            return length + self.k
        return length * self.similarity.denominator // self.similarity.numerator

    def limits(self, longest: int) -> np.ndarray:
        """Return `limit` for each length (longest + 1,), int64."""
        if self.similarity is None:
            assert self.k is not None
            return np.minimum(np.arange(longest + 1), min(self.k, longest))
        p, q = self.similarity.numerator, self.similarity.denominator
        if q * (longest + 1) >= 1 << 63:
            return np.array([self.limit(length) for length in range(longest + 1)], np.int64)
        found: np.ndarray = (q - p) * np.arange(longest + 1) // q
        return found

    def smallest(self, size: int) -> int:
        """Return the smallest size of a string that may match one of this size."""
        length = max(size - self.tail, 0)
        return max(length - self.limit(length), 0) + self.tail

    def largest(self, size: int) -> int | None:
        """Return the largest size of a string that may match one of this size."""
        found = self.longest(max(size - self.tail, 0))
        return None if found is None else found + self.tail

    def need(self, a: int, b: int) -> int:
        """Return 0: unlike sets, matching strings need no overlap."""
        return 0

    def beyond(self, a: int, b: int) -> int:
        """Return a number that no overlap reaches: no string is too near."""
        return NEVER

    def score(self, a: np.ndarray, b: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Return the distances of pairs (pairs,), float64."""
        return found.astype(np.float64)

    def score_of_equals(self, sizes: np.ndarray) -> np.ndarray:
        """Return the distances of equal strings (n,), float64."""
        return np.zeros(len(sizes))
