"""Add the tasks of an algorithm of several steps, named so that a dashboard tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dask_simjoin.expressions.aligned import SUM_FAN_IN
from dask_simjoin.expressions.dask_private import Task, TaskRef
from dask_simjoin.expressions.source import pick, picked
from dask_simjoin.planning.plan import Plan

Call = tuple[Any, Callable[..., Any], tuple[Any, ...]]
"""A task of a step: its place, its function and the arguments of that."""

LISTS = 2
"""Lists for each thread whose items have not been taken: one to work on, and one that is taken apart."""


def blocks_of_chunks(plan: Plan) -> list[list[tuple[int, int, int]]]:
    """List for each chunk its block pairs: their numbers, which side it is, and the other side's chunk."""
    own: list[list[tuple[int, int, int]]] = [[] for _ in range(len(plan.chunks))]
    for b, (i, j) in enumerate(plan.blocks.tolist()):
        own[i].append((b, 0, j))
        if i != j:
            own[j].append((b, 1, i))
    return own


class Steps:
    """Collect the tasks of an algorithm: their names begin with a label, and say which step they are.

    Attributes
    ----------
    layer : dict
        What was added so far.
    """

    def __init__(self, label: str, token: str) -> None:
        self._label, self._token = label, token
        self.layer: dict[Any, Any] = {}

    def add(self, step: str, place: Any, function: Callable[..., Any], *arguments: Any) -> TaskRef:
        """Add a task; `place` tells it from others of its step."""
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
        """Add tasks that give lists, and for each list some of its items, as arguments of other tasks.

        `threads`: of a cluster, where items are taken by tasks of their own, so that only they travel, and as
        soon as their list is there: so many lists more are made before.  Left to itself Dask makes all lists,
        and then takes an item of each at a time; where memory is short, it reads a list anew for each item.
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
        """List for each chunk its rows' positions in the frame, or its number if chunks follow each other."""
        if plan.counted.in_frame_order:
            return list(range(len(chunks)))
        return [self.add("names", c, pick, chunk, "position") for c, chunk in enumerate(chunks)]


def nothing(*values: Any) -> None:
    """Give None, once all values are there."""


def after(done: None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function: a task that waits for what another one checks."""
    return function(*arguments)
