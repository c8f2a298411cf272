"""Choose the homes of chunks: the workers of a cluster that hold the rows of the
chunks, and index them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dask_simjoin.graph.placement import ChunkHomes
from dask_simjoin.graph.shuffle import Group, dealt_out, held_by_workers, holders
from dask_simjoin.graph.source import FrozenSource
from dask_simjoin.planning.entity_chunks import Chunking
from dask_simjoin.planning.plan import Plan
from dask_simjoin.request.spec import JoinSpec


def chunk_homes(
    plan: Plan,
    sources: Sequence[FrozenSource],
    spec: JoinSpec,
    firsts: Mapping[str, int],
) -> ChunkHomes | None:
    """Return the homes of all chunks of a join, and the expected work of its block
    pairs.

    Return None if Dask should place the tasks. This is so without a cluster, in
    searches for nearest rows, and if rows are shuffled or copied. It is also so if
    chunks do not fit in a worker's memory, or if some worker holds no chunk.

    `sources`: the rows of each table. `firsts`: see `Placement`.
    """
    is_placed = (
        plan.chunks.method is not None
        or plan.work.visits is not None
        or plan.work.copies > 1
    )
    if (
        not spec.settings.cluster
        or is_placed
        or len(plan.chunks) < 2
        or len(plan.work.seconds) < len(plan.work.blocks)
    ):
        return None
    held = [
        frame for source in sources if (frame := held_by_workers(source)) is not None
    ]
    if len(held) < len(sources):
        return None
    found, threads = [], dict[str, int]()
    for frame, side in zip(held, plan.chunks.sides, strict=True):
        held_by, threads = holders(frame)
        found.append(homes_of(side, dealt_out(held_by, threads), len(threads)))
    home = np.concatenate(found)
    if len(threads) < 2 or len(np.unique(home)) < len(threads):
        return None
    each = np.array([threads[worker] for worker in sorted(threads)])
    return ChunkHomes(firsts, plan.work.blocks, plan.work.seconds, home, each)


def homes_of(chunks: Chunking, groups: Sequence[Group], workers: int) -> np.ndarray:
    """Return for each chunk the number of the worker that holds most of its rows
    (chunks,), int64.

    `groups`: for each thread of the workers, the partitions that its worker holds.
    """
    worker = {
        partition: number for number, partitions in groups for partition in partitions
    }
    rows = np.zeros((len(chunks), workers))
    for c, pieces in enumerate(chunks.pieces):
        for partition, start, stop in pieces:
            rows[c, worker[partition]] += stop - start
    return rows.argmax(axis=1)
