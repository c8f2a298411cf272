"""Row ids: their values in one dtype, and their int64 keys.

Ids identify rows in results, so each id must be unique.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import union_categoricals

from dask_simjoin.catalog import describe_ids
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import on_gpu, values_of
from dask_simjoin.engine.process import shared_out
from dask_simjoin.errors import DuplicateIdError
from dask_simjoin.metrics.norms import Array, DType, Frame, Ids, Values


def row_ids(frame: Frame, id: Hashable | None, dtype: DType = None) -> Ids:
    """Return the row ids of a partition as an index of its library.

    `id`: the id column; None: the index of the frame. `dtype`: convert to this dtype;
    None: do not convert.
    """
    ids = frame.index if id is None else frames_for(frame).index(frame[id])
    if dtype is None or ids.dtype == dtype or hasattr(dtype, "categories"):
        return ids
    try:
        cast = ids.astype(dtype)
        kept = not len(ids) or bool(((cast == ids) | ids.isna()).all())
    except (TypeError, ValueError):
        kept = False
    if not kept:
        raise DuplicateIdError(
            f"{describe_ids(id)} are of dtype {ids.dtype} in a partition, and some are "
            "not values of "
            f"the frame's dtype {dtype}, so one id can differ between partitions. "
            f"{remedy_of_ids(id)}"
        )
    return cast


def decoded(values: Any) -> Any:
    """Convert categories and Arrow dictionaries to plain values, because their codes
    and order vary.
    """
    kind = getattr(values.dtype, "pyarrow_dtype", None)
    if kind is not None and pa.types.is_dictionary(kind):
        return values.astype(pd.ArrowDtype(kind.value_type))
    categories = getattr(values.dtype, "categories", None)
    return values if categories is None else values.astype(categories.dtype)


def rounded_together(*parts: Ids) -> bool:
    """Return whether concatenating these parts could round ids: no dtype represents all
    of them exactly.
    """
    kinds = {str(getattr(part.dtype, "kind", "")): part.dtype for part in parts}
    if len(kinds) < 2 or not kinds.keys() <= set("iufb"):
        return False
    return "b" in kinds or any(
        kinds[kind].itemsize == 8 for kind in kinds.keys() & {"i", "u"}
    )


def joined(parts: Sequence[Ids]) -> Ids:
    """Concatenate ids without converting Python objects: pandas' `append` could convert
    numbers to floats.

    Empty parts are left out, because their dtype would change the dtype of the result.
    pandas 2 also warns about them.
    """
    parts = united([part for part in parts if len(part)] or parts[:1])
    if len(parts) == 1:
        return parts[0]
    if any(type(part) is pd.Index and part.dtype == object for part in parts):
        return pd.Index(
            np.concatenate([part.to_numpy(object) for part in parts]),
            object,
            tupleize_cols=False,
        )
    return parts[0].append(list(parts[1:]))


def united(parts: Sequence[Any]) -> Sequence[Any]:
    """Give all parts of a categorical column or index the same categories: pandas would
    concatenate parts with different ones to objects. Other parts stay as they are.
    """
    kinds = [part.dtype for part in parts]
    if not all(isinstance(kind, pd.CategoricalDtype) for kind in kinds):
        return parts
    if any(kind.ordered for kind in kinds) or all(kind == kinds[0] for kind in kinds):
        return parts
    if len({kind.categories.dtype for kind in kinds}) > 1:
        return parts
    empty = [pd.Categorical([], dtype=kind) for kind in kinds]
    every = pd.CategoricalDtype(union_categoricals(empty).categories)
    return [part.astype(every) for part in parts]


def listed_values(values: Ids) -> list[Any]:
    """Return values as a list of Python objects."""
    return (values.to_pandas() if on_gpu(values) else values).tolist()


def id_bytes(ids: Ids) -> float:
    """Return the estimated number of bytes per id."""
    size = value_bytes(ids)
    return (
        size
        if isinstance(ids.dtype, np.dtype) and ids.dtype != object
        else max(8.0, size)
    )


def value_bytes(values: Values, looked_at: int = 1000) -> float:
    """Return the number of bytes per value of an index or a column, estimated from
    `looked_at` values.
    """
    if isinstance(values.dtype, np.dtype) and values.dtype != object:
        return float(values.dtype.itemsize)
    series = hasattr(values, "iloc")
    some = (values.iloc if series else values)[:: max(1, len(values) // looked_at)]
    own = {"index": False} if series else {}
    return float(some.memory_usage(deep=True, **own) / len(some)) if len(some) else 8.0


def bytes_of_columns(frame: Frame, names: Sequence[Hashable]) -> float:
    """Return the number of bytes per row of some columns, see `value_bytes`."""
    if not names:
        return 0.0
    dtypes = dict(zip(frame.columns.tolist(), frame.dtypes, strict=True))
    return sum(
        float(dtypes[name].itemsize)
        if isinstance(dtypes[name], np.dtype) and dtypes[name].kind != "O"
        else value_bytes(frame[name])
        for name in names
    )


def as_id_keys(ids: Ids, places: Array, threads: int = 1) -> Array:
    """Return the ids at these positions, or in this slice, as int64 keys; None if ids
    of this dtype have no int64 form. `threads`: number of threads for host arrays.
    """
    if not isinstance(ids.dtype, np.dtype) or ids.dtype.kind not in "iumM":
        return None
    values: Array = None  # None: the position is the key
    if on_gpu(ids) and not is_range(ids):
        if ids.hasnans:
            return None
        values = values_of(ids.astype("int64") if ids.dtype != "uint64" else ids)
        return values.view("int64")[places]
    if not is_range(ids):
        values = ids.to_numpy()
        if not values.dtype.isnative:
            values = values.astype(values.dtype.newbyteorder("="))
        values = (
            values.view(np.int64)
            if values.dtype.itemsize == 8
            else values.astype(np.int64)
        )

    def taken(some: Array) -> Array:
        if values is not None:
            return values[some]
        keys: Array = some.astype(np.int64)
        if ids.step != 1:
            keys *= ids.step
        if ids.start:
            keys += ids.start
        return keys

    if threads == 1 or not isinstance(places, np.ndarray):
        return taken(places)
    keys = np.empty(len(places), np.int64)

    def fill(start: int, stop: int) -> None:
        keys[start:stop] = taken(places[start:stop])

    shared_out(fill, len(places), threads)
    return keys


def from_id_keys(labels: Array, ids: Ids) -> Values:
    """Convert keys back to ids with the dtype of `ids`. Return an array, or for dates
    on a GPU an index.

    `labels`: the keys, as int64 or as integers of the ids' item size.
    """
    dtype = ids.dtype.newbyteorder("=")
    if dtype.kind in "mM" and on_gpu(ids):
        # by cuDF, because CuPy has no dates; cuDF takes the integers as multiples of
        # the unit of `dtype`
        return frames_for(ids).index(labels).astype(dtype)
    return (
        labels.view(dtype)
        if dtype.itemsize == labels.dtype.itemsize
        else labels.astype(dtype)
    )


def taken_ids(ids: Ids, positions: Array) -> Values:
    """Return the ids at these positions, int64; the result may be a view of them. It
    is an array if the ids have int64 keys.
    """
    if is_range(ids) and (ids.start, ids.step) == (0, 1):
        return positions
    keys = as_id_keys(ids, positions)
    if keys is None:
        return frames_for(ids).ids(ids, positions)
    return from_id_keys(keys, ids)


def is_range(ids: Ids) -> bool:
    """Return whether the ids are a RangeIndex, of pandas or cuDF."""
    return hasattr(ids, "start") and hasattr(ids, "step")


def remedy_of_ids(id: Hashable | None) -> str:
    other = (
        "id= with a column of unique values"
        if id is None
        else "id= with another column"
    )
    return f"Use {other}, or add one: frame = frame.simjoin.with_row_id(), then id='row_id'."
