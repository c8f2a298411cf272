"""Record the rows of results that are made from the rows of a join in further steps."""

from __future__ import annotations

from typing import Any

from dask_simjoin.graph.base import LabelledExpr, itself
from dask_simjoin.graph.dask_private import Expr, Task, TaskRef, new_collection
from dask_simjoin.graph.lazy_join import LazyJoin
from dask_simjoin.graph.records import RUNS, RunName
from dask_simjoin.metrics.norms import Frame


class ResultRows(LabelledExpr):
    """The rows of a frame, recorded for a run. The run then has their number instead of
    the number of rows that the join itself makes.
    """

    _label = "simjoin_result"
    _makes_result = True
    _parameters = ["frame", "run"]

    @property
    def _meta(self) -> Frame:
        return self.frame._meta

    def _divisions(self) -> tuple[Any, ...]:
        return tuple(self.frame.divisions)

    def _layer(self) -> dict[Any, Any]:
        RUNS.expect(self._run, self.npartitions)
        keys = [(self._name, n) for n in range(self.npartitions)]
        found = zip(keys, self.frame.__dask_keys__(), strict=True)
        return {key: Task(key, itself, TaskRef(part)) for key, part in found}


def with_recorded_rows(found: Frame) -> Frame:
    """Return a lazy frame whose rows are the result of the join behind it."""
    run = RunName(joins_of(found.expr)[0].named.name)
    return new_collection(ResultRows(found.expr, run))


def joins_of(expr: Expr) -> list[LazyJoin]:
    """List the joins of an expression. The join that the user asked for comes first."""
    # right and outer joins count matches from right to left, too
    return sorted(
        expr.find_operations(LazyJoin), key=lambda join: join.operand("spec").is_swapped
    )
