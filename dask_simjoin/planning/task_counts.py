"""How many tasks Dask makes of chunks, and what a plan says of too many."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dask.utils import format_bytes

from dask_simjoin.planning.chunking.base import BY_WORKER, JoinChunks, Sources

BRANCH = 32
"""Partitions up to which Dask shuffles by tasks in one stage, and parts of a stage beyond."""

MANY_TASKS = 10_000
TASK_SECONDS = 0.002
"""Tasks beyond which a plan names a remedy, and what Dask itself needs for each of them, about."""


def describe_tasks(tasks: int, chunk: int) -> str:
    """So many tasks, in words; `chunk`: bytes that a chunk may have."""
    if tasks <= MANY_TASKS:
        return f"about {tasks:,}"
    return (
        f"about {tasks:,}: many, {tasks * TASK_SECONDS:,.0f} s of Dask's own work; fewer with a larger "
        f"blocksize= than {format_bytes(chunk)}, or larger partitions"
    )


def shuffle_tasks(sources: int, chunks: int, method: str) -> int:
    """Tasks of a shuffle by Dask, as of its version 2026.7; by tasks, each part split off is one.

    Of rows that workers hold, those of two threads.
    """
    if method == BY_WORKER:
        return 2 * chunks
    if method != "p2p":
        sources = min(sources, chunks)  # it puts sources together first
    own = sources + 2 * chunks
    if method != "tasks":
        return own
    if min(sources, chunks) <= BRANCH:
        return own + sources * chunks
    stages = math.ceil(math.log(sources, BRANCH))
    parts = math.ceil(sources ** (1 / stages))
    return own + stages * parts**stages * (parts + 2)


def making_tasks(chunks: JoinChunks, sources: Sequence[Sources], cluster: bool) -> int:
    """Tasks that make chunks, about; `cluster`: whether workers do, who share no memory."""
    tasks = 0
    for side, own in zip(chunks.sides, sources, strict=True):
        tasks += len(own) + len(side)
        if side.method is not None and (cluster or side.method != "tasks"):
            tasks += shuffle_tasks(len(own), len(side), side.method)
    return tasks
