"""Count the neighbours of rows, and pairs, of which none is materialised."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for
from dask_simjoin.expressions import counts
from dask_simjoin.expressions.dask_private import new_collection
from dask_simjoin.expressions.examples import counts_example, pairs_by_eps
from dask_simjoin.expressions.source import freeze
from dask_simjoin.metrics.types import Frame, Series
from dask_simjoin.options.calls import verb
from dask_simjoin.options.frames import example_of
from dask_simjoin.options.requests import CountPairs, NeighborCounts
from dask_simjoin.planning.doubts import raise_if_none
from dask_simjoin.planning.goal import COUNTS
from dask_simjoin.tasks.counts import count_block, count_block_pairs
from dask_simjoin.tasks.meeting import whole_meeting
from dask_simjoin.tasks.whole import whole_chunk

Number = Any
"""An int, or a lazy Scalar of Dask; of several distances a Series."""


@verb(NeighborCounts)
def neighbor_counts(frame: Frame, asked: NeighborCounts) -> Series | Frame:
    """How many rows lie within `eps` of each row, the row itself not counted.

    No pair is materialised.  Parameters are those of `self_join`; `id` only says which column
    is no coordinate.  With spatial chunks the source is read a third time, for its labels.
    `eps` may be a list: all are counted in one pass over the pairs within the largest.

    Returns
    -------
    Series or DataFrame
        int64, named "neighbors", with the frame's index and partitions.  Rows that `dropna`
        leaves out have no entry.  Of a list a column for each distance, which it is called by.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]})
    >>> df.simjoin.neighbor_counts(1.0).tolist()
    [1, 2, 1, 0]
    >>> df.simjoin.neighbor_counts([1.0, 7.0]).to_dict("list")
    {1.0: [1, 2, 1, 0], 7.0: [2, 2, 3, 1]}
    """
    meta = example_of(frame)
    spec = asked.spec(meta)
    example = counts_example(meta, spec)
    if is_dask_collection(frame):
        source = freeze(frame, spec.columns)
        return new_collection(counts.NeighborCounts(source.inner, source, spec, example))
    chunk, plan = whole_chunk(frame, spec, COUNTS)
    if not plan.meets:
        return example
    found, _ = count_block(whole_meeting(chunk, spec, plan.layout))
    raise_if_none(plan.doubts, found.sum())
    return frames_for(meta).rows(found, chunk["ids"], example)


@verb(CountPairs)
def count_pairs(frame: Frame, asked: CountPairs) -> Number:
    """The number of rows that `self_join` would return, without materialising any.

    Parameters are those of `self_join`; `id` only says which column is no coordinate.
    `eps` may be a list, as of a cumulative histogram of distances: all are counted in one pass
    over the pairs within the largest.

    Returns
    -------
    int, or a lazy Dask Scalar
        Of a list a Series "pairs" (int64), lazy or not, whose index "eps" is the list.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]}).simjoin.count_pairs(1.0)
    2
    >>> pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]}).simjoin.count_pairs([1.0, 2.0, 0.5]).tolist()
    [2, 3, 0]
    """
    meta = example_of(frame)
    spec = asked.spec(meta)
    if is_dask_collection(frame):
        source = freeze(frame, spec.columns)
        if spec.several:
            return new_collection(counts.CountPairs(source, spec, pairs_by_eps(0, spec, meta).iloc[:0], meta))
        return new_collection(counts.CountPairs(source, spec, 0))
    chunk, plan = whole_chunk(frame, spec, COUNTS)
    found = count_block_pairs(whole_meeting(chunk, spec, plan.layout)) if plan.meets else 0
    if plan.meets:
        raise_if_none(plan.doubts, np.max(found))
    return pairs_by_eps(found, spec, meta) if spec.several else found
