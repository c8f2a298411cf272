"""Cut row groups, files and tables into parts that are worth a task or a file."""

from __future__ import annotations

import numpy as np


def cut_parts(rows: np.ndarray, most: int) -> list[np.ndarray]:
    """Cut what has so many rows each, in its order, into parts of at most `most` rows: their numbers."""
    parts: list[np.ndarray] = []
    start, total = 0, 0
    for number, size in enumerate(rows.tolist()):
        if number > start and total + size > most:
            parts.append(np.arange(start, number))
            start, total = number, 0
        total += size
    if start < len(rows):
        parts.append(np.arange(start, len(rows)))
    return parts
