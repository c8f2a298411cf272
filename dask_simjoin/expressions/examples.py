"""Make empty examples of results: Dask asks for them before anything is computed."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import ColumnError
from dask_simjoin.expressions.dask_private import UNKNOWN_CATEGORIES
from dask_simjoin.metrics.types import Array, DType, Frame, Series
from dask_simjoin.options.frames import example_ids
from dask_simjoin.options.spec import JoinSpec, RowSpec

NEIGHBORS = "neighbors"
"""Name of the Series of numbers of rows that are near, or match."""

PAIRS, EPS = "pairs", "eps"
"""Names of the Series of numbers of pairs within several distances, and of its index."""


def series_example(meta: Frame, name: str | None, dtype: DType = np.int64) -> Series:
    """An empty example of numbers of rows, with the frame's index."""
    return frames_for(meta).series(np.zeros(0, dtype), meta.index[:0], name)


def counts_example(meta: Frame, spec: JoinSpec) -> Series | Frame:
    """An empty example of numbers of neighbours: of several distances a column for each."""
    example = series_example(meta, NEIGHBORS)
    if not spec.several:
        return example
    values = frames_for(meta).xp.zeros((0, len(spec.several)), np.int64)
    shape = pd.DataFrame(columns=pd.Index(spec.several, dtype=np.float64), dtype=np.int64)
    return frames_for(meta).rows(values, meta.index[:0], shape)


def pairs_by_eps(numbers: Array | int, spec: JoinSpec, meta: Frame) -> Series:
    """A Series of numbers of pairs within each of several distances; `meta`: an example of the frame."""
    frames = frames_for(meta)
    values = frames.xp.zeros(len(spec.several), np.int64) + frames.xp.asarray(numbers)
    index = frames.index(np.array(spec.several)).rename(EPS)
    return frames.series(values, index, PAIRS)


def pairs_example(left: Frame, right: Frame, spec: RowSpec, some_missing: bool = False) -> Frame:
    """An empty example of pairs; `some_missing`: right rows may be missing."""
    frames = frames_for(left)
    none = np.zeros(0, np.int64)
    columns = {"left": example_ids(left, spec), "right": example_ids(right, spec.other or spec)}
    if spec.score is not None:
        columns[spec.score] = np.empty(0)
    columns |= {called: frames.values(left, name, none) for called, name in spec.kept_left.items()}
    columns |= {called: frames.values(right, name, none) for called, name in spec.kept_right.items()}
    example = frames.result(columns, 0)
    if not some_missing:
        return example
    of_right = ["right", *spec.kept_right]
    for name in of_right:
        if UNKNOWN_CATEGORIES in getattr(example[name].dtype, "categories", ()):
            column = spec.kept_right.get(name, spec.other and spec.other.id)
            named = "the index" if column is None else repr(column)
            raise ColumnError(
                f"how='left' makes missing values of {named} of the right table, whose categories Dask does "
                "not know; use other.categorize() first, which reads them, or convert it, for example with "
                ".astype('object')."
            )
    return example.astype({name: frames.optional(example[name].dtype) for name in of_right})


def nearest_example(left: Frame, right: Frame, spec: JoinSpec) -> Frame:
    """An empty example of the rows of a nearest-neighbour join."""
    pairs = pairs_example(left, right, spec, False)
    columns = {name: pairs[name] for name in pairs.columns}
    kept = {
        name: columns.pop(name) for name in list(columns) if name in spec.kept_left or name in spec.kept_right
    }
    own = {"left": columns["left"], "right": columns["right"], "rank": np.zeros(0, np.int64)}
    return frames_for(left).result(own | {"distance": columns["distance"]} | kept, 0)
