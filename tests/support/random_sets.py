"""Verbs of sets with random options on random frames, and their results by the
definition.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from tests.support.random_frames import WORDS, Draw
from tests.support.sets import (
    COMPARISONS,
    SIMILARITIES,
    Rule,
    wanted_counts,
    wanted_pairs,
)

TOKENIZERS: dict[Any, Any] = {
    "words": str.split,
    ("qgrams", 2): lambda text: (
        [f"#{text}$"[k : k + 2] for k in range(len(text) + 1)] if text else []
    ),
    ("delimiter", "w"): lambda text: [part for part in text.split("w") if part],
}
"""Ways to split the texts of random frames into tokens."""

METHODS = ("auto", "allpairs", "ppjoin", "groupjoin", "bitmap")

SET_VERBS = [
    "set_self_join",
    "set_join",
    "set_join",
    "set_neighbor_counts",
    "count_set_pairs",
    "set_near_duplicated",
]


def sets_of(frame: pd.DataFrame, split: Any) -> list[Any]:
    """Return the sets of the rows; None for a row without one."""
    return [None if pd.isna(text) else split(text) for text in frame[WORDS].tolist()]


class AskedSets:
    """Random options of a verb of sets, and the rule that they make."""

    def __init__(self, draw: Draw, how: dict[str, Any]) -> None:
        similarity = draw.one("similarity", SIMILARITIES)
        comparison = draw.one("comparison", [*COMPARISONS, ">="])
        threshold = draw.one("threshold", [0.25, 0.5, 0.6, 0.8, 1])
        threshold = (
            draw.one("tokens", [1, 2, 3]) if similarity == "overlap" else threshold
        )
        tokenizer = draw.one("tokenizer", list(TOKENIZERS))
        self.empty = similarity != "overlap" and draw.chance("allow_empty", 0.3)
        self.missing = draw.chance("allow_missing", 0.3)
        self.rule = Rule(similarity, Fraction(str(threshold)), comparison)
        self.split = TOKENIZERS[tokenizer]
        self.options = {
            "on": WORDS,
            "threshold": threshold,
            "similarity": similarity,
            "comparison": comparison,
            "tokenizer": tokenizer,
            "allow_empty": self.empty,
            "allow_missing": self.missing,
            "method": draw.one("method", METHODS),
        } | {name: how[name] for name in ("blocksize",) if name in how}

    def pairs(
        self, one: pd.DataFrame, other: pd.DataFrame, same: bool
    ) -> dict[tuple[int, int], float]:
        """Return pairs of rows, as positions, and their similarities."""
        left, right = sets_of(one, self.split), sets_of(other, self.split)
        return wanted_pairs(left, right, self.rule, self.empty, self.missing, same)


def best_pairs(
    pairs: dict[tuple[int, int], float], ties: str, number: int = 1
) -> dict[tuple[int, int], float]:
    """Return the pairs of each left row with the largest similarities, sorted by left
    row and by descending similarity. `ties`: "first" or "all".
    """
    rows: dict[int, list[tuple[float, int]]] = {}
    for (i, j), similarity in pairs.items():
        rows.setdefault(i, []).append((-similarity, j))
    best = {}
    for i in sorted(rows):
        own = sorted(rows[i])
        last = own[:number][-1]
        for rank, j in own:
            if (rank, j) <= last or (ties == "all" and rank == last[0]):
                best[i, j] = -rank
    return best


def greedy_pairs(
    pairs: dict[tuple[int, int], float],
) -> dict[tuple[int, int], float]:
    """Return the most similar pairs such that each row is in at most one of them."""
    found: dict[tuple[int, int], float] = {}
    taken: tuple[set[int], set[int]] = (set(), set())
    for similarity, i, j in sorted((-value, *pair) for pair, value in pairs.items()):
        if i not in taken[0] and j not in taken[1]:
            found[i, j] = -similarity
            taken[0].add(i)
            taken[1].add(j)
    return found


def frame_of(
    pairs: dict[tuple[int, int], float],
    one: tuple[pd.DataFrame, list[Any]],
    other: tuple[pd.DataFrame, list[Any]],
    scored: bool,
    keep: str | None,
) -> pd.DataFrame:
    """Return pairs in the form of a verb's result, for rows and names of each table."""
    i, j = (np.array([pair[k] for pair in pairs], int).tolist() for k in (0, 1))
    columns: dict[Any, Any] = {
        "left": [one[1][k] for k in i],
        "right": [other[1][k] for k in j],
    }
    if scored:
        columns["similarity"] = np.array(list(pairs.values()), float)
    for ending, (frame, _), rows in (("_left", one, i), ("_right", other, j)):
        if keep is not None:
            columns[keep + ending] = frame[keep].iloc[rows].tolist()
    return pd.DataFrame(columns)


__all__ = ["SET_VERBS", "AskedSets", "best_pairs", "frame_of", "wanted_counts"]
