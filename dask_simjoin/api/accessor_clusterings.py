"""The verbs of clusterings, as methods of the accessor."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from dask_simjoin.api.knn import k_distances
from dask_simjoin.cluster import verbs as clusterings
from dask_simjoin.options.validate import known_options


class ClusteringVerbs:
    """See `SimJoinAccessor`."""

    _frame: Any

    @known_options
    def dbscan(self, eps: float, min_samples: int = 5, *, on: Any = None, id: Hashable | None = None,
               metric: str = "euclidean", p: float = 2, dropna: bool = False, method: str = "auto",
               partitioning: str = "auto", blocksize: Any = None) -> Any:  # fmt: skip
        """Clusters of rows by density: DBSCAN.

        Labels are those of ``sklearn.cluster.DBSCAN(eps, min_samples=..., algorithm="kd_tree")``, for
        every number of partitions. There is one exception: its tree takes in whole nodes whose far end is
        within the rounded `eps`, so pairs whose squared distance lies between ``eps*eps`` as rounded and as
        it is may be neighbours there, and are none here. No list of neighbours is made: memory holds the
        chunks of a task, a few numbers for each row, and the chunks' components.

        Parameters
        ----------
        eps : float
            Largest distance of neighbours, as in `self_join`.
        min_samples : int
            A row with at least so many rows within `eps`, itself included, is a core row.
        on, id, metric, p, dropna, method, partitioning, blocksize
            As in `self_join`; `id` only says which column is no coordinate.

        Returns
        -------
        Series
            int64, named "label", with the frame's index and partitions: the number of each row's
            cluster, or -1 for noise. Clusters are numbered by their first core row, from 0; a row near
            core rows of several clusters is in the one of the lowest number. Rows that `dropna` leaves
            out have no entry.

        Notes
        -----
        Ester, Kriegel, Sander & Xu (1996), "A density-based algorithm for discovering clusters in large
        spatial databases with noise". Core rows are connected within each chunk first, and across
        chunks only by their components. Spatial chunks have no halos here: each meets those around it.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0, 20.0, 21.0, 22.0]})
        >>> df.simjoin.dbscan(1.0, min_samples=3).tolist()
        [0, 0, 0, -1, 1, 1, 1]
        """
        return clusterings.dbscan(
            self._frame, eps, min_samples, on=on, id=id, metric=metric, p=p, dropna=dropna, method=method,
            partitioning=partitioning, blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def optics(self, max_eps: float, min_samples: int = 5, *, mode: str = "edges", on: Any = None,
               id: Hashable | None = None, metric: str = "euclidean", p: float = 2, dropna: bool = False,
               method: str = "auto", partitioning: str = "auto", blocksize: Any = None) -> Any:  # fmt: skip
        """Rows in an order that shows their clusters at all distances up to `max_eps`: OPTICS.

        `dask_simjoin.cluster` has `cluster_optics_dbscan` and `cluster_optics_xi` for clusters of it.

        Parameters
        ----------
        max_eps : float
            Largest distance of neighbours, as `eps` in `self_join`.
        min_samples : int
            A row with at least so many rows within `max_eps`, itself included, is a core row; at least 2.
        mode : {"edges", "forest"}
            "edges": the result of ``sklearn.cluster.OPTICS(max_eps=..., algorithm="kd_tree")``, ties
            included, but for the exception that `dbscan` has. It takes all edges, at most 32 bytes for each
            pair in each direction, in files if they are many, and one task that visits all rows.
            "forest": for larger data; what is kept is a minimum spanning forest, no larger than the rows.
            For every ``eps <= max_eps`` it has the same core rows as ``dbscan(eps, min_samples)``, in the
            same clusters.
        on, id, dropna, method, partitioning, blocksize
            As in `self_join`; `id` only says which column is no coordinate.
        metric, p
            "euclidean" only; or "minkowski" with ``p=2``, which is the same.

        Returns
        -------
        DataFrame
            With the frame's index and partitions, and a row for each of its rows (but for those that `dropna`
            leaves out): ``ordering`` (int64), its place in the order; ``reachability`` and ``core_distance``
            (float64, in the units of the columns; inf: none within `max_eps`); ``predecessor`` (int64), the
            number of the row from which it was reached, counted in the result from 0, or -1. In mode
            "forest" distances are the least `eps` for which a row is a core row, or joins those before it.

        Raises
        ------
        BudgetError
            When planned: the edges do not fit the disk, or the rows one worker.
        ScratchError
            A file of edges cannot be written; it is an OSError, too.

        Notes
        -----
        Ankerst, Breunig, Kriegel & Sander (1999), "OPTICS: ordering points to identify the clustering
        structure". Block pairs give edges, on GPUs too; the visit of all rows is one task on one core of
        the host. Where edges are so many that they lie in files, workers on several machines need a folder
        that they share: Dask's configuration ``temporary-directory`` of the client. The client removes a
        run's files once the run is over, also if it is cancelled, or a worker is lost.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> df = pd.DataFrame({"x": [0.0, 9.0, 1.0, 3.0]})
        >>> df.simjoin.optics(5.0, min_samples=2)
           ordering  reachability  core_distance  predecessor
        0         0           inf            1.0           -1
        1         3           inf            inf           -1
        2         1           1.0            1.0            0
        3         2           2.0            2.0            2
        """
        return clusterings.optics(
            self._frame, max_eps, min_samples, mode=mode, on=on, id=id, metric=metric, p=p, dropna=dropna,
            method=method, partitioning=partitioning, blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def k_distances(self, k: int, *, on: Any = None, id: Hashable | None = None,
                    metric: str = "euclidean", p: float = 2, dropna: bool = False, partitioning: str = "auto",
                    blocksize: Any = None) -> Any:  # fmt: skip
        """How far each row's k-th nearest neighbour is: to choose `eps` by.

        With ``k = min_samples - 1`` it is, but for rounding, the `eps` from which on a row is a core row of
        `dbscan`. Sorted, as `dask_simjoin.cluster.plots.plot_k_distances` draws them, distances have a
        knee where clusters end.

        Parameters
        ----------
        k : int
            At least 1; the row itself is not counted.
        on, id, metric, p, dropna, partitioning, blocksize
            As in `self_join`; `id` only says which column is no coordinate.

        Returns
        -------
        Series
            float64, named "k_distance", in the units of the metric, with the frame's index and partitions;
            inf where there are not so many other rows. Rows that `dropna` leaves out have no entry.

        Notes
        -----
        Ester, Kriegel, Sander & Xu (1996), "A density-based algorithm for discovering clusters in large
        spatial databases with noise", section 4.2. A chunk's rows meet only the chunks in which, by the
        sample of the plan, neighbours of them can be, the nearest first.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]})
        >>> df.simjoin.k_distances(2).tolist()
        [2.0, 1.0, 2.0, 8.0]
        """
        return k_distances(
            self._frame, k, on=on, id=id, metric=metric, p=p, dropna=dropna, partitioning=partitioning,
            blocksize=blocksize,
        )  # fmt: skip
