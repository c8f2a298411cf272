"""Find which pairs of points in the unit square come and go as rows do, by one
independent join.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.oracles.strips import Digest, digest, pairs_by_strip

NEVER = np.iinfo(np.int16).max
"""The time of deletion of a row that stays."""


@dataclass(frozen=True)
class Grown:
    """The pairs of a table after a number of updates.

    Attributes
    ----------
    added, removed : list of Digest
        Digests of each update; number 0 is the first load.
    last : Digest
        Digest of the last version's pairs.
    """

    added: list[Digest]
    removed: list[Digest]
    last: Digest


def independent_changes(
    files: Iterable[Path], eps: float, first: np.ndarray, gone: np.ndarray, folder: Path
) -> Grown:
    """Find the pairs of the points in `files` (id, x, y), by the updates that added and
    removed them.

    Parameters
    ----------
    first : array (updates + 1,), int64
        The position of the first row of each update, ascending; 0 of the first load.
    gone : array (rows,), int16
        The update with which each row goes, after the one that it came with, or
        `NEVER`.
    """
    updates = len(first)
    added, removed = ([Digest()] * updates for _ in range(2))
    last = Digest()
    for points, i, j in pairs_by_strip(files, eps, len(gone), folder):
        at = points["position"]
        left, right = np.minimum(at[i], at[j]), np.maximum(at[i], at[j])
        ids = points["id"]
        swap = at[j] < at[i]
        named = ids[np.where(swap, j, i)], ids[np.where(swap, i, j)]
        came = np.searchsorted(first, right, side="right") - 1
        went = np.minimum(gone[left], gone[right])
        # otherwise the first row was deleted before the second came
        there = came < went
        for number in range(updates):
            for which, found in ((came == number, added), (went == number, removed)):
                chosen = there & which
                found[number] += digest(*(side[chosen] for side in named))
        stays = there & (went == NEVER)
        last += digest(*(side[stays] for side in named))
    return Grown(added, removed, last)
