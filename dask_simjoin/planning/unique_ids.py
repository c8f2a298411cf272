"""Unique ids: missing and repeated ids of partitions, and keys of ids."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.catalog import arrow_type, check_indexable, describe_ids
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import (
    count_of,
    module_of,
    on_gpu,
    tally,
    to_host,
    values_of,
)
from dask_simjoin.engine.ids import (
    as_id_keys,
    decoded,
    is_range,
    joined,
    remedy_of_ids,
)
from dask_simjoin.errors import DuplicateIdError
from dask_simjoin.metrics.norms import Array, Ids
from dask_simjoin.request.messages import counted, shown

MIXER = np.uint64(0x9E3779B97F4A7C15)
"""An odd number near 2**64 / golden ratio: its multiples are spread evenly (Knuth 1973,
section 6.4).
"""


@dataclass(frozen=True)
class IdSummary:
    """Summary of the ids of one partition: their number, missing ids, range, and an id
    that repeats.

    `low` and `high` are None if ids cannot be ordered.  `repeated` is a tuple of one
    id, or None.  `where`: the first row without an id, in words; "" if unknown.
    """

    rows: int
    missing: int
    low: Any
    high: Any
    repeated: tuple[Any] | None
    where: str = ""


def summarise_ids(
    ids: Ids, id: Hashable | None, labels: Ids | None = None
) -> IdSummary:
    """Summarize the ids of one partition.

    `labels`: the index of its frame, for messages; None: unknown, or rows were left
    out.
    """
    n = len(ids)
    if n == 0:
        return IdSummary(0, 0, None, None, None)
    ids = decoded(ids)
    check_indexable(ids.dtype, id)
    if is_range(ids) or (not ids.hasnans and ids.is_monotonic_increasing):
        return IdSummary(n, 0, ids[0], ids[-1], _first_again(ids))
    absent = ids.isna()
    missing = count_of(absent)
    if missing:
        where = ""
        if labels is not None and len(labels) == n:
            row = int(module_of(absent).flatnonzero(absent)[0])
            where = f"row {row}" if id is None else f"label {shown(labels[row])}"
        return IdSummary(n, missing, None, None, None, where)
    if (
        isinstance(ids.dtype, np.dtype)
        and ids.dtype.kind in "iufmM"
        and not on_gpu(ids)
    ):
        ordered = np.sort(ids.to_numpy())
        again = np.flatnonzero(ordered[1:] == ordered[:-1])
        values = pd.Index(ordered)  # converts NumPy's times to pandas' types
        repeated = (values[again[0]],) if len(again) else None
        return IdSummary(n, 0, values[0], values[-1], repeated)
    try:
        repeated = _first_again(ids)
    except TypeError:
        raise DuplicateIdError(
            f"{describe_ids(id)} have values such as {ids[0]!r}, which are not single "
            "values, so they cannot "
            "be ids. "
            f"{remedy_of_ids(id)}"
        ) from None
    try:
        return IdSummary(n, 0, ids.min(), ids.max(), repeated)
    except TypeError:
        return IdSummary(n, 0, None, None, repeated)


def _first_again(ids: Ids) -> tuple[Any] | None:
    """Return an id that repeats, as a tuple of one id.

    Return None if all ids are unique.
    """
    arrow = arrow_type(ids.dtype)
    if arrow is not None and pa.types.is_nested(arrow):
        raise TypeError("pandas compares no lists of Arrow")
    return None if ids.is_unique else (ids[ids.duplicated()][0],)


def check_summaries(summaries: Sequence[IdSummary], id: Hashable | None) -> list[int]:
    """Refuse ids that are missing, or that repeat in a partition.

    Return the partitions that may share ids.
    """
    for number, summary in enumerate(summaries):
        if summary.missing:
            within = f" in partition {number}" if len(summaries) > 1 else ""
            where = f" (first at {summary.where}{within})" if summary.where else within
            missing = sum(one.missing for one in summaries)
            if id is None:
                lacks = f"the index has {counted(missing, 'missing label')}{where}"
                without, use = "", remedy_of_ids(id)
            else:
                lacks = f"column {id!r} has {counted(missing, 'missing id')}{where}"
                without = (
                    "To leave out rows without an id: "
                    f"frame = frame.dropna(subset=[{id!r}]). "
                )
                use = f"Or u{remedy_of_ids(id)[1:]}"
            raise DuplicateIdError(
                f"Every row needs a unique id, but {lacks}. {without}{use}"
            )
        if summary.repeated is not None:
            where = f" in partition {number}" if len(summaries) > 1 else ""
            raise repeated_id(summary.repeated[0], id, where)
    filled = [n for n, summary in enumerate(summaries) if summary.rows]
    if len(filled) < 2:
        return []
    if any(summaries[n].low is None for n in filled):
        return filled
    try:
        filled.sort(key=lambda n: summaries[n].low)
    except TypeError:
        return filled
    overlapping = set()
    last = filled[0]
    for n in filled[1:]:
        if summaries[n].low <= summaries[last].high:
            overlapping |= {n, last}
        if summaries[n].high > summaries[last].high:
            last = n
    return sorted(overlapping)


def key_buckets(ids: Ids, buckets: int) -> list[Array]:
    """Return one array per bucket with the keys of ids (see `id_keys`). Equal keys are
    in the same bucket.
    """
    keys = id_keys(ids)
    if buckets == 1:
        return [keys]
    xp = module_of(keys)
    bucket = (keys * MIXER >> np.uint64(32)) % np.uint64(buckets)
    # 16-bit integers if possible, because NumPy sorts them by radix sort, which is many
    # times faster
    bucket = bucket.astype(np.uint16 if buckets <= 2**16 else np.int64)
    keys = keys[xp.argsort(bucket, kind="stable")]
    counts = to_host(tally(bucket, buckets))
    return xp.split(keys, np.cumsum(counts)[:-1].tolist())


def id_keys(ids: Ids) -> Array:
    """Return a 64-bit key of each id (n,), uint64; equal ids have equal keys."""
    ids = decoded(ids)
    if is_range(ids):
        ids = frames_for(ids).index(values_of(ids))
    labels = as_id_keys(ids, slice(None))
    if labels is not None:
        return labels.view(np.uint64)
    if ids.dtype.kind in "fc":
        # turns -0.0 into 0.0, because these equal numbers have different hashes in
        # pandas 2 and cuDF
        ids = ids + 0.0
    if on_gpu(ids):
        return values_of(ids.to_series().hash_values(method="xxhash64"))
    keys = np.array(pd.util.hash_pandas_object(pd.Series(ids), index=False), np.uint64)
    if ids.dtype == object:
        # one key for all objects but strings and bytes, because 1, 1.0 and True are
        # equal but have different hashes
        keys[[not isinstance(value, (str, bytes)) for value in ids]] = 0
    return keys


MAX_REPEATED = 1 << 11
"""At most this many repeated keys are searched for an id that really repeats."""


def repeated_keys(*parts: Array) -> np.ndarray:
    """Return at most `MAX_REPEATED` keys that occur more than once in the concatenation
    of all parts.
    """
    xp = module_of(parts[0])
    keys = xp.sort(xp.concatenate(parts))
    return to_host(xp.unique(keys[1:][keys[1:] == keys[:-1]])[:MAX_REPEATED])


def suspected(ids: Ids, keys: np.ndarray) -> pd.Index:
    """Return the ids whose keys are among `keys`; ids with equal keys may still be
    different.
    """
    own = id_keys(ids)
    xp = module_of(own)
    some = decoded(ids[xp.isin(own, xp.asarray(keys))])
    return some.to_pandas() if on_gpu(some) else some


def check_suspects(parts: list[pd.Index], id: Hashable | None) -> None:
    """Refuse an id that is in two partitions. `parts`: for each partition, its ids
    whose keys repeat.
    """
    repeated = _first_again(joined(parts))
    if repeated is not None:
        raise repeated_id(repeated[0], id, " in several partitions")


def repeated_id(value: Any, id: Hashable | None, where: str) -> DuplicateIdError:
    """Return an error that names a repeated id."""
    plain = (
        value.item()
        if isinstance(value, (np.integer, np.floating, np.bool_))
        else value
    )
    labels = (
        " Labels often repeat in a table of several files, because each file counts "
        "its rows from 0."
        if id is None
        else ""
    )
    rounded, remedy = _rounded(value), remedy_of_ids(id)
    if rounded:
        remedy = f"If ids also repeat in the file itself, u{remedy[1:]}"
    return DuplicateIdError(
        f"{describe_ids(id)} are not unique: {plain!r} repeats{where}, so pairs would "
        f"be ambiguous.{rounded} {remedy}{labels}"
    )


def _rounded(value: Any) -> str:
    """Return a sentence if a repeated id is a float that may be a rounded integer, else
    "".
    """
    is_float = isinstance(value, (float, np.floating))
    dtype: Any = np.dtype(type(value)) if is_float else None
    if dtype is None or not 2 ** (np.finfo(dtype).nmant + 1) <= abs(value) < np.inf:
        return ""
    return (
        f" The dtype {dtype} rounds integers of this size, so different ids may have "
        "become equal. In that case, read the column as int64 or str when you load the "
        "table; converting it now cannot restore lost digits."
    )
