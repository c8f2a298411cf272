"""Outputs of a plan: what tasks return, the partitions of the result, and the number of
tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dask_simjoin.planning.entity_chunks import BY_WORKER, JoinChunks, Sources
from dask_simjoin.planning.estimate import Estimate
from dask_simjoin.planning.limits import NEED, Limits
from dask_simjoin.request.messages import size_text
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import PARTS_PER_THREAD

MAX_UNEVEN = 16
"""Queries are cut into up to this multiple of the needed number of parts, so that the
result of each part fits.

If even this many parts do not suffice, pairs are counted first, and queries are cut by
these counts."""


def min_chunk_rows(dims: int) -> int:
    """Return the minimum number of rows of a chunk that is worth a task: a few tenths
    of a second of work.
    """
    return max(1 << 14, int(2e6 / dims**1.5))


def directions(spec: JoinSpec) -> int:
    """Return the number of result rows per pair: 2 if pairs are returned in both
    directions, else 1.
    """
    return 2 if spec.result.pairs == "both" else 1


def rows_found(tables: tuple[int, ...], k: int) -> int:
    """Return the largest possible number of result rows with k neighbors per row.

    `tables`: rows of each table.
    """
    data = tables[-1] - (len(tables) == 1)
    return tables[0] * min(k, max(data, 0))


def most_rows(
    found: Estimate, chunks: JoinChunks, blocks: np.ndarray, spec: JoinSpec
) -> np.ndarray:
    """Return the number of result rows of each block pair that partitions are planned
    for (block pairs,), float64.
    """
    most = found.high_together * directions(spec)
    if spec.result.include_self:
        most = most + np.where(
            blocks[:, 0] == blocks[:, 1], chunks.rows[blocks[:, 0]], 0
        )
    return most


def whole_slices(most: np.ndarray, pair_bytes: float, limits: Limits) -> np.ndarray:
    """Return the number of result partitions of each block pair (block pairs,).

    `most`: upper bound of the result rows of each block pair.
    """
    slices = np.ceil(most * pair_bytes / limits.output)
    if limits.gpu:
        half = np.iinfo(np.int32).max / 2  # of the rows that cuDF allows
        slices = np.maximum(slices, np.ceil(most / half))
    return np.minimum(slices, np.ceil(most)).clip(1)


def needs_counts(found: Estimate, size: float, spec: JoinSpec, limits: Limits) -> bool:
    """Return whether pairs must be counted, so that no partition of the result is
    larger than planned.

    `size`: bytes of the result of a block pair.
    """
    chosen = limits.chosen or spec.settings.output is not None
    room = 0 if chosen or limits.gpu else limits.memory or limits.shared or 0
    # pairs that are spread less evenly than at random may all be in one partition
    return NEED * size > room or found.dispersion > 1


def query_slices(
    slices: np.ndarray,
    found: Estimate,
    size: float,
    rows: int,
    spec: JoinSpec,
    limits: Limits,
    pieces: int,
) -> tuple[np.ndarray, bool]:
    """Return the number of query parts of a replicated chunk, and whether they have
    equally many rows.

    Parts of equally many rows need no pass that counts pairs. They are used unless some
    rows have far more neighbors than others. `slices`: number of partitions that the
    result needs. `size`: bytes of the result. `pieces`: the number of pieces of work,
    which is the number of parts on GPUs, since a GPU runs parts one after the other.
    """
    parts = pieces if limits.gpu else PARTS_PER_THREAD * limits.threads
    if spec.chunks.partitioning == "auto":
        parts = min(parts, rows // min_chunk_rows(spec.coordinates.dims or 1))
    needed = parts = max(parts, int(slices.max(initial=1)))
    if not limits.gpu:
        # rows are paired with later rows only, so the first queries have up to twice as
        # many pairs as on average
        size *= 2

    def fits(parts: int) -> bool:
        return found.share(1 / parts) * size <= limits.output

    while parts < MAX_UNEVEN * needed and not fits(parts):
        parts *= 2
    even = fits(parts)
    wanted = min(parts if even else needed, max(rows, 1))
    return np.full_like(slices, wanted), even


@dataclass(frozen=True)
class OutputSpec:
    """The output of a join's tasks.

    It identifies the plan of the join, together with the options of the join.
    """

    with_ids: bool = False  # whether the result has row ids, which must then be unique
    # whether the result has a row for each pair; its size is then limited
    materialise: bool = False
    result_bytes_per_row: int = 0  # bytes of results per row of a chunk
    # bytes for each neighbor of a row, and the largest number of neighbors of a row
    bytes_per_other: int = 0
    others_per_row: int = 0
    # whether chunks keep the results of their rows; each row must then be in one chunk
    # only
    single_home: bool = False
    k: int | None = None  # nearest neighbors per row; None: pairs within a distance
    # smallest and largest total of a pair; a total is a distance before its root is
    # taken
    min_total: float = 0.0
    max_total: float = math.inf
    # whether all rows at the distance of the k-th neighbor are returned
    ties: bool = False
    # with more neighbors per row than this, the method "tiles" is fastest, because it
    # counts many pairs at once
    dense: float = math.inf
    joins: int = 1  # number of passes over the block pairs
    # whether a minimum spanning tree is made after the search for neighbors
    spanning: bool = False
    # whether each piece of work returns a number for each row of a chunk
    by_row: bool = False
    listed: bool = False  # whether tasks visit each pair without returning it
    # whether rows are connected by pairs and labeled, without returning pairs
    connected: bool = False
    # a chunk can be labeled alone if it also has all rows within this many times the
    # distance; 0: it cannot
    halo: int = 0
    # whether the verb looks for copies of rows, so that copies do not indicate a
    # mistake
    finds_copies: bool = False
    # extra cost per row if there are several chunks, in units of `Costs.visit`: rows
    # must be numbered across chunks
    together: float = 0.0
    # nanoseconds of a single thread after the join, per row and per pair: to decide one
    # row after the other
    after_row: float = 0.0
    after_pair: float = 0.0

    def in_parts(self, limits: Limits) -> bool:
        """Return whether the results of a single chunk come in parts, which are never
        all in memory.
        """
        return self.k is not None and self.with_ids and not limits.gpu

    def without_results(self) -> OutputSpec:
        """Return the same output, but without memory for the results of rows."""
        return replace(self, result_bytes_per_row=0, bytes_per_other=0)

    def found_bytes(self, rows: int) -> int:
        """Return bytes of results per row; `rows`: number of rows of the table."""
        return self.result_bytes_per_row + self.bytes_per_other * min(
            self.others_per_row, rows
        )


COUNTS = OutputSpec(dense=4096)
"""Tasks return the number of all pairs.  `dense` was measured in 2 and 3 dimensions."""

ROW_COUNTS = replace(COUNTS, by_row=True)
"""Tasks return the number of pairs of each row."""

LISTS = replace(COUNTS, listed=True)
"""Tasks visit each pair, and return a result that is computed from all pairs."""

CLUSTERS = OutputSpec(dense=128, by_row=True, connected=True, together=5.0)
"""Tasks count the pairs of each row, and connect rows.  `dense` was measured in 2 and 3
dimensions.
"""

LISTED_CLUSTERS = replace(CLUSTERS, listed=True, connected=False, finds_copies=True)
"""Tasks list pairs of near duplicates, and decide one row after the other whether to
drop it.
"""

PAIRS = OutputSpec(with_ids=True, materialise=True)
"""Tasks return pairs: each row of the result has the ids of the two rows of a pair."""


def nearest_output(
    k: int,
    with_ids: bool = False,
    max_total: float = math.inf,
    min_total: float = 0.0,
    ties: bool = False,
) -> OutputSpec:
    """Return the output of a search for `k` neighbors. Tasks keep the nearest rows
    found so far.
    """
    k += ties  # one more neighbor shows which rows have ties
    return OutputSpec(with_ids, False, 40, 32, k, True, k, min_total, max_total, ties)


TREE_BYTES = 160
"""Bytes per row that are needed while the spanning tree of two chunks is made."""


def tree_output(k: int) -> OutputSpec:
    """Return the output of a search for `k` neighbors that is followed by a minimum
    spanning tree.
    """
    return replace(
        nearest_output(k),
        result_bytes_per_row=40 + TREE_BYTES,
        spanning=True,
        joins=2,  # the rounds for the tree take about as long as the search
        together=1.0,
    )


BRANCH = 32
"""Largest number of partitions that Dask's shuffle by tasks handles in one stage."""

