"""Empty examples of results, which show their columns and dtypes."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable

import numpy as np
import pandas as pd

from dask_simjoin.calls.inputs import example_ids
from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import ColumnError
from dask_simjoin.metrics.norms import DType, Frame, Series
from dask_simjoin.request.requests import INNER, KEEPS, LEFT
from dask_simjoin.request.spec import JoinSpec, RowSpec

NEIGHBORS = "neighbors"
"""Name of a Series of neighbor counts, or of counts of matches."""


def series_example(meta: Frame, name: str | None, dtype: DType = np.int64) -> Series:
    """Return an empty example of a Series with one value per row, which has the index
    of the frame.
    """
    return frames_for(meta).series(np.zeros(0, dtype), meta.index[:0], name)


def counts_example(meta: Frame, spec: JoinSpec) -> Series | Frame:
    """Return an empty example of neighbor counts: a Series, or for several distances a
    frame with a column for each.
    """
    example = series_example(meta, NEIGHBORS)
    if not spec.several:
        return example
    values = frames_for(meta).xp.zeros((0, len(spec.several)), np.int64)
    shape = pd.DataFrame(
        columns=pd.Index(spec.several, dtype=np.float64), dtype=np.int64
    )
    return frames_for(meta).rows(values, meta.index[:0], shape)


def pairs_example(left: Frame, right: Frame, spec: RowSpec, how: str = INNER) -> Frame:
    """Return an empty example of pairs. `how`: see `join`; rows that stay without a
    match have missing values in the columns of the other table.
    """
    frames = frames_for(left)
    none = np.zeros(0, np.int64)
    ids = example_ids(left, spec)
    same = right is left and spec.other is None
    columns = {
        "left": ids,
        "right": ids if same else example_ids(right, spec.other or spec),
    }
    if spec.score is not None:
        columns[spec.score] = np.empty(0)
    kept = frames.columns_at(left, spec.kept_left, none)
    kept |= frames.columns_at(right, spec.kept_right, none)
    columns |= {
        name: kept[name] for name in (kept if spec.wanted is None else spec.wanted)
    }
    example = frames.result(columns, 0)
    if how not in KEEPS:
        return example
    sides = {
        "right": ("left", spec.id, spec.kept_left),
        "left": ("right", spec.other and spec.other.id, spec.kept_right),
    }
    dtypes = dict(zip(example.columns, example.dtypes, strict=True))
    optional = []
    for keeps in KEEPS[how]:
        side, id, kept = sides[keeps]
        for name in [side, *(name for name in kept if name in dtypes)]:
            if _are_unknown(getattr(dtypes[name], "categories", ())):
                raise _unknown_categories(how, side, kept.get(name, id))
            optional.append(name)
    return _with_optional(example, optional)


def _unknown_categories(how: str, side: str, column: Hashable) -> ColumnError:
    named = "the index" if column is None else repr(column)
    frame = "other" if side == "right" else "frame"
    return ColumnError(
        f"how={how!r} adds missing values to {named} of the {side} table, whose "
        f"categories Dask does not know. Use {frame}.categorize() first, which reads "
        "the categories, or convert the column, for example with .astype('object')."
    )


def _with_optional(example: Frame, names: list[str]) -> Frame:
    """Give columns of an empty frame the dtypes with missing values."""
    frames = frames_for(example)
    dtypes = dict(zip(example.columns, example.dtypes, strict=True))
    found: dict[int, DType] = {}  # most columns share a dtype, and finding it is slow
    for name in names:
        dtype = dtypes[name]
        if id(dtype) not in found:
            found[id(dtype)] = frames.optional(dtype)
    every = {name: name for name in example.columns}
    columns = frames.columns_at(example, every, np.zeros(0, np.int64))
    for name in names:
        if found[id(dtypes[name])] != dtypes[name]:
            columns[name] = example[name].astype(found[id(dtypes[name])])
    return frames.result(columns, 0)


def nearest_example(
    left: Frame, right: Frame, spec: JoinSpec, how: str = INNER
) -> Frame:
    """Return an empty example of a nearest-neighbor join; `how`: see `pairs_example`."""
    pairs = pairs_example(left, right, spec, how)
    frames, names = frames_for(left), {name: name for name in pairs.columns}
    columns = frames.columns_at(pairs, names, np.zeros(0, np.int64))
    of_rows = spec.kept_left | spec.kept_right
    kept = {name: columns.pop(name) for name in list(columns) if name in of_rows}
    own = {
        "left": columns["left"],
        "right": columns["right"],
        "rank": np.zeros(0, np.int64),
    }
    if how == LEFT:
        rank = frames.result({"rank": own["rank"]}, 0)
        own["rank"] = _with_optional(rank, ["rank"])["rank"]
    return frames.result(own | {"distance": columns["distance"]} | kept, 0)


def _are_unknown(categories: Iterable[Hashable]) -> bool:
    """Return whether categories are Dask's placeholder for categories that it does not
    know.
    """
    # Dask's data frames are not imported, so no frame is one of them
    if "dask.dataframe" not in sys.modules:
        return False
    from dask_simjoin.graph.dask_private import UNKNOWN_CATEGORIES

    return UNKNOWN_CATEGORIES in categories
