"""Let Dask show lazy joins without planning them, which may read all of the source."""

from __future__ import annotations

import functools
from typing import Any

import pandas as pd

from dask_simjoin.expressions.dask_private import FrameBase
from dask_simjoin.expressions.lazy_join import LazyJoin

SHOWN = "_repr_divisions"
"""What Dask calls the property of what it shows of divisions."""

UNPLANNED = pd.Index(["", ""], name="npartitions=not planned yet")


def guard(collections: type = FrameBase) -> bool:
    """Have collections of Dask show no divisions that only planning could tell.

    False: they have no such property, and show them by planning. A second call changes nothing.
    """
    told = vars(collections).get(SHOWN)
    if not isinstance(told, property) or told.fget is None:
        return False
    if not hasattr(told.fget, "of_simjoin"):
        setattr(collections, SHOWN, property(_told(told.fget)))
    return True


def _told(divisions: Any) -> Any:
    @functools.wraps(divisions)
    def told(collection: Any) -> pd.Index:
        joins = collection.expr.find_operations(LazyJoin)
        return UNPLANNED if any(join.would_plan for join in joins) else divisions(collection)

    told.of_simjoin = True  # type: ignore[attr-defined]
    return told
