"""Add the tasks of an algorithm of several steps; bring two tables to one library."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dask_simjoin.graph.aligned import SUM_FAN_IN
from dask_simjoin.graph.dask_private import Task, TaskRef
from dask_simjoin.graph.source import pick, picked
from dask_simjoin.planning.plan import Plan

Call = tuple[Any, Callable[..., Any], tuple[Any, ...]]
"""A task of a step: its place, its function and its arguments."""

LISTS = 2
"""Lists per thread whose items are not picked yet: one is being made, and one is being picked."""


def blocks_of_chunks(plan: Plan) -> list[list[tuple[int, int, int]]]:
    """List for each chunk its block pairs: number, the chunk's side (0 or 1), and the other chunk."""
    own: list[list[tuple[int, int, int]]] = [[] for _ in range(len(plan.chunks))]
    for b, (i, j) in enumerate(plan.blocks.tolist()):
        own[i].append((b, 0, j))
        if i != j:
            own[j].append((b, 1, i))
    return own


class Steps:
    """Collect the tasks of an algorithm, whose names are a label and the step.

    Attributes
    ----------
    layer : dict
        The tasks so far, by key.
    """

    def __init__(self, label: str, token: str) -> None:
        self._label, self._token = label, token
        self.layer: dict[Any, Any] = {}

    def add(self, step: str, place: Any, function: Callable[..., Any], *arguments: Any) -> TaskRef:
        """Add a task; `place` differs between the tasks of a step."""
        key = (f"{self._label}_{step}-{self._token}", place)
        self.layer[key] = Task(key, function, *arguments)
        return TaskRef(key)

    def merged(self, step: str, function: Callable[..., Any], parts: list[TaskRef],
               fan_in: int = SUM_FAN_IN) -> TaskRef:  # fmt: skip
        """Add tasks that merge some values in a tree."""
        depth = 0
        while len(parts) > fan_in:
            groups = [parts[s : s + fan_in] for s in range(0, len(parts), fan_in)]
            parts = [self.add(step, (depth, n), function, *group) for n, group in enumerate(groups)]
            depth += 1
        return self.add(step, (depth, 0), function, *parts)

    def spread(self, step: str, taking: str, calls: list[Call], items: Iterable[int],
               threads: int | None) -> list[dict[int, TaskRef | Task]]:  # fmt: skip
        """Add tasks that make lists; return for each list references to some of its items.

        `threads`: count of a cluster's threads, or None.  On a cluster, tasks pick the items, so that workers
        send items instead of lists.  Each thread has at most `LISTS` lists that are not picked yet.  By
        default Dask would make all lists first, and if memory is short read a list from disk for each item.
        """
        if threads is None:
            made = [self.add(step, place, function, *arguments) for place, function, arguments in calls]
            return [{n: picked(one, n) for n in items} for one in made]
        found: list[dict[int, TaskRef | Task]] = []
        taken: list[TaskRef] = []
        for place, function, arguments in calls:
            first = () if len(taken) < LISTS * threads else (after, taken[-LISTS * threads])
            one = self.add(step, place, *first, function, *arguments)
            found.append({n: self.add(taking, (place, n), pick, one, n) for n in items})
            taken.append(self.add(f"{taking}s", place, nothing, *found[-1].values()))
        return found

    def row_numbers(self, plan: Plan, chunks: list[TaskRef]) -> list[int | TaskRef]:
        """List the row positions of each chunk, or the chunk's number if chunks are in frame order."""
        if plan.counted.in_frame_order:
            return list(range(len(chunks)))
        return [self.add("names", c, pick, chunk, "position") for c, chunk in enumerate(chunks)]


def nothing(*values: Any) -> None:
    """Return None once all values are computed."""


def after(done: None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function in a task that waits for another task's check."""
    return function(*arguments)
