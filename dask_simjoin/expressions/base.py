"""Name expressions so that they read well on a dashboard."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

from dask_simjoin.expressions.dask_private import BlockwiseIO, Expr, PartitionsFiltered, Task
from dask_simjoin.expressions.records import Recorded

Layer = dict[Any, Any]
"""Tasks by their keys."""

OURS = "simjoin_"
"""What the keys of steps of joins begin with."""


class LabelledExpr(Expr):
    """Begin keys with a label; the example, if there is one, is the operand `meta`.

    The tasks of an expression that has a plan, or the name of a run, are recorded for that.

    Attributes
    ----------
    _makes_result : bool
        Whether its partitions are the result, or all that is found for it.
    """

    _label: str
    _makes_result: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_layer" in vars(cls) and {"plan", "run"} & set(cls._parameters):
            cls._layer = _recorded(vars(cls)["_layer"])

    @property
    def _run(self) -> str:
        """The name of what its tasks are recorded for."""
        run: str = self.operand("run").name if "run" in self._parameters else self.operand("plan").run
        return run

    @functools.cached_property
    def _name(self) -> str:
        return f"{self._label}-{self.deterministic_token}"

    @property
    def _meta(self) -> Any:
        return self.operand("meta") if "meta" in self._parameters else None


class RowsExpr(LabelledExpr, PartitionsFiltered, BlockwiseIO):
    """Make rows of a result; the operand `columns` says which of the example's are wanted, None: all."""

    _absorb_projections = True

    @functools.cached_property
    def columns(self) -> list[str]:
        chosen = self.operand("columns")
        return list(self.operand("meta").columns) if chosen is None else list(chosen)

    @functools.cached_property
    def _meta(self) -> Any:
        return self.operand("meta")[self.columns]


def _recorded(layer: Callable[[Any], Layer]) -> Callable[[Any], Layer]:
    @functools.wraps(layer)
    def tasks(expr: LabelledExpr) -> Layer:
        run, of = expr._run, expr.npartitions if expr._makes_result else 0
        return {key: _told(key, task, run, of * (key[0] == expr._name)) for key, task in layer(expr).items()}

    return tasks


def _told(key: Any, task: Any, run: str, of: int) -> Any:
    """Make a task of a step one that is recorded; what reads the source, and what is none, stays as it is."""
    label = key[0].rpartition("-")[0] if isinstance(key, tuple) else ""
    if not run or not label.startswith(OURS) or type(task) is not Task:
        return task
    place = key[1] if len(key) == 2 else key[1:]
    return Task(key, Recorded(task.func, run, label.removeprefix(OURS), place, of), *task.args, **task.kwargs)
