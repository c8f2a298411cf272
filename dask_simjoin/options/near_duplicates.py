"""Say what near duplicates are asked for: of near rows, which one stays."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from dask_simjoin.errors import ColumnError, OptionError
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.columns import check_label, has_column, kind_of_number
from dask_simjoin.options.groups import Distance, Engine, MetricRequest, Within, about
from dask_simjoin.options.messages import did_you_mean, listed, shown
from dask_simjoin.options.requests import DISTANCE
from dask_simjoin.options.resolve import Spec, resolve
from dask_simjoin.options.spec import JoinSpec

Grouping = Literal["greedy", "connected"]

WORDS = ("first", "last")


@dataclass(frozen=True, kw_only=True)
class OneStays:
    """Say which of near rows stays."""

    names_rows: ClassVar[bool] = False

    keep: Hashable = field(default="first", metadata=about("which row of near ones stays"))
    grouping: Grouping = field(
        default="greedy",
        metadata=about("near a row that stays, or connected with it", choices=get_args(Grouping)),
    )

    @property
    def counted(self) -> bool:
        """Whether no row stays that is near another."""
        return is_none_kept(self.keep)


@dataclass(frozen=True, kw_only=True)
class NearDuplicated(OneStays, MetricRequest, Within, Engine):
    """Ask which rows are near ones that stay."""

    eps: Distance = field(kw_only=False, metadata=DISTANCE)

    def spec(self, meta: Frame) -> JoinSpec:
        """Resolve it for frames like `meta`."""
        column = check_kept_row(meta, self.keep)
        # what says which row is better is no coordinate, unless it is named as one
        own = column is not None and self.on is None and column != self.id and len(meta.columns) > 1
        found = told_by(column, resolve(self, meta.drop(columns=[column]) if own else meta, self.eps))
        if self.grouping == "greedy" and not self.counted and found.partitioning == "auto":
            found = replace(found, partitioning="entity")  # in which rows keep their order
        return found


def told_by(column: Hashable | None, spec: Spec) -> Spec:
    """Add the column whose values tell the row that stays, if one does, to what is resolved."""
    if column is None:
        return spec
    found: Any = spec  # every spec is a dataclass
    resolved: Spec = replace(found, keep=(column,), names=(f"{column}_left", f"{column}_right"))
    return resolved


def is_none_kept(keep: object) -> bool:
    """Tell whether it is False: no row stays that is near another."""
    return isinstance(keep, (bool, np.bool_)) and not keep


def check_kept_row(meta: Frame, keep: object) -> Hashable | None:
    """The column whose largest value tells the row that stays, if `keep` is one; refuses what is nothing."""
    if is_none_kept(keep) or (isinstance(keep, str) and keep in WORDS):
        return None
    allowed = "use 'first', 'last', False, or a column whose largest value stays"
    if isinstance(keep, (bool, np.bool_)) or keep is None or not isinstance(keep, Hashable):
        raise OptionError(f"keep={shown(keep)} is not allowed; {allowed}.")
    if not has_column(meta.columns, keep):
        meant = did_you_mean(keep, [*WORDS, *meta.columns], 0.5)
        raise OptionError(
            f"keep={shown(keep)} is not allowed{meant}; {allowed}: the columns are {listed(meta.columns)}."
        )
    check_label("keep", keep, meta.columns)
    dtype = meta[keep].dtype
    if kind_of_number(dtype) == "":
        raise ColumnError(
            f"keep={shown(keep)} names a column of dtype {dtype}, which is no number; name one of numbers of "
            "which the largest stays, for example of dates df[...].astype('int64'), or sort the rows and use "
            "keep='first'."
        )
    return keep
