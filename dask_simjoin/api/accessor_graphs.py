"""The verbs that give sparse matrices, as methods of the accessor."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from dask_simjoin.api import neighbor_graph as neighbor_graphs
from dask_simjoin.options.validate import known_options


class GraphVerbs:
    """See `SimJoinAccessor`."""

    _frame: Any

    @known_options
    def neighbor_graph(self, eps: float, *, on: Any = None, id: Hashable | None = None,
                       metric: str = "euclidean", p: float = 2, mode: str = "distance",
                       include_self: bool = False, dropna: bool = False, method: str = "auto",
                       partitioning: str = "auto", blocksize: Any = None) -> Any:  # fmt: skip
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
        return neighbor_graphs.neighbor_graph(
            self._frame, eps, on=on, id=id, metric=metric, p=p, mode=mode, include_self=include_self,
            dropna=dropna, method=method, partitioning=partitioning, blocksize=blocksize,
        )  # fmt: skip
