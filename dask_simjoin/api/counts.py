"""Count neighbors and pairs without building them, and return neighbors as a sparse
matrix.
"""

from __future__ import annotations

from typing import Any

from dask_simjoin.calls import verbs
from dask_simjoin.calls.decorators import verb
from dask_simjoin.cluster.distances import DISTANCES
from dask_simjoin.engine.base import frames_for
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.requests import (
    CountPairsRequest,
    NeighborCountsRequest,
    NeighborGraphRequest,
)
from dask_simjoin.tasks import csr

Number = Any
"""An int, or a lazy Dask Scalar. For several distances, a Series."""


@verb(NeighborCountsRequest)
def neighbor_counts(frame: Frame, request: NeighborCountsRequest) -> Series | Frame:
    """Count the other rows within a distance `eps` of each row, or the rows of another
    table.

    Parameters
    ----------
    eps : float, str, column or list
        Largest distance, finite and >= 0, in the units of the metric; see `self_join`.
        For a list of distances, the result has one column per distance; all are counted
        in one pass.
    other : DataFrame, optional
        The table whose rows are counted, for each row of this table. Default: the other
        rows of this table. A row that is in both tables counts itself.
    id : column, optional
        A column to exclude from the default coordinates. Its values are not read, so
        they may repeat.
    left_on, right_on, left_id, right_id
        As in `join`; only with `other`.
    on, by, within, different, metric, p, box, dropna, method, approximate, partitioning,
    blocksize, threads
        As in `self_join`, and with `other` as in `join`.

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

    The rows of another table:

    >>> shops = pd.DataFrame({"x": [0.5, 1.5, 8.0]})
    >>> df.simjoin.neighbor_counts(1.0, other=shops).tolist()
    [1, 2, 1, 1]

    Two distances in one pass:

    >>> df.simjoin.neighbor_counts([1.0, 7.0]).to_dict("list")
    {1.0: [1, 2, 1, 0], 7.0: [2, 2, 3, 1]}

    Rows without a neighbor:

    >>> df[df.simjoin.neighbor_counts(1.0) == 0]
         x
    3  9.0
    """
    return verbs.neighbor_counts(frame, request, DISTANCES)


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
    on, by, within, different, metric, p, box, pairs, include_self, dropna, method,
    approximate, partitioning, blocksize, threads
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
    return verbs.count_pairs(frame, request, DISTANCES)


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
    id : column, optional
        A column to exclude from the default coordinates. Its values are not read, so
        they may repeat.
    distance_unit : str, optional
        Unit of the distances, as in `self_join`. Default: the unit in `eps`, or the
        unit of the metric.
    include_self : bool, default False
        Whether each row is a neighbor of itself. scikit-learn's NearestNeighbors needs
        this if the queries are the fitted rows. DBSCAN and OPTICS of scikit-learn do
        not need it, because they add each row themselves.
    on, metric, by, within, different, dropna, p, box, threads, blocksize, partitioning, method
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
    csr.sparse(frames_for(meta).xp)  # if SciPy is missing, raise an error at the call
    return DISTANCES.of([frame], spec).graph(request.mode)
