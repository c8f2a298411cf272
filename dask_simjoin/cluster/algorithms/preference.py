"""Say which row of a group is to stay, by int64 numbers: that of the largest, the first of those alike."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from dask_simjoin.engine.base import joiner_for
from dask_simjoin.engine.compat import any_of, module_of, values_of
from dask_simjoin.metrics.types import Array, ArrayModule, Series
from dask_simjoin.options.columns import kind_of_number
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.radii import by_position
from dask_simjoin.tasks.row_numbers import RowNumbers, row_numbers

FIRST, LAST = "first", "last"

LEAST = np.iinfo(np.int64).min
"""Of values that are missing."""

WIDE = {"i": np.int64, "b": np.int64, "u": np.uint64, "f": np.float64}
"""The largest type of each kind of number."""


def preferences(chunk: Chunk, keep: Hashable, own: RowNumbers) -> Array:
    """Number the rows (n,) of a chunk by what is kept; `own`: the chunk's number, or its rows' positions."""
    xp, rows = joiner_for(chunk["example"]).xp, len(chunk["ids"])
    if keep == FIRST:
        return xp.zeros(rows, np.int64)
    if keep == LAST:
        return row_numbers(xp.arange(rows), own)
    return by_position(chunk, numbers_of(chunk["kept"][keep], xp), xp)


def order_of(keys: Array) -> Array:
    """The order of rows in which they are to stay: by their numbers (n,), the largest first."""
    xp = module_of(keys)
    return _sorted(xp.arange(len(keys)), ~keys)


def best_of(groups: Array, keys: Array, rows: Array) -> Array:
    """Find the places of each group's best row, in the order of groups; all (n,) int64."""
    xp = module_of(groups)
    order = _sorted(rows, ~keys, groups)
    some = groups[order]
    first = xp.ones(len(some), bool)
    first[1:] = some[1:] != some[:-1]
    return order[first]


def numbers_of(column: Series, xp: ArrayModule) -> Array:
    """Numbers (n,) int64 in the order of a column's values."""
    missing = values_of(column.isna())
    kind = kind_of_number(column.dtype)
    values = values_of((column.fillna(0) if any_of(missing) else column).astype(WIDE[kind]))
    if kind == "f":
        bits = (values + 0.0).view(np.int64)  # makes 0.0 of -0.0
        # of negative numbers the larger have the smaller bits
        values = xp.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)
    elif kind == "u":
        values = (values ^ np.uint64(1 << 63)).view(np.int64)
    return xp.where(missing, LEAST, values)


def _sorted(*keys: Array) -> Array:
    """Sort by the last of some keys (n,) int64, then by the one before it, and so on."""
    xp = module_of(keys[0])
    return xp.lexsort(xp.stack([some.astype(np.int64) for some in keys]))
