"""Set-similarity joins by definition, in fractions of whole numbers, and blocks of
sets.
"""

from __future__ import annotations

import itertools

import numpy as np


def similar(similarity, threshold, comparison, a, b, overlap):
    """Return whether two sets of sizes a and b match, by the definition of their
    similarity.
    """
    # both sides are positive, so they may be squared, which avoids the root of a cosine
    power = 1 + (similarity == "cosine")
    top, bottom = {
        "cosine": (overlap**2, a * b),
        "jaccard": (overlap, a + b - overlap),
        "dice": (2 * overlap, a + b),
        "overlap": (overlap, 1),
    }[similarity]
    # multiply both fractions by both denominators, which keeps whole numbers
    value, bound = (
        top * threshold.denominator**power,
        threshold.numerator**power * bottom,
    )
    return {">=": value >= bound, ">": value > bound, "=": value == bound}[comparison]


def matching(left, right, rule):
    """Return pairs of positions -> overlap of two lists of sets; without `right`, i < j
    of one list.
    """
    asked = rule.similarity, rule.threshold, rule.comparison
    left, right = (
        None if side is None else list(enumerate(map(set, side)))
        for side in (left, right)
    )
    every = (
        itertools.combinations(left, 2)
        if right is None
        else itertools.product(left, right)
    )
    overlaps = ((i, j, len(a), len(b), len(a & b)) for (i, a), (j, b) in every)
    return {
        (i, j): both
        for i, j, one, other, both in overlaps
        if similar(*asked, one, other, both)
    }


def block_of(sets, weights=None):
    """A block of the distinct ones of some sets of whole numbers, and those sets in its
    order.

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
        "weights": np.array(
            [counts[key] for key in order] if weights is None else weights, np.int64
        ),
    }
    return block, order
