"""The verbs of joins, as methods of the accessor."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from dask_simjoin.api import plan as plans
from dask_simjoin.api import self_join as joins
from dask_simjoin.options.columns import ROW_ID
from dask_simjoin.options.validate import known_options
from dask_simjoin.planning.report import PlanReport


class JoinVerbs:
    """See `SimJoinAccessor`."""

    _frame: Any

    @known_options
    def self_join(self, eps: Any, *, on: Any = None, id: Hashable | None = None,
                  metric: str = "euclidean", p: float = 2, pairs: str = "unique", include_self: bool = False,
                  return_distance: bool = False, keep: Any = None,
                  suffixes: Any = ("_left", "_right"), dropna: bool = False, method: str = "auto",
                  partitioning: str = "auto", blocksize: Any = None) -> Any:  # fmt: skip
        """Every pair of rows within `eps` of each other.

        Parameters
        ----------
        eps : float or column
            Largest distance, finite and >= 0, in the units of the metric: with most those of the columns.
            0 finds duplicates.  The name of a column: each row's own; ``pairs="both"`` is needed then, and
            a row is the left one of those within its own distance.
        on : column or list of columns, optional
            The coordinates, in the order in which their differences' powers are summed; or one column of
            lists of numbers of equal length, such as embeddings.  Default: all numeric columns besides
            `id`, booleans and "row_id"; integers that are identifiers by their names are refused then.
        id : column, optional
            The column that names rows in the result; its values must be unique.  Default: the
            index labels.
        metric : {"euclidean", "sqeuclidean", "manhattan", "chebyshev", "minkowski", "cosine", "haversine"}
            What a distance is; the formulas are in `dask_simjoin.metrics`.  "cosine": one minus the cosine
            of the angle between rows.  "haversine": `on` names latitude and longitude, in this order and
            in degrees, and distances are in metres.
        p : int or float
            Of "minkowski": 1, 2, 3, ... or ``float("inf")``.
        pairs : {"unique", "both"}
            "unique": each pair once, `left` being the row that comes first in the frame.
            "both": in both directions.
        include_self : bool
            Whether each row is a pair with itself.  Rows with equal coordinates always are pairs.
        return_distance : bool
            Whether to add the column `distance`.
        keep : column or list of columns, optional
            Columns whose values the result has, of any dtype, of both rows.
        suffixes : pair of str
            What the names of those end in.
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

        Warns
        -----
        UnitsWarning, ColumnsWarning
            When planned: the data tell that `eps` or the coordinates are in other units, such as radians,
            or that integers which no `on` named are no coordinates.

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
        on its error: see `dask_simjoin.engine.filters.float16` and, above 200,
        `dask_simjoin.engine.filters.tensor_cores`.

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
            self._frame, eps, on=on, id=id, metric=metric, p=p, pairs=pairs, include_self=include_self,
            return_distance=return_distance, keep=keep, suffixes=suffixes, dropna=dropna, method=method,
            partitioning=partitioning, blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def plan(self, eps: Any = None, *, other: Any = None, k: int | None = None, on: Any = None,
             left_on: Any = None, right_on: Any = None, id: Hashable | None = None,
             left_id: Hashable | None = None, right_id: Hashable | None = None, metric: str = "euclidean",
             p: float = 2, pairs: str = "unique", include_self: bool = False,
             return_distance: bool = False, keep: Any = None, suffixes: Any = ("_left", "_right"),
             dropna: bool = False, method: str = "auto", partitioning: str = "auto",
             blocksize: Any = None) -> PlanReport:  # fmt: skip
        """What `self_join` with the same options would run, and how much it would give.

        With `other` it is the plan of `join`, and with `k` that of `knn_join`, whose `max_distance` is `eps`.

        Unlike the other verbs it computes at the call: the one pass over the columns that planning
        takes, with a sample of the rows, and only that is joined, to estimate by.  On a pandas
        DataFrame the plan is that of one chunk.

        Parameters are those of `self_join`, `join` and `knn_join`.

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
        asymptotically normal distribution", section 5); see `dask_simjoin.planning.statistics.estimate`.

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
          dimensions     1: 'x', all numeric columns
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
        return plans.plan(
            self._frame, eps, other=other, k=k, on=on, left_on=left_on, right_on=right_on, id=id,
            left_id=left_id, right_id=right_id, metric=metric, p=p, pairs=pairs, include_self=include_self,
            return_distance=return_distance, keep=keep, suffixes=suffixes, dropna=dropna, method=method,
            partitioning=partitioning, blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def neighbor_counts(self, eps: Any, *, on: Any = None, id: Hashable | None = None,
                        metric: str = "euclidean", p: float = 2, dropna: bool = False,
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
            self._frame, eps, on=on, id=id, metric=metric, p=p, dropna=dropna, method=method,
            partitioning=partitioning, blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def count_pairs(self, eps: Any, *, on: Any = None, id: Hashable | None = None,
                    metric: str = "euclidean", p: float = 2, pairs: str = "unique",
                    include_self: bool = False, dropna: bool = False, method: str = "auto",
                    partitioning: str = "auto", blocksize: Any = None) -> Any:  # fmt: skip
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
            self._frame, eps, on=on, id=id, metric=metric, p=p, pairs=pairs, include_self=include_self,
            dropna=dropna, method=method, partitioning=partitioning, blocksize=blocksize,
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
