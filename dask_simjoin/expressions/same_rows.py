"""Keep values beside the rows they are of, whatever Dask does to these once the values are planned.

Dask may merge partitions of a reader once more, as it optimises parts of what it lowers again: to find the
quantiles of a `set_index`, for one.  So values stay next to the frame that they are of, and take over its
partitions and labels.

A shuffle may give the rows of a partition in another order each time.  Values are of the rows of one run,
and Dask may combine them with those of another.  So each partition of values goes with fingerprints
of the rows it is of.
"""

from __future__ import annotations

import functools
from typing import Any

from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.dask_private import (
    IO,
    Alias,
    Blockwise,
    BlockwiseIO,
    CumulativeAggregations,
    Expr,
    FusedIO,
    Partitions,
    PartitionsFiltered,
    Projection,
    Repartition,
)
from dask_simjoin.expressions.filters import RowValues
from dask_simjoin.expressions.source import FrozenSource, MapPartition, optimise_in_place
from dask_simjoin.options.spec import RowSpec
from dask_simjoin.tasks.fingerprints import (
    PREDECESSOR,
    Groups,
    fingerprints,
    relabelled,
    values_beside,
)

STEADY = (Blockwise, IO, CumulativeAggregations, Repartition, Partitions)
"""What gives the same rows in the same order each time."""


def may_move(frame: Expr) -> bool:
    """Tell whether rows of a frame may come in another order when it is run again."""
    return not all(isinstance(node, STEADY) for node in frame.walk())


def may_merge(frame: Expr) -> bool:
    """Tell whether Dask may merge partitions of a frame once fewer of its columns are read."""
    return any(
        isinstance(node, BlockwiseIO)
        and not isinstance(node, FusedIO)
        and type(node)._fusion_compression_factor is not BlockwiseIO._fusion_compression_factor
        for node in frame.walk()
    )


def in_order_of(frame: Expr, values: Expr, source: FrozenSource, groups: Groups, spec: RowSpec | None,
                chosen: list[int] | None) -> Expr:  # fmt: skip
    """Put values of the rows of `source` in the order in which `frame` has the same rows."""
    prints = optimise_in_place(
        MapPartition(source.inner, "simjoin_fingerprint", fingerprints, (groups, spec))
    )
    then = Fingerprints(FrozenSource(prints), chosen)
    return Reconciled(frame, values, then, groups, spec)


class Fingerprints(PartitionsFiltered, LabelledExpr):
    """Fingerprints of the rows that values were found for."""

    _label = "simjoin_fingerprints"
    _parameters = ["frozen", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> Any:
        return self.operand("frozen").inner.divisions

    def _layer(self) -> dict[Any, Any]:
        prints = self.operand("frozen").inner
        keys, layer = prints.__dask_keys__(), dict(prints.__dask_graph__())
        for place, n in enumerate(self._partitions):
            layer[(self._name, place)] = Alias((self._name, place), keys[n])
        return layer


class NextToFrame(RowValues, Blockwise):
    """Put the operand `values` next to the operand `frame`, whose rows they are of."""

    @functools.cached_property
    def _meta(self) -> Any:
        return self.operand("values")._meta

    def _divisions(self) -> Any:
        return self.frame.divisions

    def _broadcast_dep(self, dep: Expr) -> bool:
        return False

    @property
    def _projection_columns(self) -> list[Any]:
        return list(self.frame.columns)


class Beside(NextToFrame):
    """Give values the partitions and the labels of the frame that they are of."""

    _parameters = ["frame", "values", "spec"]
    operation = staticmethod(relabelled)

    def _lower(self) -> Expr | None:
        values, partitions = self.operand("values"), self.frame.npartitions
        if values.npartitions == partitions:
            return None
        return Beside(self.frame, Repartition(values, new_partitions=partitions), self.operand("spec"))

    @property
    def of_filtered(self) -> bool:
        found = self.operand("values").walk()
        return any(isinstance(node, RowValues) and node.of_filtered for node in found)

    def simplify_once(self, dependents: Any, simplified: Any) -> Expr:
        """Leave the frame unread where values are all that it is read for."""
        below = {node._name for node in self.frame.walk()}
        readers = (reader() for name in below for reader in dependents[name])
        if all(reader is None or reader._name in below or isinstance(reader, Beside) for reader in readers):
            values: Expr = self.operand("values").simplify_once(dependents, simplified)
            return values
        simple: Expr = super().simplify_once(dependents, simplified)
        return simple


class Reconciled(NextToFrame):
    """Put values in the order in which the rows beside them come."""

    _parameters = ["frame", "values", "then", "groups", "spec"]
    operation = staticmethod(values_beside)

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        numbered = PREDECESSOR in getattr(self._meta, "columns", ())
        if not numbered or not isinstance(parent, Projection) or PREDECESSOR in parent.columns:
            return None
        # takes what is no number of a row without those that are, which another order changes
        chosen = Projection(self.operand("values"), parent.operand("columns"))
        return Reconciled(self.frame, chosen, *self.operands[2:])
