"""Expressions of the rows that `dropna` leaves out, for results that keep these rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.graph.base import LabelledExpr, Steps, itself
from dask_simjoin.graph.dask_private import Expr, List, Task, TaskRef
from dask_simjoin.graph.row_cache import ROWS
from dask_simjoin.graph.source import FrozenSource, Listed, optimise_in_place
from dask_simjoin.planning.plan import Plan
from dask_simjoin.request.spec import JoinSpec, RowSpec
from dask_simjoin.sizes import PARTITION
from dask_simjoin.tasks.left_out import (
    joined_positions,
    left_out_positions,
    left_out_rows,
)


def left_out_partitions(plan: Plan, spec: RowSpec) -> list[int]:
    """List the partitions of the left table with rows that `dropna` leaves out."""
    if not isinstance(spec, JoinSpec) or not spec.coordinates.dropna:
        return []
    return np.flatnonzero(plan.tables.left_out[0].partitions).tolist()


def _partitions_of(source: FrozenSource) -> FrozenSource:
    """Return the partitions of a source, which planning may have kept in memory."""
    return FrozenSource(optimise_in_place(ROWS.take(source).inner))


class LeftOutRows(LabelledExpr):
    """The rows that `dropna` leaves out, as lists of chunks without an index. There is
    one chunk for each partition with such rows.

    `numbers`: numbers of these partitions. `each`: their fingerprints. `ends`: for each
    list, the position in `numbers` after its last partition.
    """

    _label = "simjoin_left_out"
    _parameters = ["frozen", "numbers", "each", "ends", "spec"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (1 + len(self.operand("ends")))

    def _layer(self) -> dict[Any, Any]:
        frame, spec = self.operand("frozen").inner, self.operand("spec")
        keys = frame.__dask_keys__()
        steps = Steps(self._label, self.deterministic_token)
        found = [
            steps.add("part", n, left_out_rows, TaskRef(keys[n]), fingerprint, spec)
            for n, fingerprint in zip(
                self.operand("numbers"), self.operand("each"), strict=True
            )
        ]
        first = 0
        for place, end in enumerate(self.operand("ends")):
            key = (self._name, place)
            steps.layer[key] = Task(key, itself, List(*found[first:end]))
            first = end
        return dict(frame.__dask_graph__()) | steps.layer


def rows_left_out(
    source: FrozenSource, plan: Plan, spec: JoinSpec
) -> LeftOutRows | None:
    """Return the left rows of a join that `dropna` leaves out; None if there are none."""
    numbers = left_out_partitions(plan, spec)
    if not numbers:
        return None
    each = Listed([(n, plan.tables.sources[0][n]) for n in numbers])
    most, rows, ends = (
        min(PARTITION, plan.limits.output / plan.result.pair_bytes),
        0,
        [],
    )
    for place, n in enumerate(numbers):
        own = plan.tables.left_out[0].partitions[n]
        if rows and rows + own > most:
            ends.append(place)
            rows = 0
        rows += own
    ends.append(len(numbers))
    how = Listed(numbers), each, Listed(ends), spec
    return LeftOutRows(_partitions_of(source), *how)


def npartitions_of(expr: Expr | None) -> int:
    return 0 if expr is None else expr.npartitions


class LeftOutPositions(LabelledExpr):
    """The positions in the frame of all rows that `dropna` leaves out, as one array.

    For the operands, see `LeftOutRows`. `firsts`: for each partition, the position of
    its first row.
    """

    _label = "simjoin_left_out_positions"
    _parameters = ["frozen", "numbers", "each", "firsts", "spec"]

    def _layer(self) -> dict[Any, Any]:
        frame, spec = self.operand("frozen").inner, self.operand("spec")
        keys = frame.__dask_keys__()
        steps = Steps(self._label, self.deterministic_token)
        parts = zip(
            *(self.operand(name) for name in ("numbers", "each", "firsts")), strict=True
        )
        found = [
            steps.add(
                "part", n, left_out_positions, TaskRef(keys[n]), each, first, spec
            )
            for n, each, first in parts
        ]
        key = (self._name, 0)
        steps.layer[key] = Task(key, joined_positions, *found)
        return dict(frame.__dask_graph__()) | steps.layer


def positions_left_out(
    source: FrozenSource, plan: Plan, spec: JoinSpec
) -> LeftOutPositions | None:
    """Return the positions of the rows that `dropna` leaves out; None if there are none."""
    numbers = left_out_partitions(plan, spec)
    if not numbers:
        return None
    firsts = np.cumsum([0, *(rows for rows, _ in plan.tables.sources[0])])
    each = Listed([(n, plan.tables.sources[0][n]) for n in numbers])
    some = Listed(firsts[numbers].tolist())
    return LeftOutPositions(_partitions_of(source), Listed(numbers), each, some, spec)
