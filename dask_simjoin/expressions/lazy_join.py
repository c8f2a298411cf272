"""What all lazy joins have in common before they are planned."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.chunks import BothChunks, Chunks, Sources, indexed_chunks
from dask_simjoin.expressions.dask_private import Expr
from dask_simjoin.expressions.planner import plan_for
from dask_simjoin.expressions.source import FrozenSource
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.chunking.entity import EntityChunks
from dask_simjoin.planning.chunking.regions import Chunking
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.plan_two import TwoPlan
from dask_simjoin.planning.resources import check_shuffle


class LazyJoin(LabelledExpr):
    """A join of one frozen source with itself that is planned when it must be."""

    _parameters = ["source", "spec", "meta"]
    _named = False
    _known: int | None = None
    """Bytes that tasks find out of each row; see `make_plan`."""
    _sought: int = 0
    """Nearest others of each row, as far as there are so many, that they find out besides."""

    def __str__(self) -> str:
        spec = self.operand("spec")
        asked = next((name for name in ("max_eps", "k") if name in self._parameters), None)
        what = f"{asked}={self.operand(asked)!r}" if asked else f"eps={spec.radius or spec.eps!r}"
        return f"{type(self).__name__}({self.operand('source')}, {what}, on={list(spec.on)}{spec.unnamed})"

    @property
    def _source(self) -> FrozenSource:
        source: FrozenSource = self.operand("source")
        return source

    @property
    def plan(self) -> Plan:
        """The plan; made at the first call, which computes one pass over the columns."""
        neighbors = self._asked("k", None)
        bound = self._asked("bound", math.inf)
        source, spec = self._source, self.operand("spec")
        known = None if self._known is None else (self._known, self._sought)
        return plan_for(source, spec, self._named, known, neighbors, self._other, bound)

    def _asked(self, name: str, default: Any) -> Any:
        """An operand that not all joins have."""
        return self.operand(name) if name in self._parameters else default

    def _tree_repr_lines(self, indent: int = 0, recursive: bool = True) -> list[str]:
        return [" " * indent + str(self)]

    @property
    def _other(self) -> FrozenSource | None:
        """The right table, of a join of two."""
        other: FrozenSource | None = self._asked("other", None)
        return other

    def _chunks(self) -> Expr:
        plan, spec, source = self.plan, self.operand("spec"), self._source
        if self._other is None:
            return self._table(source, spec, plan.sources, plan.chunks)
        assert isinstance(plan, TwoPlan)
        left = self._table(source, spec, plan.sources, plan.chunks.left)
        right = self._table(self._other, spec.other, plan.others, plan.chunks.right)
        return BothChunks(left, right)

    def _table(self, source: FrozenSource, spec: JoinSpec, sources: Sources, chunks: Chunking) -> Chunks:
        if not isinstance(chunks, EntityChunks):
            check_shuffle(chunks.method, self.operand("spec").settings.cluster)
        spec = replace(spec, dims=self.plan.dims)
        return indexed_chunks(source, spec, sources, chunks, self.plan.layout, self._named)
