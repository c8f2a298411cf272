"""Make the expressions of lazy numbers of neighbours and of pairs."""

from __future__ import annotations

from typing import Any

from dask_simjoin.expressions.aligned import Aligned, add_counts, add_partitions, pieces_by_partition
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.counts_by_region import count_by_cell
from dask_simjoin.expressions.dask_private import Expr, List, PartitionsFiltered, Task, TaskRef
from dask_simjoin.expressions.examples import pairs_by_eps
from dask_simjoin.expressions.lazy_join import LazyJoin
from dask_simjoin.planning.chunking.base import is_shuffled
from dask_simjoin.planning.goal import ROW_COUNTS


class NeighborCounts(Aligned, LazyJoin):
    """Stand for numbers of neighbours before they are planned."""

    _label = "simjoin_neighbor_counts"
    _parameters = ["frame", "source", "spec", "meta", "chosen"]
    _goal = ROW_COUNTS

    def _values(self) -> Expr:
        source, plan = self._source, self.plan
        chunks, spec, chosen = self._chunks(), self.operand("spec"), self.operand("chosen")
        own = plan.counted
        if is_shuffled(own):
            return count_by_cell(source, spec, chunks, plan, own, self._meta, chosen)
        return CountBlocks(chunks, plan, spec, own.pieces, self._meta, source.inner.divisions, chosen)


class MatchCounts(NeighborCounts):
    """Stand for numbers of rows of another table near each row before they are planned."""

    _label = "simjoin_match_counts"
    _parameters = ["frame", "source", "other", "spec", "meta", "chosen"]


class CountBlocks(PartitionsFiltered, LabelledExpr):
    """Count the block pairs of entity chunks, and add up the counts for each chunk in a tree."""

    _label = "simjoin_counts"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "pieces", "meta", "source_divisions", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> Any:
        return self.operand("source_divisions")

    def _layer(self) -> dict[Any, Any]:
        pieces, chosen = self.operand("pieces"), list(self._partitions)
        wanted = {c for found in pieces_by_partition(pieces, chosen).values() for c, _, _ in found}
        layer: dict[Any, Any] = {}
        plan, spec = self.operand("plan"), self.operand("spec")
        totals = add_counts(layer, self.deterministic_token, self.chunks, plan, spec, wanted)
        add_partitions(layer, self._name, self.chunks, pieces, totals, chosen, self._meta)
        return layer


class CountPairs(LazyJoin):
    """Stand for the number of pairs before it is planned."""

    _label = "simjoin_count_pairs"
    _parameters = ["source", "spec", "meta", "example"]
    _defaults = {"example": None}

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _lower(self) -> Expr:
        total = CountTotal(self._chunks(), self.plan, self.operand("spec"), 0, self._work)
        if self.operand("example") is None:
            return total
        return CountsByEps(total, self.operand("spec"), self._meta, self.operand("example"))


class CountsByEps(LabelledExpr):
    """Make numbers of pairs within several distances a Series."""

    _label = "simjoin_count_by_eps"
    _parameters = ["total", "spec", "meta", "example"]

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _layer(self) -> dict[Any, Any]:
        key, total = (self._name, 0), TaskRef((self.total._name, 0))
        return {key: Task(key, pairs_by_eps, total, self.operand("spec"), self.operand("example"))}


class CountMatches(CountPairs):
    """Stand for the number of pairs of two tables before it is planned."""

    _label = "simjoin_count_matches"
    _parameters = ["source", "other", "spec", "meta"]


class CountTotal(LabelledExpr):
    """Add up the numbers of the block pairs' pairs."""

    _label = "simjoin_count"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "meta", "work"]

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _layer(self) -> dict[Any, Any]:
        plan, spec, work = self.operand("plan"), self.operand("spec"), self.operand("work")
        name = f"simjoin_count_block-{self.deterministic_token}"
        layer: dict[Any, Any] = {}
        for b, i, j, part in plan.pieces():
            meeting = work.meet(self.chunks, i, j, spec, plan.layout, part)
            layer[(name, b, part[0])] = Task((name, b, part[0]), work.count_pairs, meeting)
        key = (self._name, 0)
        layer[key] = Task(key, sum, List(*(TaskRef(piece) for piece in layer)))
        return layer
