"""Into how many partitions of the result each block pair is cut."""

from __future__ import annotations

import numpy as np

from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.budget import Budget, Resources
from dask_simjoin.planning.chunking.base import JoinChunks
from dask_simjoin.planning.statistics.estimate import Estimate

MAX_OUTPUT = 2**30
"""Rows of a partition of the result on GPUs: half of what cuDF can number."""

QUERIES_PER_THREAD = 4
"""Parts of the queries of one replicated chunk, for each GPU or thread."""

MAX_UNEVEN = 16
"""How many times as many parts as partitions are needed for to spare counting pairs."""


def least_rows(dims: int) -> int:
    """Rows of a chunk that are worth a task: a few tenths of a second of work."""
    return max(1 << 14, int(2e6 / dims**1.5))


def directions(spec: JoinSpec) -> int:
    """How often each pair is in the result."""
    return 2 if spec.pairs == "both" else 1


def rows_found(tables: tuple[int, ...], k: int) -> int:
    """Most rows of a join of one table or two, of so many points, with k neighbours of each row."""
    data = tables[-1] - (len(tables) == 1)
    return tables[0] * min(k, max(data, 0))


def most_rows(found: Estimate, chunks: JoinChunks, blocks: np.ndarray, spec: JoinSpec) -> np.ndarray:
    """Rows of the result (block pairs,) that each block pair may give, float64."""
    most = found.high * directions(spec)
    if spec.include_self:
        most = most + np.where(blocks[:, 0] == blocks[:, 1], chunks.rows[blocks[:, 0]], 0)
    return most


def whole_slices(most: np.ndarray, pair_bytes: float, budget: Budget, have: Resources) -> np.ndarray:
    """Partitions of the result (block pairs,) that hold so many rows."""
    slices = np.ceil(most * pair_bytes / budget.output)
    if have.gpu:
        slices = np.maximum(slices, np.ceil(most / MAX_OUTPUT))
    return np.minimum(slices, np.ceil(most)).clip(1)


def query_slices(slices: np.ndarray, found: Estimate, size: float, rows: int, spec: JoinSpec, budget: Budget,
                 have: Resources) -> tuple[np.ndarray, bool]:  # fmt: skip
    """Parts of the queries of a replicated chunk, and whether they are of equally many rows.

    Equally many rows need no pairs to be counted first, and do where points do not have very different
    numbers of neighbours.  `slices`, `size`: partitions and bytes that the result needs.
    """
    least = QUERIES_PER_THREAD * have.threads
    if spec.partitioning == "auto":
        least = min(least, rows // least_rows(spec.dims or 1))
    least = max(least, int(slices.max(initial=1)))
    if not have.gpu:
        size *= 2  # places meet later ones, of which the first have most

    def fits(parts: int) -> bool:
        return found.share(1 / parts) * size <= budget.output

    parts = least
    while parts < MAX_UNEVEN * least and not fits(parts):
        parts *= 2
    even = fits(parts)
    wanted = min(parts if even else least, max(rows, 1))
    return np.full_like(slices, wanted), even
