"""The verbs of joins, as functions of a frame: lazy on Dask DataFrames, eager on plain ones."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.api.arguments import pairs_example, self_spec
from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import ColumnError, OptionTypeError
from dask_simjoin.expressions.counts import CountPairs, NeighborCounts
from dask_simjoin.expressions.dask_private import new_collection
from dask_simjoin.expressions.pairs import SelfJoin
from dask_simjoin.expressions.source import freeze
from dask_simjoin.options.columns import ROW_ID, check_columns
from dask_simjoin.options.frames import checked_spec, example_of, unnamed
from dask_simjoin.options.messages import shown
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.options.validate import known_options
from dask_simjoin.planning.doubts import raise_if_none
from dask_simjoin.planning.free_memory import within_memory
from dask_simjoin.tasks import pairs as blocks
from dask_simjoin.tasks.counts import count_block, count_block_pairs
from dask_simjoin.tasks.whole import eps_of, whole_chunk

COUNTS = "neighbors"
"""Name of the Series of numbers of neighbours."""


@known_options
def self_join(frame: Any, eps: Any, *, on: Any = None, id: Hashable | None = None,
              metric: str = "euclidean", p: float = 2, pairs: str = "unique", include_self: bool = False,
              return_distance: bool = False, keep: Any = None, suffixes: Any = ("_left", "_right"),
              dropna: bool = False, method: str = "auto", partitioning: str = "auto",
              blocksize: Any = None) -> Any:  # fmt: skip
    """Every pair of rows within `eps` of each other; see `SimJoinAccessor.self_join`."""
    meta = example_of(frame)
    spec = self_spec(
        meta, eps, on=on, id=id, metric=metric, p=p, pairs=pairs, include_self=include_self,
        return_distance=return_distance, keep=keep, suffixes=suffixes, dropna=dropna, method=method,
        partitioning=partitioning, blocksize=blocksize,
    )  # fmt: skip
    example = pairs_example(meta, meta, spec)
    if is_dask_collection(frame):
        return _lazy(SelfJoin, frame, spec, example)
    chunk, plan = whole_chunk(frame, spec, named=True)
    if not len(plan):
        return example
    names = list(example.columns)
    with within_memory(eps_of(spec)):
        found = blocks.join_block(chunk, chunk, spec, plan.layout, True, names)
    raise_if_none(plan.doubts, len(found))
    return found


@known_options
def neighbor_counts(frame: Any, eps: Any, *, on: Any = None, id: Hashable | None = None,
                    metric: str = "euclidean", p: float = 2, dropna: bool = False,
                    method: str = "auto", partitioning: str = "auto",
                    blocksize: Any = None) -> Any:  # fmt: skip
    """Each row's number of neighbours; see `SimJoinAccessor.neighbor_counts`."""
    meta = example_of(frame)
    spec = checked_spec(
        meta, eps, on=on, id=id, metric=metric, p=p, dropna=dropna, method=method, partitioning=partitioning,
        blocksize=blocksize, radii=True,
    )  # fmt: skip
    spec = unnamed(spec)
    example = frames_for(meta).series(np.zeros(0, np.int64), meta.index[:0], COUNTS)
    if is_dask_collection(frame):
        source = freeze(frame, spec.columns)
        return new_collection(NeighborCounts(source.inner, source, spec, example))
    chunk, plan = whole_chunk(frame, spec, named=False)
    if not len(plan):
        return example
    counts, _ = count_block(chunk, chunk, spec, plan.layout, True)
    raise_if_none(plan.doubts, counts.sum())
    return frames_for(meta).series(counts, chunk["ids"], COUNTS)


@known_options
def count_pairs(frame: Any, eps: Any, *, on: Any = None, id: Hashable | None = None,
                metric: str = "euclidean", p: float = 2, pairs: str = "unique", include_self: bool = False,
                dropna: bool = False, method: str = "auto", partitioning: str = "auto",
                blocksize: Any = None) -> Any:  # fmt: skip
    """The number of pairs; see `SimJoinAccessor.count_pairs`."""
    meta = example_of(frame)
    spec = self_spec(
        meta, eps, on=on, id=id, metric=metric, p=p, pairs=pairs, include_self=include_self, dropna=dropna,
        method=method, partitioning=partitioning, blocksize=blocksize,
    )  # fmt: skip
    spec = unnamed(spec)
    if is_dask_collection(frame):
        return _lazy(CountPairs, frame, spec, 0)
    chunk, plan = whole_chunk(frame, spec, named=False)
    if not len(plan):
        return 0
    found = count_block_pairs(chunk, chunk, spec, plan.layout, True)
    raise_if_none(plan.doubts, found)
    return found


@known_options
def with_row_id(frame: Any, name: str = ROW_ID) -> Any:
    """The frame with a column of row numbers; see `SimJoinAccessor.with_row_id`."""
    meta = example_of(frame)
    check_columns(meta)
    if not isinstance(name, str):
        raise OptionTypeError(f"name={shown(name)} is not a string; name the new column, such as {ROW_ID!r}.")
    if name in meta.columns:
        raise ColumnError(
            f"name={name!r} is a column already; use it with id={name!r}, or choose another name."
        )
    if not is_dask_collection(frame):
        return frame.assign(**{name: np.arange(len(frame), dtype=np.int64)})
    if not len(meta.columns):
        raise ColumnError("The frame has no column, so its rows cannot be numbered.")
    # one column stands for the rows, so that counting them reads no other
    ones = frame[meta.columns[0]].map_partitions(_ones, meta=_ones(meta.iloc[:, 0]))
    return frame.assign(**{name: ones.cumsum() - 1})


def _ones(column: Any) -> Any:
    return frames_for(column).series(np.ones(len(column), np.int64), column.index, ROW_ID)


def _lazy(kind: Any, frame: Any, spec: JoinSpec, example: Any) -> Any:
    return new_collection(kind(freeze(frame, spec.columns), spec, example))
