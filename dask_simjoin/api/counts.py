"""Count neighbors and pairs without building them, and return neighbors as a sparse
matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for
from dask_simjoin.graph.verb import counts_example, pairs_by_eps, verb
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.planning.data_warnings import (
    count_copies,
    naming_causes,
    raise_if_none,
)
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import COUNTS, LISTS, directions
from dask_simjoin.planning.resources import plain_threads
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.requests import (
    CountPairsRequest,
    NeighborCountsRequest,
    NeighborGraphRequest,
)
from dask_simjoin.tasks import csr, local
from dask_simjoin.tasks.chunks import whole_chunk
from dask_simjoin.tasks.left_out import for_all_rows
from dask_simjoin.tasks.matches import whole_block_pair

Number = Any
"""An int, or a lazy Dask Scalar. For several distances, a Series."""


@verb(NeighborCountsRequest)
def neighbor_counts(frame: Frame, request: NeighborCountsRequest) -> Series | Frame:
    """Count the other rows within a distance `eps` of each row.

    Parameters
    ----------
    eps : float, str, column or list
        Largest distance, finite and >= 0, in the units of the metric; see `self_join`.
        For a list of distances, the result has one column per distance; all are counted
        in one pass.
    id : column, optional
        A column to exclude from the default coordinates. Its values are not read, so
        they may repeat.
    on, by, metric, p, dropna, method, approximate, partitioning, blocksize
        As in `self_join`.

    Returns
    -------
    Series or DataFrame
        A Series "neighbors" (int64) with the index and partitions of the frame; a row
        does not count itself. For a list of distances it is a DataFrame with one int64
        column per distance, named by that distance. Rows that `dropna` leaves out
        have 0. The result is lazy if the frame is.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, CoordinateError, BudgetError,
    SourceChangedError
        As in `self_join`.

    Notes
    -----
    Pairs are counted, not built, so memory does not grow with their number. With
    "spatial" chunks (rows shuffled into regions, see `self_join`) the source is read a
    third time, to get the index of the result.

    .. image:: /images/places.png
       :alt: Places of North America, colored by their number of neighbors

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]})
    >>> df.simjoin.neighbor_counts(1.0).tolist()
    [1, 2, 1, 0]

    Two distances in one pass:

    >>> df.simjoin.neighbor_counts([1.0, 7.0]).to_dict("list")
    {1.0: [1, 2, 1, 0], 7.0: [2, 2, 3, 1]}

    Rows without a neighbor:

    >>> df[df.simjoin.neighbor_counts(1.0) == 0]
         x
    3  9.0
    """
    meta = example_of(frame)
    spec = request.spec(meta)
    example = counts_example(meta, spec)
    if is_dask_collection(frame):
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.row_values import NeighborCounts
        from dask_simjoin.graph.source import freeze

        source = freeze(frame, spec.columns)
        return new_collection(NeighborCounts(source.inner, source, spec, example))
    threads = plain_threads()
    chunk, plan = whole_chunk(frame, spec, COUNTS, threads=threads)
    if plan.meets:
        block_pair = whole_block_pair(chunk, spec, plan.layout)
        found = local.count_rows(block_pair, plan, threads)
        each = 2 * max(1, len(spec.several))
        raise_if_none(
            plan.tables.warnings,
            found.sum(),
            lambda: each * count_copies([frame], spec),
        )
    else:
        xp = frames_for(meta).xp
        found = xp.zeros((0, *example.shape[1:]), np.int64)
    return frames_for(meta).rows(*for_all_rows(found, frame, spec, 0), example)


@verb(CountPairsRequest)
def count_pairs(frame: Frame, request: CountPairsRequest) -> Number:
    """Count the pairs that `self_join` returns with the same options.

    Parameters
    ----------
    eps : float, str, column or list
        Largest distance, finite and >= 0, in the units of the metric; see `self_join`.
        For a list of distances, the result has one number per distance (a cumulative
        histogram); all are counted in one pass.
    id : column, optional
        A column to exclude from the default coordinates. Its values are not read, so
        they may repeat.
    on, by, metric, p, pairs, include_self, dropna, method, approximate, partitioning,
    blocksize
        As in `self_join`.

    Returns
    -------
    int, or a lazy Dask Scalar
        The number of pairs. For a list of distances it is a Series "pairs" (int64), and
        its index "eps" has the distances. The result is lazy if the frame is.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, CoordinateError, BudgetError,
    SourceChangedError
        As in `self_join`.

    Notes
    -----
    Pairs are counted, not built, so memory does not grow with their number.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]})
    >>> df.simjoin.count_pairs(1.0)
    2
    >>> df.simjoin.count_pairs([1.0, 2.0, 0.5])
    eps
    1.0    2
    2.0    3
    0.5    0
    Name: pairs, dtype: int64

    The lazy count of a Dask DataFrame:

    >>> import dask.dataframe as dd
    >>> dd.from_pandas(df, npartitions=2).simjoin.count_pairs(1.0).compute()
    2
    """
    meta = example_of(frame)
    spec = request.spec(meta)
    if is_dask_collection(frame):
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.pairs import CountPairs
        from dask_simjoin.graph.source import freeze

        source = freeze(frame, spec.columns)
        if spec.several:
            return new_collection(
                CountPairs(source, spec, pairs_by_eps(0, spec, meta).iloc[:0], meta)
            )
        return new_collection(CountPairs(source, spec, 0))
    threads = plain_threads()
    chunk, plan = whole_chunk(frame, spec, COUNTS, threads=threads)
    found: Number = 0
    if plan.meets:
        block_pair = whole_block_pair(chunk, spec, plan.layout)
        found = local.count_pairs(block_pair, plan, threads)
        pairs_found = np.max(found) - plan.rows * spec.include_self
        raise_if_none(
            plan.tables.warnings,
            pairs_found,
            lambda: directions(spec) * count_copies([frame], spec),
        )
    return pairs_by_eps(found, spec, meta) if spec.several else found


Matrix = Any
"""A sparse matrix of SciPy or CuPy, or a Dask Delayed of one."""


@verb(NeighborGraphRequest)
def neighbor_graph(frame: Frame, request: NeighborGraphRequest) -> Matrix:
    """Return a sparse matrix of the distances between rows that are at most `eps`
    apart.

    scikit-learn accepts this matrix with ``metric="precomputed"``.

    Parameters
    ----------
    eps : float or str
        Largest distance, finite and >= 0, in the units of the metric; see `self_join`.
    mode : {"distance", "connectivity"}, default "distance"
        The entries of the matrix: distances, or 1.
    include_self : bool, default False
        Whether each row is a neighbor of itself. scikit-learn's NearestNeighbors needs
        this if the queries are the fitted rows. DBSCAN and OPTICS of scikit-learn do
        not need it, because they add each row themselves.
    distance_unit : str, optional
        Unit of the distances, as in `self_join`. Default: the unit in `eps`, or the
        unit of the metric.
    id : column, optional
        A column to exclude from the default coordinates. Its values are not read, so
        they may repeat.
    on, by, metric, p, dropna, method, partitioning, blocksize
        As in `self_join`.

    Returns
    -------
    scipy.sparse.csr_matrix, or a dask.delayed.Delayed of one
        A matrix of shape (n, n) for a frame of n rows. Row and column r are the r-th
        row of the frame, independent of the index. Entries are float64; distances of 0
        are stored. Rows that `dropna` leaves out are empty. With ``mode="distance"`` each
        row is sorted by distance and then by column, as scikit-learn requires. With
        ``mode="connectivity"`` it is sorted by column. Columns and offsets are int64.

        For cuDF frames it is a ``cupyx.scipy.sparse.csr_matrix``. Its columns and
        offsets are int32 for up to 2,147,483,647 entries. Beyond that they are int64,
        which CuPy supports since 14.1.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, CoordinateError
        As in `self_join`.
    ModuleNotFoundError
        At the call: SciPy is not installed.
    BudgetError
        The matrix does not fit in the memory of this machine, of the smallest worker or
        of a GPU. Or it exceeds the configuration value ``simjoin.result-limit``. Or
        CuPy is older than 14.1, and the matrix has more entries than int32 can count.
        Neighbors are counted before any neighbor is stored.

    Notes
    -----
    Neighbors are counted first, and then written to their final positions. So a plain
    frame needs little more memory than the result: 16 bytes per entry and 8 per row.
    For a Dask DataFrame one worker builds the matrix, with 28 bytes per entry. Planning
    runs when the result is computed, or when another delayed call uses it.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> from sklearn.cluster import DBSCAN
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 1.0, 9.0]})
    >>> graph = df.simjoin.neighbor_graph(2.0)
    >>> graph.toarray().tolist()
    [[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    >>> graph.nnz  # with the two distances of 0
    6

    Clusters by scikit-learn:

    >>> graph = df.simjoin.neighbor_graph(2.0, include_self=True)
    >>> DBSCAN(eps=1.0, min_samples=3, metric="precomputed").fit(graph).labels_.tolist()
    [0, 0, 0, -1]
    """
    meta = example_of(frame)
    spec = request.spec(meta)
    frames = frames_for(meta)
    csr.sparse(frames.xp)  # if SciPy is missing, raise an error at the call
    # number rows before `dropna`, so that rows that it leaves out become empty rows of
    # the matrix
    if is_dask_collection(frame):
        numbered = frame[spec.columns].map_partitions(
            _numbered,
            meta=_numbered(meta[spec.columns]),
            enforce_metadata=False,
            clear_divisions=True,
        )
        from dask_simjoin.graph import pairs as lazy
        from dask_simjoin.graph.source import freeze

        source = freeze(numbered, spec.columns)
        return lazy.LazyGraph(
            lazy.NeighborGraph(source, spec, request.mode, meta[spec.columns])
        )
    chunk, plan = whole_chunk(_numbered(frame[spec.columns]), spec, LISTS)
    own = frames.memory()
    limits = Limits(memory=own, gpu=own is not None)
    fitting = csr.fitting_for(spec, len(frame), meta, limits, pieces=False)
    with naming_causes(lambda: plan.tables.warnings):
        fitting.check(
            2 * plan.result.estimate.total_low + plan.rows * spec.include_self,
            sampled=True,
        )
        graph = csr.graph_of_chunk(
            chunk, spec, plan.layout, request.mode, fitting, plan.result.estimate.total
        )
    entries = graph.nnz - plan.rows * spec.include_self
    raise_if_none(
        plan.tables.warnings, entries, lambda: 2 * count_copies([frame], spec)
    )
    return graph


def _numbered(part: Frame) -> Frame:
    return part.reset_index(drop=True)