MANY_TASKS, TASK_SECONDS = 10_000, 0.002
"""Reports of plans with more than MANY_TASKS tasks name a remedy: Dask needs
TASK_SECONDS for each task.
"""


def describe_tasks(tasks: int, chunk: int) -> str:
    """Describe a number of tasks; `chunk`: largest size of a chunk in bytes."""
    if tasks <= MANY_TASKS:
        return f"about {tasks:,}"
    return (
        f"about {tasks:,}: Dask alone needs {tasks * TASK_SECONDS:,.0f} s for these; "
        "for fewer tasks, use a "
        f"blocksize= above {size_text(chunk)}, or larger partitions"
    )


def shuffle_tasks(sources: int, chunks: int, method: str) -> int:
    """Return the number of tasks of a shuffle in Dask 2026.7. For `BY_WORKER`, one
    worker for each chunk is assumed.
    """
    if method == BY_WORKER:
        return min(sources, chunks) + parcels(sources, chunks)
    if method != "p2p":
        # if there are more partitions than chunks, Dask concatenates partitions first
        sources = min(sources, chunks)
    own = sources + 2 * chunks
    if method != "tasks":
        return own
    if min(sources, chunks) <= BRANCH:
        return own + sources * chunks
    stages = math.ceil(math.log(sources, BRANCH))
    parts = math.ceil(sources ** (1 / stages))
    return own + stages * parts**stages * (parts + 2)


def parcels(sources: int, chunks: int) -> int:
    """Return the number of parcels of the shuffle `BY_WORKER`, if there is one worker
    for each chunk. A task picks each of them.
    """
    return min(sources, chunks) * chunks


def making_tasks(chunks: JoinChunks, sources: Sequence[Sources], cluster: bool) -> int:
    """Estimate the number of tasks that make chunks; `cluster`: whether they run on a
    cluster.
    """
    tasks = 0
    for side, own in zip(chunks.sides, sources, strict=True):
        tasks += len(own) + len(side)
        if side.method is not None and (cluster or side.method != "tasks"):
            tasks += shuffle_tasks(len(own), len(side), side.method)
    return tasks
