"""Keep values beside the rows they are of, where a frame may be run twice.

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
    CumulativeAggregations,
    Expr,
    Partitions,
    PartitionsFiltered,
    Repartition,
)
from dask_simjoin.expressions.filters import RowValues
from dask_simjoin.expressions.source import FrozenSource, MapPartition, optimise_in_place
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.tasks.fingerprints import Groups, fingerprints, values_beside

STEADY = (Blockwise, IO, CumulativeAggregations, Repartition, Partitions)
"""What gives the same rows in the same order each time."""


def may_move(frame: Expr) -> bool:
    """Tell whether rows of a frame may come in another order when it is run again."""
    return not all(isinstance(node, STEADY) for node in frame.walk())


def in_order_of(frame: Expr, values: Expr, source: FrozenSource, groups: Groups, spec: JoinSpec | None,
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


class Reconciled(RowValues, Blockwise):
    """Put values in the order in which the rows beside them come."""

    _parameters = ["frame", "values", "then", "groups", "spec"]
    operation = staticmethod(values_beside)

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
