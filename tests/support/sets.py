"""Rows of sets for tests, as columns of several kinds, and the expected results of
joins.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st

from tests.support.sets_oracle import similar

SIMILARITIES = ("jaccard", "dice", "cosine", "overlap")
COMPARISONS = (">=", ">", "=")
THRESHOLDS = (0.55, 0.65, 0.8, 0.9, 1, 0.5, 0.25)

WORDS = ["", " ", "a", "A", "é", "e\u0301", "a\x00", "😀", "t8", "t9"]
"""Tokens by their numbers; the empty token and white space count like all others."""

KINDS = ("lists", "strings", "arrow", "arrow strings", "text", "custom")
"""Kinds of columns of sets."""


def commas(text):
    """Split a text into tokens that end in commas, empty ones among them."""
    return text.split(",")[:-1]


def rows_of_sets(most=24, tokens=9, size=7):
    """Draw rows: lists of few tokens, which repeat, some empty (), some missing (None)."""
    tokens = st.lists(st.integers(0, tokens), max_size=size)
    return st.lists(
        st.one_of(tokens, tokens, tokens, st.just([]), st.none()), max_size=most
    )


def as_columns(rows, kind):
    """Return the rows as the column "sets" of a frame, and the options for reading it."""
    how = {}
    if kind == "lists":
        column = pd.Series(
            [None if row is None else list(row) for row in rows], dtype=object
        )
    elif kind == "strings":
        column = pd.Series(
            [None if row is None else [WORDS[t] for t in row] for row in rows],
            dtype=object,
        )
    elif kind == "arrow strings":
        words = [None if row is None else [WORDS[t] for t in row] for row in rows]
        column = pd.Series(pd.array(words, dtype=pd.ArrowDtype(pa.list_(pa.string()))))
    elif kind == "custom":
        how = {"tokenizer": commas}
        texts = [
            None if row is None else "".join(f"{WORDS[t]}," for t in row)
            for row in rows
        ]
        column = pd.Series(texts, dtype="str")
    elif kind == "arrow":
        dtype = pd.ArrowDtype(pa.list_(pa.int32()))
        column = pd.Series(pd.array(rows, dtype=dtype))
    else:
        how = {"tokenizer": "whitespace"}
        texts = [
            None if row is None else " ".join(f"t{t}" for t in row) for row in rows
        ]
        column = pd.Series(texts, dtype="str")
    frame = pd.DataFrame(
        {"name": [f"row {i}" for i in range(len(rows))], "sets": column}
    )
    return frame, how


class Rule(NamedTuple):
    """Draw a similarity and its threshold."""

    similarity: str
    threshold: Fraction
    comparison: str = ">="


def score(similarity, a, b, overlap):
    """Return a similarity, rounded as the definition says."""
    if similarity == "jaccard":
        return overlap / (a + b - overlap)
    if similarity == "dice":
        return 2.0 * overlap / (a + b)
    return overlap / math.sqrt(a * b) if similarity == "cosine" else float(overlap)


def wanted_pairs(left, right, rule, empty, missing, same):
    """Return pairs of rows -> their similarity, -1 for NaN."""
    found = {}
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            if same and i >= j:
                continue
            if one is None or other is None:
                if missing and one is None and other is None:
                    found[i, j] = -1.0
                continue
            a, b = set(one), set(other)
            if not a or not b:
                if (
                    empty
                    and not a
                    and not b
                    and similar("jaccard", rule.threshold, rule.comparison, 1, 1, 1)
                ):
                    found[i, j] = 1.0
                continue
            if similar(
                rule.similarity,
                rule.threshold,
                rule.comparison,
                len(a),
                len(b),
                len(a & b),
            ):
                found[i, j] = score(rule.similarity, len(a), len(b), len(a & b))
    return found


def found_pairs(frame):
    """Return pairs of a result -> their similarity, if it has that; pairs that repeat
    are an error.
    """
    keys = list(zip(frame["left"].tolist(), frame["right"].tolist(), strict=True))
    values = [None] * len(keys)
    if "similarity" in frame.columns:
        assert frame["similarity"].dtype == np.float64
        values = frame["similarity"].fillna(-1.0).tolist()
    found = dict(zip(keys, values, strict=True))
    assert len(found) == len(keys), "a pair was returned twice"
    return found


def wanted_counts(pairs, rows):
    """Return the number of pairs of each row."""
    counts = [0] * rows
    for pair in pairs:
        for row in pair:
            counts[row] += 1
    return counts
