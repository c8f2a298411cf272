"""Add the tasks of an algorithm of several steps; bring two tables to one library."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from typing import Any

import dask.dataframe as dd
from dask.base import is_dask_collection

from dask_simjoin.catalog.libraries import HOME, library
from dask_simjoin.errors import UnsupportedFrameError
from dask_simjoin.graph.aligned import SUM_FAN_IN
from dask_simjoin.graph.dask_private import Task, TaskRef
from dask_simjoin.graph.source import pick, picked
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.plan import Plan
from dask_simjoin.request.inputs import example_of, is_frame, optional
from dask_simjoin.request.messages import instead_of_frame, shown
from dask_simjoin.request.options import texts_as_given

Call = tuple[Any, Callable[..., Any], tuple[Any, ...]]
"""A task of a step: its place, its function and its arguments."""

LISTS = 2
"""Lists per thread whose items are not picked yet: one in work, and one being picked."""


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

        `threads`: of a cluster, or None.  On a cluster, tasks pick the items, so that a worker sends only
        items.  Each thread has at most `LISTS` lists that are not picked yet.  By default Dask would make
        all lists first, and then read a list from disk for each item if memory is short.
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
        """List the positions of each chunk's rows, or the chunk's number if chunks are in frame order."""
        if plan.counted.in_frame_order:
            return list(range(len(chunks)))
        return [self.add("names", c, pick, chunk, "position") for c, chunk in enumerate(chunks)]


def nothing(*values: Any) -> None:
    """Return None once all values are computed."""


def after(done: None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function in a task that waits for another task's check."""
    return function(*arguments)


def check_other(call: str, other: object, **second: object) -> None:
    """Refuse a right table that is not a frame; `second`: the argument after it."""
    if is_frame(other):
        return
    swapped = [
        f" {name}= is one: the table comes first." for name, value in second.items() if is_frame(value)
    ]
    if not swapped and "k" in second and isinstance(other, numbers.Integral):
        swapped = [f" For neighbors within this frame, use knn_join(k={shown(other)})."]
    raise UnsupportedFrameError(
        f"other={shown(other)} is not a data frame.{''.join(swapped) or _remedy(other)} Use {call}, where "
        "other= is a Dask, pandas or cuDF DataFrame."
    )


def _remedy(other: object) -> str:
    return "" if isinstance(other, numbers.Number) else instead_of_frame(other)


def same_library(left: Frame, right: Frame) -> tuple[Frame, Frame, Frame, Frame]:
    """Return two tables, both lazy if one is, and their empty examples; refuse two libraries."""
    examples = example_of(left), example_of(right)
    names = [library(example) for example in examples]
    if names[0] != names[1]:
        raise UnsupportedFrameError(
            f"The left table is a {names[0]} frame and the right one a {names[1]} frame; both must be of one "
            f"library. Use .to_backend({names[0]!r}) of a Dask DataFrame, or convert the right table."
        )
    if is_dask_collection(left) or is_dask_collection(right):
        left, right = (side if is_dask_collection(side) else lazy(side, names[0]) for side in (left, right))
    return left, right, *examples


def one_or_two(frame: Frame, other: Frame | None) -> tuple[Frame, Frame | None, Frame, Frame | None]:
    """Return the tables as `same_library` does, or one table and its empty example."""
    return (frame, None, example_of(frame), None) if other is None else same_library(frame, other)


def lazy(frame: Frame, name: str) -> Frame:
    """Make a plain frame a Dask DataFrame of one partition."""
    if name == HOME:
        with texts_as_given():  # and lists, and other objects
            return dd.from_pandas(frame, npartitions=1, sort=False)
    dask_cudf = optional("dask_cudf", "dask-cudf", "Joins of Dask DataFrames with cuDF's")
    return dask_cudf.from_cudf(frame, npartitions=1, sort=False)
