"""Count neighbors and pairs without building them; give neighbors as a sparse matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for
from dask_simjoin.graph import counts
from dask_simjoin.graph import pairs as lazy
from dask_simjoin.graph.base import counts_example, pairs_by_eps
from dask_simjoin.graph.dask_private import new_collection
from dask_simjoin.graph.source import freeze
from dask_simjoin.graph.verb import verb
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.data_warnings import raise_if_none
from dask_simjoin.planning.outputs import COUNTS, LISTS
from dask_simjoin.request.inputs import example_of
from dask_simjoin.request.requests import CountPairsRequest, NeighborCountsRequest, NeighborGraphRequest
from dask_simjoin.tasks import csr
from dask_simjoin.tasks.chunks import whole_chunk
from dask_simjoin.tasks.counts import count_block, count_block_pairs
from dask_simjoin.tasks.matches import whole_block_pair

Number = Any
"""An int, or a lazy Scalar of Dask; of several distances a Series."""


@verb(NeighborCountsRequest)
def neighbor_counts(frame: Frame, asked: NeighborCountsRequest) -> Series | Frame:
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
    found, _ = count_block(whole_block_pair(chunk, spec, plan.layout))
    raise_if_none(plan.data_warnings, found.sum())
    return frames_for(meta).rows(found, chunk["ids"], example)


@verb(CountPairsRequest)
def count_pairs(frame: Frame, asked: CountPairsRequest) -> Number:
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
    found = count_block_pairs(whole_block_pair(chunk, spec, plan.layout)) if plan.meets else 0
    if plan.meets:
        raise_if_none(plan.data_warnings, np.max(found))
    return pairs_by_eps(found, spec, meta) if spec.several else found


Matrix = Any
"""A sparse matrix of SciPy or CuPy, or a Delayed of one."""


@verb(NeighborGraphRequest)
def neighbor_graph(frame: Frame, asked: NeighborGraphRequest) -> Matrix:
    """The rows within `eps` of each row as a sparse matrix, for ``metric="precomputed"``.

    Other parameters are those of `self_join`; `id` only says which column is no coordinate.

    Parameters
    ----------
    eps : float
        Largest distance, finite and >= 0, in the units of the metric.
    mode : {"distance", "connectivity"}
        Whether entries are distances, or 1.
    include_self : bool
        Whether each row is a neighbour of itself.  scikit-learn's DBSCAN and OPTICS see to that
        themselves; its NearestNeighbors needs it, to be asked for neighbours of its own rows.

    Returns
    -------
    scipy.sparse.csr_matrix, or a dask.delayed.Delayed of one
        Of shape (n, n), where n is the number of rows of the frame, and row and column r its r-th row,
        whatever the index says; rows that `dropna` leaves out are empty.  Entries are float64.  Those of
        rows at distance 0 are stored.  In each row they are sorted by distance and then by column, as
        scikit-learn wants it: all its tools that take ``metric="precomputed"`` take the matrix as it
        is.  With ``mode="connectivity"`` that is by column.  Columns and offsets are int64.

        Of cuDF frames it is a ``cupyx.scipy.sparse.csr_matrix``, whose columns and offsets are int32
        up to 2,147,483,647 entries, and int64 beyond, which CuPy has since 14.1.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, CoordinateError
        As `self_join` and its planning do.
    ModuleNotFoundError
        At the call: SciPy is not installed.
    BudgetError
        The matrix does not fit: the memory of this machine, of the smallest worker or of a GPU, the
        configuration's ``simjoin.result-limit``, or, before CuPy 14.1, int32.  Neighbours are counted
        before any is stored.

    Notes
    -----
    Neighbours are counted, and then written where they belong: a plain frame needs little more memory
    than the result has, which is 16 bytes for each entry and 8 for each row.  Of a Dask DataFrame the
    matrix is put together by one worker, which needs 28 bytes for each entry.  It is planned when its
    tasks are first asked for: when it is computed, or when another delayed call is made of it.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> from sklearn.cluster import DBSCAN
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 1.0, 9.0]})
    >>> graph = df.simjoin.neighbor_graph(2.0)
    >>> graph.indptr.tolist()
    [0, 2, 4, 6, 6]
    >>> graph.indices.tolist(), graph.data.tolist()
    ([1, 2, 2, 0, 1, 0], [1.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    >>> graph = df.simjoin.neighbor_graph(2.0, include_self=True)  # as DBSCAN wants it
    >>> DBSCAN(eps=1.0, min_samples=3, metric="precomputed").fit(graph).labels_.tolist()
    [0, 0, 0, -1]
    """
    meta = example_of(frame)
    spec = asked.spec(meta)
    frames = frames_for(meta)
    csr.sparse(frames.xp)  # it is missing now, and not when a lazy result is computed
    # rows are called by their numbers in their partitions: some may be left out
    if is_dask_collection(frame):
        numbered = frame[spec.columns].map_partitions(
            _numbered, meta=_numbered(meta[spec.columns]), enforce_metadata=False, clear_divisions=True
        )
        source = freeze(numbered, spec.columns)
        return lazy.LazyGraph(lazy.NeighborGraph(source, spec, asked.mode, meta[spec.columns]))
    chunk, plan = whole_chunk(_numbered(frame[spec.columns]), spec, LISTS)
    own = frames.memory()
    have = Resources(memory=own, gpu=own is not None)
    fitting = lazy.fitting_for(spec, len(frame), meta, have, pieces=False)
    fitting.check(2 * plan.estimate.total_low + plan.rows * spec.include_self, sampled=True)
    return csr.graph_of_chunk(chunk, spec, plan.layout, asked.mode, fitting, plan.estimate.total)


def _numbered(part: Frame) -> Frame:
    return part.reset_index(drop=True)
