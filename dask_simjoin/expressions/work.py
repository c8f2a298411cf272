"""What the tasks of a join do: the functions that expressions put into graphs, for each kind of join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dask_simjoin.expressions.chunks import chunk_key
from dask_simjoin.expressions.dask_private import Expr, Task, TaskRef
from dask_simjoin.tasks.counts import count_block, count_block_pairs
from dask_simjoin.tasks.meeting import Meeting
from dask_simjoin.tasks.pairs import cut_block, cut_weighed, join_block, weigh_block


@dataclass(frozen=True)
class Work:
    """Name what is done with two chunks; the functions are those of `dask_simjoin.tasks`, or like them.

    Attributes
    ----------
    meeting : callable
        Brings chunks together.
    join, cut, count, count_pairs : callable
        Of a meeting: make rows of a result, cut them, count them by row, count them all.
    weigh, cut_weighed : callable or None
        Do as `cut` does in parts: of a part of the work, and of what all parts gave.
    """

    meeting: Callable[..., Any]
    join: Callable[..., Any]
    cut: Callable[..., Any]
    count: Callable[..., Any]
    count_pairs: Callable[..., Any]
    weigh: Callable[..., Any] | None = None
    cut_weighed: Callable[..., Any] | None = None

    def meet(self, chunks: Expr, i: int, j: int, spec: Any, layout: Any, part: tuple[int, int] = (0, 1),
             output: tuple[int, int] | None = None) -> Task:  # fmt: skip
        """Bring two chunks together, as a task's argument: it is made within that task, and is none itself.

        `part`: which part of the work, and of how many.  `output`: the same of the result, where the task
        itself is told of its part.
        """
        q, d = (chunk_ref(chunks, c, output or part) for c in (i, j))
        return Task(None, self.meeting, q, d, i == j, spec, layout, part)


def chunk_ref(chunks: Expr, c: int, part: tuple[int, int] = (0, 1)) -> TaskRef:
    """Refer to a chunk, as a task's argument; to the copy of it that this part of the work is done with."""
    return TaskRef(chunk_key(chunks, c, part))


DISTANCES = Work(
    Meeting, join_block, cut_block, count_block, count_block_pairs, weigh_block, cut_weighed
)  # fmt: skip
"""Pairs of points within a distance."""

meeting_of = DISTANCES.meet
