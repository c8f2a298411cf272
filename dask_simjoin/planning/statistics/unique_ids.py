"""Whether ids are unique across partitions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.catalog.frames import check_indexable, describe_ids
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import count_of, module_of, on_gpu, tally, to_host, values_of
from dask_simjoin.engine.ids import _is_range, _remedy, as_id_keys, decoded, joined
from dask_simjoin.errors import DuplicateIdError
from dask_simjoin.metrics.norms import Array, Ids

MIXER = np.uint64(0x9E3779B97F4A7C15)
"""An odd number near 2**64 / golden ratio: its multiples are spread evenly (Knuth 1973, section 6.4)."""


MAX_SUSPECTS = 1000


@dataclass(frozen=True)
class IdSummary:
    """The ids of one partition: their count, the count of missing ones, their range, and one that repeats.

    `low` and `high` are None if ids cannot be ordered; `repeated` is a 1-tuple or None.
    """

    rows: int
    missing: int
    low: Any
    high: Any
    repeated: tuple[Any] | None


def summarise_ids(ids: Ids, id: Hashable | None) -> IdSummary:
    """Summarize the ids of one partition."""
    n = len(ids)
    if n == 0:
        return IdSummary(0, 0, None, None, None)
    ids = decoded(ids)
    check_indexable(ids.dtype, id)
    if _is_range(ids) or (not ids.hasnans and ids.is_monotonic_increasing):
        return IdSummary(n, 0, ids[0], ids[-1], _first_again(ids))
    missing = count_of(ids.isna())
    if missing:
        return IdSummary(n, missing, None, None, None)
    if isinstance(ids.dtype, np.dtype) and ids.dtype.kind in "iufmM" and not on_gpu(ids):
        ordered = np.sort(ids.to_numpy())
        again = np.flatnonzero(ordered[1:] == ordered[:-1])
        values = pd.Index(ordered)  # its items are numbers and times of pandas
        repeated = (values[again[0]],) if len(again) else None
        return IdSummary(n, 0, values[0], values[-1], repeated)
    try:
        repeated = _first_again(ids)
    except TypeError:
        raise DuplicateIdError(
            f"{describe_ids(id)} are not single values (such as {ids[0]!r}), so they cannot name rows. "
            f"{_remedy(id)}"
        ) from None
    try:
        return IdSummary(n, 0, ids.min(), ids.max(), repeated)
    except TypeError:
        return IdSummary(n, 0, None, None, repeated)


def _first_again(ids: Ids) -> tuple[Any] | None:
    """Return an id that repeats, as a 1-tuple, or None."""
    return None if ids.is_unique else (ids[ids.duplicated()][0],)


def check_summaries(summaries: Sequence[IdSummary], id: Hashable | None) -> list[int]:
    """Refuse missing and repeated ids; return the partitions that may have ids in common."""
    for number, summary in enumerate(summaries):
        if summary.missing:
            without = "" if id is None else f" Or leave out rows without an id: df.dropna(subset=[{id!r}])."
            raise DuplicateIdError(
                f"{describe_ids(id)} are missing in {summary.missing} rows of partition {number}, but every "
                f"row needs a unique id. {_remedy(id)}{without}"
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
    """Return the keys of ids, see `id_keys`, split into buckets; equal keys are in the same bucket."""
    keys = id_keys(ids)
    if buckets == 1:
        return [keys]
    xp = module_of(keys)
    bucket = (keys * MIXER >> np.uint64(32)) % np.uint64(buckets)
    # NumPy sorts 16-bit numbers by radix sort, which is many times as fast
    bucket = bucket.astype(np.uint16 if buckets <= 2**16 else np.int64)
    keys = keys[xp.argsort(bucket, kind="stable")]
    counts = to_host(tally(bucket, buckets))
    return xp.split(keys, np.cumsum(counts)[:-1].tolist())


def id_keys(ids: Ids) -> Array:
    """Return a 64-bit key of each id (n,), uint64; equal ids have equal keys."""
    ids = decoded(ids)
    if _is_range(ids):
        ids = frames_for(ids).index(values_of(ids))
    labels = as_id_keys(ids, slice(None))
    if labels is not None:
        return labels.view(np.uint64)
    if ids.dtype.kind in "fc":
        ids = ids + 0.0  # -0.0 becomes 0.0: they are equal, but have different hashes in pandas 2 and cuDF
    if on_gpu(ids):
        return values_of(ids.to_series().hash_values(method="xxhash64"))
    keys = np.array(pd.util.hash_pandas_object(pd.Series(ids), index=False), np.uint64)
    if ids.dtype == object:
        # 1, 1.0 and True are equal, but have different hashes
        keys[[not isinstance(value, (str, bytes)) for value in ids]] = 0
    return keys


def repeated_keys(parts: list[Array]) -> np.ndarray:
    """Return some of the keys that occur more than once."""
    xp = module_of(parts[0])
    keys = xp.sort(xp.concatenate(parts))
    return to_host(xp.unique(keys[1:][keys[1:] == keys[:-1]])[:MAX_SUSPECTS])


def suspected(ids: Ids, keys: np.ndarray) -> pd.Index:
    """Return the ids whose keys are among `keys`; different ids may have equal keys."""
    own = id_keys(ids)
    xp = module_of(own)
    some = decoded(ids[xp.isin(own, xp.asarray(keys))])
    return some.to_pandas() if on_gpu(some) else some


def first_repeated(parts: list[pd.Index]) -> tuple[Any] | None:
    """Return an id that two of the parts have, as a 1-tuple, or None."""
    return _first_again(joined(parts))


def repeated_id(value: Any, id: Hashable | None, where: str) -> DuplicateIdError:
    """Return an error that names a repeated id."""
    plain = value.item() if isinstance(value, (np.integer, np.floating, np.bool_)) else value
    return DuplicateIdError(
        f"{describe_ids(id)} are not unique: {plain!r} repeats{where}, so pairs would be "
        f"ambiguous. {_remedy(id)}"
    )
