"""Set-similarity joins by definition, in fractions of whole numbers, and blocks of sets."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np


def similar(similarity, threshold, comparison, a, b, overlap):
    """Whether two sets of sizes a and b match, by the definition of their similarity."""
    if similarity == "cosine":  # both sides squared, which are positive
        value, bound = Fraction(overlap**2, a * b), threshold**2
    else:
        value = {
            "jaccard": lambda: Fraction(overlap, a + b - overlap),
            "dice": lambda: Fraction(2 * overlap, a + b),
            "overlap": lambda: Fraction(overlap),
        }[similarity]()
        bound = threshold
    return {">=": value >= bound, ">": value > bound, "=": value == bound}[comparison]


def matching(left, right, rule):
    """Pairs of positions -> overlap of two lists of sets; `right` None: i < j of one list."""
    asked = rule.similarity, rule.threshold, rule.comparison
    if right is None:
        every = itertools.combinations(range(len(left)), 2)
        right = left
    else:
        every = itertools.product(range(len(left)), range(len(right)))
    found = {}
    for i, j in every:
        a, b = set(left[i]), set(right[j])
        if similar(*asked, len(a), len(b), len(a & b)):
            found[i, j] = len(a & b)
    return found


def block_of(sets, weights=None):
    """A block of the distinct ones of some sets of whole numbers, and those sets in its order.

    Without weights each has as many rows as there are sets equal to it.
    """
    counts = {}
    for tokens in sets:
        key = tuple(sorted(set(tokens)))
        counts[key] = counts.get(key, 0) + 1
    order = sorted(counts, key=lambda key: (len(key), key))
    block = {
        "offsets": np.cumsum([0, *map(len, order)]).astype(np.int64),
        "tokens": np.array([t for key in order for t in key], np.int32),
        "universe": 1 + max((t for key in order for t in key), default=-1),
        "weights": np.array([counts[key] for key in order] if weights is None else weights, np.int64),
    }
    return block, order
