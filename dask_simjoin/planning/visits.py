"""The order of visits: how workers join block pairs if chunks do not fit in their
memory.

To visit a block pair, a worker needs both of its chunks in memory. It reads the chunks
that it had to spill. If m chunks fit in memory, a chunk that is read meets at most m -
1 others there. So each read allows at most m - 1 new block pairs. This gives a lower
bound of the number of reads, which `min_reads` returns. `plan_visits` chooses an order
that comes near to this bound: several chunks stay in memory, while the others are read
one after the other.

Workers of a cluster evict the chunk that was used least recently (LRU), which
`count_reads` simulates. So do workers with GPUs, which move chunks to host memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dask_simjoin.planning.entity_chunks import JoinChunks
from dask_simjoin.planning.limits import NEED, Limits
from dask_simjoin.planning.resources import INDEXED, memory_share
from dask_simjoin.sizes import MARGIN, MIN_PART, NANO

INDEX_BYTES, ID_BYTES = 9, 8
"""Bytes per row of the index of a chunk with few columns: positions and cells, and keys
of ids.
"""


def count_reads(blocks: np.ndarray, capacity: int) -> np.ndarray:
    """Simulate visits with LRU eviction, and return how often each chunk is read
    (chunks,), int64.

    `blocks` (visits, 2): the chunks of each block pair, in the order of the visits.
    `capacity`: number of chunks that fit in memory, at least 2.
    """
    reads = [0] * _chunks(blocks)
    memory: dict[int, None] = {}  # chunks in memory, in the order of their last visits
    for pair in np.asarray(blocks).tolist():
        for chunk in dict.fromkeys(pair):
            if chunk in memory:
                del memory[chunk]
            else:
                reads[chunk] += 1
            memory[chunk] = None
        while len(memory) > capacity:
            del memory[next(iter(memory))]
    return np.array(reads, np.int64)


def min_reads(blocks: np.ndarray, capacity: int) -> int:
    """Return a lower bound of the number of reads of chunks, for any order and any
    eviction.
    """
    blocks = np.asarray(blocks).reshape(-1, 2)
    used = len(np.unique(blocks))
    edges = len(
        np.unique(np.sort(blocks[blocks[:, 0] != blocks[:, 1]], axis=1), axis=0)
    )
    first = min(capacity, used)
    beyond = max(0, edges - first * (first - 1) // 2)
    return max(used, first + math.ceil(beyond / (capacity - 1)))


def grouped_order(blocks: np.ndarray, kept: int) -> np.ndarray:
    """Order block pairs by groups of `kept` consecutive chunks.

    A group stays in memory while it meets all later chunks.

    Return the positions of the block pairs (visits,), int64. The chunks that a group
    meets last are the first chunks of the next group, so these are already in memory.
    """
    i, j = np.asarray(blocks, np.int64).reshape(-1, 2).T
    group, passing = i // kept, j // kept > i // kept
    return np.lexsort((i, np.where(passing, -j, j), passing, group))


def greedy_order(blocks: np.ndarray, capacity: int) -> np.ndarray:
    """Order block pairs such that each chunk that is read meets as many chunks in
    memory as possible.

    The chunk in memory with the most block pairs left is evicted, because the others
    will soon be done. Return the positions of the block pairs (visits,), int64.
    """
    near: list[dict[int, int]] = [{} for _ in range(_chunks(blocks))]
    for place, (i, j) in enumerate(np.asarray(blocks).tolist()):
        near[i][j] = near[j][i] = place
    order: list[int] = []
    memory: list[int] = []
    left = np.array([len(found) for found in near], np.int64)
    # number of each chunk's unvisited block pairs with chunks in memory
    met = np.zeros(len(near), np.int64)
    for _ in iter(lambda: bool(left.any()), False):
        away = left > 0
        away[memory] = False
        chunk = int(np.lexsort((left, -met, ~away))[0])
        if len(memory) >= capacity:
            evicted = max(
                memory, key=lambda some: (some not in near[chunk], left[some], some)
            )
            memory.remove(evicted)
            met[list(near[evicted])] -= 1
        for other in [*memory, chunk]:
            if other in near[chunk]:
                order.append(near[chunk].pop(other))
                near[other].pop(chunk, None)
                left[[chunk, other] if other != chunk else [chunk]] -= 1
        met[chunk] = 0
        met[list(near[chunk])] += 1
        memory = [some for some in [*memory, chunk] if left[some]]
    return np.array(order, np.int64)


@dataclass(frozen=True, eq=False)
class Visits:
    """The order of visits of each worker, and what the workers read."""

    # (block pairs,): number of the worker of each block pair, and its place in the
    # visits of this worker
    worker: np.ndarray
    place: np.ndarray
    capacity: int  # number of chunks in the memory of a worker
    # number of rows that all workers read again, in all passes over the block pairs
    again: float


def chunks_in_memory(
    chunks: JoinChunks, row_bytes: float, with_ids: bool, limits: Limits
) -> int | None:
    """Return how many chunks a worker can hold, including those that its tasks use;
    None: no known limit.
    """
    indexed = max(INDEXED * row_bytes, row_bytes + INDEX_BYTES + ID_BYTES * with_ids)
    size = MARGIN * indexed * float(np.mean(chunks.rows))
    if limits.gpu:
        # Dask-CUDA counts chunks, and no memory of tasks
        return limits.device and max(int(limits.device / max(size, 1.0)), 2)
    if limits.limit is None or limits.memory is None:
        return None
    threads = limits.threads / limits.workers
    largest = row_bytes * float(chunks.rows.max(initial=0.0))
    itself = limits.limit - threads * limits.memory
    others = threads * (NEED - 2 * INDEXED) * largest  # two chunks in use are indexed
    room = min(
        memory_share("spill") * limits.limit - itself - others,
        memory_share("target") * limits.limit,
    )
    # if one chunk too many stays in memory, LRU evicts each chunk just before its next
    # visit
    return max(int(room / max(size, 1.0)), 2)


def plan_visits(
    chunks: JoinChunks,
    blocks: np.ndarray,
    seconds: np.ndarray,
    row_bytes: float,
    with_ids: bool,
    limits: Limits,
    passes: int = 1,
) -> Visits | None:
    """Choose the order of visits that reads the fewest rows.

    Return None if all chunks fit in memory, or if each chunk is needed during one
    period only.

    `blocks`: the block pairs in their usual order. `seconds`: seconds that a thread
    needs for each block pair. `row_bytes`: bytes of one row of a chunk. `with_ids`:
    whether the result has ids of rows. `passes`: number of passes over the block pairs.
    Each begins without the chunks that it needs first, because the pass before it has
    ended with others.
    """
    capacity = chunks_in_memory(chunks, row_bytes, with_ids, limits)
    used = np.bincount(blocks.ravel(), minlength=len(chunks)) > 0
    if capacity is None or used.sum() <= capacity or len(blocks) <= used.sum():
        return None
    threads = math.ceil(limits.threads / limits.workers)
    # fewer chunks, because the other threads of a worker have already begun with the
    # next ones
    free = max(capacity - threads + 1, 2)
    orders = [
        np.arange(len(blocks)),
        *(grouped_order(blocks, k) for k in range(max(free - 2, 1), free)),
    ]
    if len(blocks) <= MIN_PART:
        orders += [
            greedy_order(blocks, some) for some in range(max(free - 1, 2), free + 1)
        ]

    def rows_read(order: np.ndarray, own: np.ndarray, passes: int) -> float:
        parts = [blocks[order[own == number]] for number in range(limits.workers)]
        each = (np.tile(part, (passes, 1)) for part in parts)
        return sum(
            float(count_reads(part, free) @ chunks.rows[: _chunks(part)])
            for part in each
        )

    best, worker, least = orders[0], np.zeros(len(blocks), np.int64), math.inf
    for order in orders:
        own = _workers(seconds[order], limits.workers)
        rows = rows_read(order, own, 1)
        if rows < least:
            best, worker, least = order, own, rows
    every = least if passes == 1 else rows_read(best, worker, passes)
    place, workers = np.empty(len(blocks), np.int64), np.empty(len(blocks), np.int64)
    # for each visit: the first one of its worker
    starts = np.searchsorted(worker, worker)
    place[best], workers[best] = np.arange(len(blocks)) - starts, worker
    return Visits(workers, place, capacity, every - float(chunks.rows[used].sum()))


def _workers(seconds: np.ndarray, number: int) -> np.ndarray:
    """Return the worker of each visit (visits,), int64.

    Each worker gets consecutive visits that take equally long.
    """
    ends = np.cumsum(np.maximum(seconds, NANO))
    return np.minimum((ends - ends[:1] / 2) / ends[-1:] * number, number - 1).astype(
        np.int64
    )


def _chunks(blocks: np.ndarray) -> int:
    """Return the number of chunks: the largest number of a chunk in the block pairs,
    plus one.
    """
    return int(np.max(blocks, initial=-1)) + 1
