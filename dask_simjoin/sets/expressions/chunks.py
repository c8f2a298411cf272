"""Make the blocks of a plan of sets, as an expression."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.dask_private import Task, TaskRef
from dask_simjoin.expressions.source import FrozenSource, map_frozen, pick
from dask_simjoin.expressions.steps import Call, Steps
from dask_simjoin.planning.resources import resources
from dask_simjoin.sets.chunks import ReadRows, ReadSets
from dask_simjoin.sets.coded import Vocabulary
from dask_simjoin.sets.encode import Merged, merge, ranks, ranks_of
from dask_simjoin.sets.parcels import gather_block, read_partition, send
from dask_simjoin.sets.planning.plan import SetPlan
from dask_simjoin.sets.spec import SetSpec

FAN_IN = 4
"""Vocabularies that one task merges: few, as a worker holds all of them at a time."""


def read_tables(tables: list[tuple[FrozenSource, SetSpec]], plan: SetPlan) -> tuple[FrozenSource, ...]:
    """Read the partitions of each table: a source of `ReadSets` each."""
    return tuple(
        FrozenSource(map_frozen("simjoin_tokens", read_partition, source, spec, each=list(enumerate(rows))))
        for (source, spec), rows in zip(tables, plan.sources, strict=True)
    )


class SetChunks(LabelledExpr):
    """Make the blocks of one table or two, the right one's after the left one's.

    Partitions are read and number their tokens; vocabularies are merged in a tree, and ranks go back down it.
    Then rows are sent to their blocks.  `read`: what `read_tables` gives; `examples`: empty frames of tables.
    """

    _label = "simjoin_set_block"
    _parameters = ["read", "examples", "spec", "plan"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (self.operand("plan").number + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: SetPlan = self.operand("plan")
        spec: SetSpec = self.operand("spec")
        steps = Steps("simjoin_set", self.deterministic_token)
        keys: list[tuple[int, int, Any]] = []
        for t, source in enumerate(self.operand("read")):
            steps.layer.update(source.inner.__dask_graph__())
            keys += [(t, n, key) for n, key in enumerate(source.inner.__dask_keys__())]
        own, universe = self._ranks(steps, [TaskRef(key) for _, _, key in keys])
        firsts = [np.cumsum([0, *rows]).tolist() for rows in plan.sources]
        threads = resources(spec.library).threads if spec.settings.cluster else None
        sends: list[list[Call]] = [[] for _ in plan.sides]
        for (t, n, key), rank in zip(keys, own, strict=True):
            rows = self._small(steps, "rows", (t, n), rows_of, TaskRef(key))
            sends[t].append(((t, n), send, (rows, rank, firsts[t][n], plan.sides[t])))
        place = 0
        sides = [spec] if spec.other is None else [spec, spec.other]
        for t, (side, asked) in enumerate(zip(plan.sides, sides, strict=True)):
            parcels = steps.spread("send", "parcel", sends[t], range(len(side)), threads)
            for b in range(len(side)):
                key, example = (self._name, place), self.operand("examples")[t]
                parts = [some[b] for some in parcels]
                steps.layer[key] = Task(key, gather_block, universe, example, asked, *parts)
                place += 1
        return steps.layer

    def _small(
        self, steps: Steps, step: str, place: Any, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Add a task on a cluster, so that only what it takes is sent and kept; else do it where needed."""
        if self.operand("spec").settings.cluster:
            return steps.add(step, place, function, *arguments)
        return Task(None, function, *arguments)

    def _ranks(self, steps: Steps, read: list[TaskRef]) -> tuple[list[Any], TaskRef]:
        """Rank the tokens of each partition: up a tree, and down; and count all tokens."""
        level = [self._small(steps, "vocabulary", n, vocabulary_of, one) for n, one in enumerate(read)]
        merged: list[list[Any]] = []
        while len(level) > 1:
            groups = [level[s : s + FAN_IN] for s in range(0, len(level), FAN_IN)]
            depth = len(merged)
            made = [steps.add("merge", (depth, g), merge, *group) for g, group in enumerate(groups)]
            merged.append(
                [self._small(steps, "codes", (depth, g), pick, one, "codes") for g, one in enumerate(made)]
            )
            level = [
                self._small(steps, "merged", (depth, g), vocabulary_of, one) for g, one in enumerate(made)
            ]
        own: list[Any] = [steps.add("order", 0, ranks, level[0])]
        universe = steps.add("tokens", 0, len, own[0])
        for depth in range(len(merged) - 1, -1, -1):
            below = range(len(merged[depth - 1]) if depth else len(read))
            above = [(own[k // FAN_IN], merged[depth][k // FAN_IN], k % FAN_IN) for k in below]
            # those of partitions are needed once, all others by several
            add = steps.add if depth else functools.partial(self._small, steps)
            own = [add("ranks", (depth, k), ranks_of, *some) for k, some in enumerate(above)]
        return own, universe


def rows_of(found: ReadSets) -> ReadRows:
    """Take the rows of what was read."""
    rows = dict(found)
    del rows["vocabulary"]
    return cast(ReadRows, rows)


def vocabulary_of(found: ReadSets | Merged) -> Vocabulary:
    """Take the tokens of what was read, or merged."""
    return found["vocabulary"]
