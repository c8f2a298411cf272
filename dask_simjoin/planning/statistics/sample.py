"""A sample of each partition's points: what the plan knows of the data beyond boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.engine.compat import module_of, to_host

RATE = 0.01
"""Share of the rows that is sampled."""

FLOOR = 1 << 16
"""Points that all samples together should have, if that takes no more than `FLOOR_RATE` of the rows."""

CEILING = 1 << 18
"""Points of all samples together that are enough: from more, numbers of pairs are hardly known better, and a
plan of 100 million rows would take as long as a GPU takes to join them."""

FLOOR_RATE = 0.1
FEW = 256
"""Rows up to which a partition is its own sample."""

MAX_BYTES = 1 << 28
"""Of the coordinates of all samples together: they meet on the client."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Some points of a partition, drawn without replacement.

    Attributes
    ----------
    rows : int
        Points that they were drawn from.
    places : array (m,), int64
        Their row numbers in the partition, ascending.
    x : array (m, d), float64
        Their coordinates.
    limit : array (m,), float64, or None
        Their own thresholds, where rows have radii.
    """

    rows: int
    places: np.ndarray
    x: np.ndarray
    limit: np.ndarray | None = None


def sample_size(rows: int, dims: int, partitions: int) -> int:
    """How many of a partition's points are drawn, `partitions` being drawn from in all."""
    if rows <= FEW and rows * partitions <= FLOOR:
        return rows
    wanted = max(
        min(rows * RATE, CEILING / partitions), min(FLOOR / partitions, rows * FLOOR_RATE), min(rows, 32)
    )
    return min(int(wanted), max(2, MAX_BYTES // (8 * dims * partitions)))


def draw(x: Any, kept: np.ndarray | None, partitions: int,
         seed: int | tuple[int, ...], limit: Any = None, most: int | None = None) -> Sample:  # fmt: skip
    """Draw from the points `x` (n, d), which are those rows of a partition that `kept` selects.

    `most`: points that are enough.
    """
    n, dims = x.shape
    size = sample_size(n, dims, partitions)
    size = size if most is None else min(size, most)
    if size == n:
        some = np.arange(n)
    else:
        some = np.sort(np.random.default_rng(seed).choice(n, size, replace=False, shuffle=False))
    places = some if kept is None else np.flatnonzero(kept)[some]
    there = module_of(x).asarray(some)
    own = None if limit is None else to_host(limit[there])
    return Sample(n, places, np.ascontiguousarray(to_host(x[there])), own)
