"""Define the Dask expressions of joins by edit distance.

They work like the expressions of set joins, but need no vocabularies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from dask_simjoin.graph import pairs
from dask_simjoin.graph.dask_private import Expr
from dask_simjoin.graph.driver import Expressions
from dask_simjoin.graph.lazy_join import JoinTasks
from dask_simjoin.graph.planner import PlanningSteps
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.best_join import BestJoin
from dask_simjoin.sets.chunks import parcels_of, read_partition
from dask_simjoin.sets.graph import (
    BlockChunks,
    CountRows,
    LazySetJoins,
    LazySets,
    MarkRows,
    SetNeighborCounts,
    planning_steps,
)
from dask_simjoin.sets.pairs import (
    count_block,
    count_block_pairs,
    cut_block,
    join_block,
)
from dask_simjoin.sets.plan_report import SetPlanReport
from dask_simjoin.strings.blocks import (
    EditBlockPair,
    EditPlanReport,
    gather_block,
    hash_rows,
    make_edit_plan,
    read_texts,
    summarise_texts,
)
from dask_simjoin.strings.requests import EditSpec


def _key(spec: EditSpec) -> tuple[Any, ...]:
    return "strings", spec.on, spec.code, spec.id, str(spec.id_dtype), spec.keep


EDIT_STEPS = planning_steps(
    "simjoin_edit_summary", _key, summarise_texts, make_edit_plan
)

EDITS = JoinTasks(EditBlockPair, join_block, cut_block, count_block, count_block_pairs)


class EditChunks(BlockChunks):
    """Make the blocks of strings."""

    _label = "simjoin_edit_block"
    _prefix = "simjoin_edit"
    _send = staticmethod(parcels_of)
    _gather = staticmethod(gather_block)


class LazyEdits(LazySets):
    """A lazy join by edit distance. It is planned when the plan is first needed."""

    _tasks: ClassVar[JoinTasks] = EDITS
    _steps: ClassVar[PlanningSteps] = EDIT_STEPS
    _blocks: ClassVar[type[BlockChunks]] = EditChunks
    _reader: ClassVar[tuple[str, Callable[..., Any]]] = (
        "simjoin_codes",
        partial(read_partition, read_rows=read_texts),
    )
    _report_type: ClassVar[type[SetPlanReport]] = EditPlanReport


class EditSelfJoin(LazyEdits, pairs.SelfJoin):
    """Pairs of rows of one table whose texts are within an edit distance."""

    _label = "simjoin_edit_self_join"


class EditJoin(LazyEdits, pairs.Join):
    """Pairs of a left and a right row whose texts are within an edit distance."""

    _label = "simjoin_edit_join"


class EditBestJoin(LazyEdits, BestJoin):
    """The right rows with the most similar texts, for each left row."""

    _label = "simjoin_edit_best_join"


class CountEditPairs(LazyEdits, pairs.CountPairs):
    """Number of pairs of rows of one table whose texts are within an edit distance."""

    _label = "simjoin_count_edit_pairs"


class EditNeighborCounts(LazyEdits, SetNeighborCounts):
    """For each row, the number of other rows that match it."""

    _label = "simjoin_edit_neighbor_counts"
    _hash: ClassVar[Callable[..., Array]] = staticmethod(hash_rows)

    def _found(self, common: tuple[Any, ...], chosen: list[int] | None) -> Expr:
        return CountEditRows(*common, chosen)


class EditMatchCounts(EditNeighborCounts):
    """For each left row, the number of right rows that match it."""

    _label = "simjoin_edit_match_counts"
    _verb = "edit_join"
    _parameters = ["frame", "source", "other", "spec", "meta", "chosen"]


class CountEditRows(CountRows):
    _label = "simjoin_edit_counts"
    _tasks: ClassVar[JoinTasks] = EDITS


class EditNearDuplicated(EditNeighborCounts):
    """For each row, whether to drop it. Each dropped row matches a row that is kept."""

    _label = "simjoin_edit_near_duplicated"
    _parameters = ["frame", "source", "spec", "keep", "grouping", "meta", "chosen"]

    def _found(self, common: tuple[Any, ...], chosen: list[int] | None) -> Expr:
        return MarkEditRows(
            *common, self.operand("keep"), self.operand("grouping"), chosen
        )


class MarkEditRows(MarkRows):
    """In each block, mark the rows to drop."""

    _label = "simjoin_edit_duplicates"
    _tasks: ClassVar[JoinTasks] = EDITS


class LazyTextJoins(LazySetJoins):
    """Makes joins of texts of one Dask DataFrame or two."""

    expressions: ClassVar[Expressions] = Expressions(
        EditSelfJoin,
        EditJoin,
        CountEditPairs,
        EditNeighborCounts,
        EditMatchCounts,
        EDIT_STEPS,
    )
    near_duplicated: ClassVar[type[Expr]] = EditNearDuplicated
    best_join: ClassVar[type[Expr]] = EditBestJoin
    report: ClassVar[type[Any]] = EditPlanReport
