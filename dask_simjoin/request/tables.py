"""Calls that are the same for plain tables and for Dask's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask.base import is_dask_collection


def meta_of(table: Any) -> Any:
    """Return the empty example of a Dask collection; other values unchanged."""
    return getattr(table, "_meta", table) if is_dask_collection(table) else table


def computed(value: Any) -> Any:
    """Compute a Dask collection; return other values unchanged."""
    return value.compute() if is_dask_collection(value) else value


def by_partition(
    function: Callable[..., Any], table: Any, *args: Any, **options: Any
) -> Any:
    """Call ``function(rows, *args)`` for a plain table, or for each partition of a lazy
    one.

    `options`: as in `map_partitions`. Without `meta`, the example is the result for an
    empty partition; `meta` may also be a function that makes it. The arguments may be
    lazy values of one partition.
    """
    if not is_dask_collection(table):
        return function(table, *map(computed, args))
    meta = options.pop("meta", None)
    if meta is None:
        meta = function(table._meta, *args)
    elif callable(meta):
        meta = meta()
    return table.map_partitions(function, *args, meta=meta, **options)


def reduced(function: Callable[..., Any], merge: Callable[..., Any], table: Any) -> Any:
    """Call a function for a plain table. For a lazy one, call it for each partition.
    Then return the merged results as a lazy value, because Dask would align a lazy frame
    with others.
    """
    if not is_dask_collection(table):
        return function(table)
    return table.reduction(function, aggregate=merge, combine=merge, meta=0)


def in_one(table: Any) -> Any:
    """Return a lazy table as one partition; a plain table unchanged."""
    return table.repartition(npartitions=1) if is_dask_collection(table) else table
