"""The `.simjoin` accessor of Dask, pandas and cuDF DataFrames."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any

import pandas as pd
from dask.dataframe.extensions import register_dataframe_accessor

from dask_simjoin import clusterings, joins
from dask_simjoin.late import when_imported
from dask_simjoin.report import PlanReport
from dask_simjoin.spec import ROW_ID, known_options


class SimJoinAccessor:
    """Similarity joins of a DataFrame: ``frame.simjoin``.

    On a Dask DataFrame every verb is lazy: calling it computes nothing.  Planning, one pass over
    the columns it needs, runs when Dask first asks for the result's partitions (``compute``,
    ``npartitions``, ``repr``).  On a pandas DataFrame the same verbs compute at once, on one core.
    On cuDF-backed frames, Dask's or plain ones, everything runs on GPUs, and results stay there.

    Which rows are pairs does not depend on any of that, nor on partitions or method: see
    `dask_simjoin.metrics`.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 3.0, 3.0, 9.0], "y": [0.0, 4.0, 4.0, 9.0]}, index=list("abcd"))
    >>> ddf = dd.from_pandas(df, npartitions=2)
    >>> ddf.simjoin.self_join(5.0).compute().sort_values(["left", "right"], ignore_index=True)
      left right
    0    a     b
    1    a     c
    2    b     c
    """

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    @known_options
    def self_join(self, eps: float, *, on: Any = None, id: Hashable | None = None,
                  metric: str = "euclidean", pairs: str = "unique", include_self: bool = False,
                  return_distance: bool = False, dropna: bool = False,
                  method: str = "auto", partitioning: str = "auto",
                  blocksize: Any = None) -> Any:  # fmt: skip
        """Every pair of rows within `eps` of each other.

        Parameters
        ----------
        eps : float
            Largest distance, finite and >= 0, in the units of the columns.  0 finds duplicates.
        on : column or list of columns, optional
            The coordinates, in the order in which squares are summed.  Default: all numeric
            columns besides `id`, booleans and "row_id".
        id : column, optional
            The column that names rows in the result; its values must be unique.  Default: the
            index labels.
        metric : {"euclidean"}
            See `dask_simjoin.metrics`.
        pairs : {"unique", "both"}
            "unique": each pair once, `left` being the row that comes first in the frame.
            "both": in both directions.
        include_self : bool
            Whether each row is a pair with itself.  Rows with equal coordinates always are pairs.
        return_distance : bool
            Whether to add the column `distance`.
        dropna : bool
            Whether to leave out rows with a missing, NaN or infinite coordinate.
        method : {"auto", "sweep", "tiles"}
            The engine: a row sweep over an eps-grid for up to 4 dimensions, or tiles for any
            number; on GPUs always tiles.  All give the same pairs.
        partitioning : {"auto", "entity", "spatial", "replicated"}
            Of a Dask DataFrame.  "entity": rows stay with the rows next to them; small partitions
            are joined together and large ones cut, and every chunk meets every other, unless their
            boxes are further apart than `eps`.  "spatial": rows are shuffled into regions of about
            as many rows first, so that work grows with the data and not with its square.
            "replicated": all rows are one chunk, which workers copy, and each task takes some of its
            queries.  "auto": on GPUs "replicated" if a chunk holds all rows; else entity or spatial
            chunks, whichever visit rows less often.  All give the same pairs.
        blocksize : int or str, optional
            Memory of one chunk's coordinates and ids, and of one partition of the result, such as
            "64 MiB".  Default: 1/12 of what each thread of a worker has, at most 256 MiB; without a
            cluster 128 MiB; on GPUs 1/12 of a GPU's memory, and for a chunk at most 4 GiB.  The
            configuration's ``simjoin.blocksize`` and ``simjoin.output-size`` change the defaults.

        Returns
        -------
        DataFrame
            Columns ``left``, ``right`` (the ids' dtype) and, if asked for, ``distance``
            (float64); lazy if the frame is.  The order of rows is not specified.

        Raises
        ------
        OptionError, OptionTypeError, ColumnError
            At the call: an option or a column that is not allowed.
        CoordinateError, DuplicateIdError
            When planned: coordinates that are no finite float64 number, ids that repeat.
        BudgetError
            When planned: a chunk or the result needs more memory than there is.  Nothing of the
            join has run by then.
        SourceChangedError
            When computed: a partition has another number of rows, or coordinates in another range,
            than when the join was planned.

        Notes
        -----
        Partitions of the result are at most about as large as `blocksize`, however many pairs a
        block pair gives: by the estimate of the plan it is cut into several partitions, at places
        that its exact numbers of pairs give (as the batches of GPU-Join, section 5, bound a
        result, but balanced).

        The grid follows GPU-Join (Gowanlock & Karsin, "GPU-accelerated similarity self-join for
        multi-dimensional data", section 4): only non-empty cells, and half of the neighbours.

        On GPUs tiles of points in kd order meet where their boxes are within `eps`, 64 or 128 points
        against 64 or 256 at a time, so that units of work are equal, which Gallet & Gowanlock (2019,
        "Load imbalance mitigation optimizations for GPU-accelerated similarity joins") reach by sorting
        cells by workload.  From 9 dimensions tensor cores tell most pairs apart, in float16 with a bound
        on its error: see `dask_simjoin.index.half`.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> df = pd.DataFrame({"x": [0.0, 1.0, 5.0]})
        >>> df.simjoin.self_join(1.0, return_distance=True)
           left  right  distance
        0     0      1       1.0
        """
        return joins.self_join(
            self._frame, eps, on=on, id=id, metric=metric, pairs=pairs, include_self=include_self,
            return_distance=return_distance, dropna=dropna, method=method, partitioning=partitioning,
            blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def plan(self, eps: float, *, on: Any = None, id: Hashable | None = None,
             metric: str = "euclidean", pairs: str = "unique", include_self: bool = False,
             return_distance: bool = False, dropna: bool = False,
             method: str = "auto", partitioning: str = "auto",
             blocksize: Any = None) -> PlanReport:  # fmt: skip
        """What `self_join` with the same options would run, and how much it would give.

        Unlike the other verbs it computes at the call: the one pass over the columns that planning
        takes, with a sample of the rows, and only that is joined, to estimate by.  On a pandas
        DataFrame the plan is that of one chunk.

        Parameters are those of `self_join`.

        Returns
        -------
        PlanReport
            Prints as text, shows as a table and a picture in notebooks, and has ``rows``,
            ``chunks``, ``block_pairs``, ``partitions``, ``pairs``, ``pairs_low``, ``pairs_high``,
            ``result_bytes``, ``partitioning``, ``method``, ``to_frame()``, ``svg()`` and ``plot()``.

        Raises
        ------
        OptionError, OptionTypeError, ColumnError, CoordinateError, DuplicateIdError
            As `self_join` and its planning do.
        BudgetError
            The result is larger than the configuration's ``simjoin.result-limit``, or a task needs
            more memory than a worker has: what is needed, what there is, and the remedy.

        Notes
        -----
        The interval is that of a U-statistic (Hoeffding 1948, "A class of statistics with
        asymptotically normal distribution", section 5); see `dask_simjoin.estimate`.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import dask.dataframe as dd
        >>> import dask_simjoin
        >>> df = pd.DataFrame({"x": np.arange(1000.0)})
        >>> plan = dd.from_pandas(df, npartitions=4).simjoin.plan(
        ...     1.0, partitioning="entity", blocksize="4 kB"
        ... )
        >>> plan.chunks, plan.block_pairs, plan.partitions
        (4, 7, 7)
        >>> plan
        Plan of a self-join, eps=1.0
          rows           1,000
          dimensions     1: 'x'
          engine         sweep along 'x'
          partitioning   entity: rows in the order of the frame
          chunks         4 (15.62 kiB)
          median chunk   250 rows, 3.91 kiB
          largest chunk  250 rows, 3.91 kiB
          block pairs    7 of 10 possible
          skipped        3, where no pair can be
          pairs          999
          95 % interval  999 to 999
          sampled        1,000 rows, which is all of them
          neighbours     2 of a row, on average
          result         15.61 kiB, 16 bytes a pair
          partitions     7, the largest 3.89 kiB
          memory         19.53 kiB for the largest task
          budget         3.91 kiB a chunk (blocksize='3.91 kiB')
                         3.91 kiB a partition, 1.00 TiB the result
          tasks          about 11
        """
        return joins.plan(
            self._frame, eps, on=on, id=id, metric=metric, pairs=pairs, include_self=include_self,
            return_distance=return_distance, dropna=dropna, method=method, partitioning=partitioning,
            blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def neighbor_counts(self, eps: float, *, on: Any = None, id: Hashable | None = None,
                        metric: str = "euclidean", dropna: bool = False,
                        method: str = "auto", partitioning: str = "auto",
                        blocksize: Any = None) -> Any:  # fmt: skip
        """How many rows lie within `eps` of each row, the row itself not counted.

        No pair is materialised.  Parameters are those of `self_join`; `id` only says which column
        is no coordinate.  With spatial chunks the source is read a third time, for its labels.

        Returns
        -------
        Series
            int64, named "neighbors", with the frame's index and partitions.  Rows that `dropna`
            leaves out have no entry.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]})
        >>> df.simjoin.neighbor_counts(1.0).tolist()
        [1, 2, 1, 0]
        """
        return joins.neighbor_counts(
            self._frame, eps, on=on, id=id, metric=metric, dropna=dropna, method=method,
            partitioning=partitioning, blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def count_pairs(self, eps: float, *, on: Any = None, id: Hashable | None = None,
                    metric: str = "euclidean", pairs: str = "unique", include_self: bool = False,
                    dropna: bool = False, method: str = "auto", partitioning: str = "auto",
                    blocksize: Any = None) -> Any:  # fmt: skip
        """The number of rows that `self_join` would return, without materialising any.

        Parameters are those of `self_join`; `id` only says which column is no coordinate.

        Returns
        -------
        int, or a lazy Dask Scalar

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]}).simjoin.count_pairs(1.0)
        2
        """
        return joins.count_pairs(
            self._frame, eps, on=on, id=id, metric=metric, pairs=pairs, include_self=include_self,
            dropna=dropna, method=method, partitioning=partitioning, blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def dbscan(self, eps: float, min_samples: int = 5, *, on: Any = None, id: Hashable | None = None,
               metric: str = "euclidean", dropna: bool = False, method: str = "auto",
               partitioning: str = "auto", blocksize: Any = None) -> Any:  # fmt: skip
        """Clusters of rows by density: DBSCAN.

        Labels are those of ``sklearn.cluster.DBSCAN(eps, min_samples=..., algorithm="kd_tree")``, for
        every number of partitions. No list of neighbours is made: memory holds the chunks of a task, a few
        numbers for each row, and the chunks' components.

        Parameters
        ----------
        eps : float
            Largest distance of neighbours, as in `self_join`.
        min_samples : int
            A row with at least so many rows within `eps`, itself included, is a core row.
        on, id, metric, dropna, method, partitioning, blocksize
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
            self._frame, eps, min_samples, on=on, id=id, metric=metric, dropna=dropna, method=method,
            partitioning=partitioning, blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def optics(self, max_eps: float, min_samples: int = 5, *, mode: str = "edges", on: Any = None,
               id: Hashable | None = None, metric: str = "euclidean", dropna: bool = False,
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
            included. It takes all edges, 24 bytes for each pair in each direction, in files if they are
            many, and one task that visits all rows. "forest": for larger data; what is kept is a minimum
            spanning forest, no larger than the rows. For every ``eps <= max_eps`` it has the same core
            rows as ``dbscan(eps, min_samples)``, in the same clusters.
        on, id, metric, dropna, method, partitioning, blocksize
            As in `self_join`; `id` only says which column is no coordinate.

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

        Notes
        -----
        Ankerst, Breunig, Kriegel & Sander (1999), "OPTICS: ordering points to identify the clustering
        structure". Block pairs give edges, on GPUs too; the visit of all rows is one task on one core of
        the host. Workers on several machines need local directories on a disk that they share, where edges
        are so many that they lie in files.

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
            self._frame, max_eps, min_samples, mode=mode, on=on, id=id, metric=metric, dropna=dropna,
            method=method, partitioning=partitioning, blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def k_distances(self, k: int, *, on: Any = None, id: Hashable | None = None,
                    metric: str = "euclidean", dropna: bool = False, partitioning: str = "auto",
                    blocksize: Any = None) -> Any:  # fmt: skip
        """How far each row's k-th nearest neighbour is: to choose `eps` by.

        With ``k = min_samples - 1`` it is, but for rounding, the `eps` from which on a row is a core row of
        `dbscan`. Sorted, as `dask_simjoin.plots.plot_k_distances` draws them, distances have a knee where
        clusters end.

        Parameters
        ----------
        k : int
            At least 1; the row itself is not counted.
        on, id, metric, dropna, partitioning, blocksize
            As in `self_join`; `id` only says which column is no coordinate.

        Returns
        -------
        Series
            float64, named "k_distance", in the units of the columns, with the frame's index and partitions;
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
        return clusterings.k_distances(
            self._frame, k, on=on, id=id, metric=metric, dropna=dropna, partitioning=partitioning,
            blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def with_row_id(self, name: str = ROW_ID) -> Any:
        """The frame with one more column: each row's number in the frame, from 0.

        Use it as ``id=`` where index labels repeat, as they do in a frame read from several
        parquet files, each of which counts its rows from 0.

        Parameters
        ----------
        name : str
            Of the new column (int64).  "row_id" is never taken for a coordinate by default.

        Returns
        -------
        DataFrame
            Lazy if the frame is: numbering the rows reads one column to count them.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> pd.DataFrame({"x": [5.0, 5.0]}, index=[7, 7]).simjoin.with_row_id()
             x  row_id
        7  5.0       0
        7  5.0       1
        """
        return joins.with_row_id(self._frame, name)


def register() -> None:
    """Make ``.simjoin`` an attribute of Dask, pandas and cuDF DataFrames."""
    register_dataframe_accessor("simjoin")(SimJoinAccessor)
    pd.api.extensions.register_dataframe_accessor("simjoin")(SimJoinAccessor)
    when_imported("cudf", _register_with_cudf)


def _register_with_cudf() -> None:
    sys.modules["cudf"].api.extensions.register_dataframe_accessor("simjoin")(SimJoinAccessor)
