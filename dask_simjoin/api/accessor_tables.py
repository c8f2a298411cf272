"""The verbs of two tables, and of nearest neighbours, as methods of the accessor."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from dask_simjoin.api import join as two_joins
from dask_simjoin.api.knn import knn_join
from dask_simjoin.options.validate import known_options


class TableVerbs:
    """See `SimJoinAccessor`."""

    _frame: Any

    @known_options
    def join(self, other: Any, eps: Any, *, how: str = "inner", on: Any = None, left_on: Any = None,
             right_on: Any = None, id: Hashable | None = None, left_id: Hashable | None = None,
             right_id: Hashable | None = None, metric: str = "euclidean", p: float = 2,
             return_distance: bool = False, keep: Any = None, suffixes: Any = ("_left", "_right"),
             dropna: bool = False, method: str = "auto", partitioning: str = "auto",
             blocksize: Any = None) -> Any:  # fmt: skip
        """Every pair of a row of this frame and a row of `other` within `eps` of each other.

        Parameters
        ----------
        other : DataFrame
            The right table: Dask's, or a plain one of the same library.  If either is a Dask DataFrame, the
            result is one.
        eps : float or column
            Largest distance, finite and >= 0.  The name of a column of this frame: each row's own.
        how : {"inner", "left", "leftsemi", "leftanti"}
            "inner": the pairs.  "left": also the rows of this frame that are in no pair, with a missing
            `right` and `distance`; ids and kept columns of the right table are then of dtypes that can be
            missing ("Int64" for int64).  "leftsemi", "leftanti": this frame's own rows, with all columns,
            that are in a pair, or in none; no pair is materialised.
        on : column or list of columns, optional
            The coordinates, of both tables: columns of numbers, or one of lists as in `self_join`.  Default:
            the numeric columns that both have, besides ids.
        left_on, right_on : column or list of columns, optional
            The same where they are called otherwise in the two tables, in the same order.
        id, left_id, right_id : column, optional
            The columns that name rows, of both tables or of each.  Default: index labels.
        keep : column or list of columns, optional
            Columns whose values the result has, of any dtype.  As in `pandas.merge`, those that both tables
            have are told apart by `suffixes`.
        suffixes : pair of str
        metric, p, return_distance, dropna, method, partitioning, blocksize
            As of `self_join`.  "spatial" shuffles both tables into the same regions of space, the right one's
            rows to all regions within `eps` of them.

        Returns
        -------
        DataFrame
            Columns ``left``, ``right`` (ids of the two tables), ``distance`` if asked for, and what is kept;
            for "leftsemi" and "leftanti" rows of this frame.

        Raises
        ------
        UnsupportedFrameError
            The tables are of two libraries.
        OptionError, OptionTypeError, ColumnError, CoordinateError, DuplicateIdError, BudgetError
            As `self_join` and its planning do.

        Notes
        -----
        Both tables are put in order, once each chunk, and block pairs of chunks whose boxes are within
        `eps` meet, as in the R-S join of LSS (Lieberman, Sankaranarayanan & Samet 2008, "A fast similarity
        join algorithm using graphics processing units", section 3), but exactly.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> shops = pd.DataFrame({"x": [0.0, 5.0], "name": ["A", "B"]})
        >>> homes = pd.DataFrame({"x": [1.0, 9.0], "rent": [700, 800]}, index=["h", "i"])
        >>> shops.simjoin.join(homes, 1.0, on="x", keep=["name", "rent"])
           left right name  rent
        0     0     h    A   700
        >>> homes.simjoin.join(shops, 1.0, on="x", how="leftanti")
             x  rent
        i  9.0   800
        """
        return two_joins.join(
            self._frame, other, eps, how=how, on=on, left_on=left_on, right_on=right_on, id=id,
            left_id=left_id, right_id=right_id, metric=metric, p=p, return_distance=return_distance,
            keep=keep, suffixes=suffixes, dropna=dropna, method=method, partitioning=partitioning,
            blocksize=blocksize,
        )  # fmt: skip

    @known_options
    def knn_join(self, other: Any = None, k: int = 10, *, max_distance: float | None = None,
                 on: Any = None, left_on: Any = None, right_on: Any = None, id: Hashable | None = None,
                 left_id: Hashable | None = None, right_id: Hashable | None = None,
                 metric: str = "euclidean", p: float = 2, keep: Any = None,
                 suffixes: Any = ("_left", "_right"), dropna: bool = False, partitioning: str = "auto",
                 blocksize: Any = None) -> Any:  # fmt: skip
        """The `k` nearest rows of each row, exactly, wherever they are.

        Parameters
        ----------
        other : DataFrame, optional
            The table whose rows are found.  Default: this frame, in which no row is a neighbour of itself.
        k : int
            How many are found of each row, at most: fewer where there are not so many.
        max_distance : float, optional
            Rows that are further away are no neighbours.
        on, left_on, right_on, id, left_id, right_id, keep, suffixes
            As of `join`, and without `other` as of `self_join`.
        metric, p, dropna, partitioning, blocksize
            As of `self_join`.

        Returns
        -------
        DataFrame
            ``left`` and ``right`` (ids), ``rank`` (int64, from 1, the nearest), ``distance`` (float64), and
            what is kept.  The rows of a partition are in the order of their left rows, and then by rank.

        Raises
        ------
        UnsupportedFrameError, OptionError, ColumnError, CoordinateError, DuplicateIdError, BudgetError
            As `join` and its planning do.

        Notes
        -----
        Of rows at the same distance those that come first in their frame are nearer, so that results depend
        neither on partitions nor on the machine.  Each chunk's rows search the chunks that may have
        neighbours of them, the nearest first, within a distance that shrinks; in which ones neighbours can be
        is bounded by a sample, and ``plan(k=..., other=...)`` tells how many those are.  The order of search
        is that of best-first nearest neighbours (Hjaltason & Samet 1999, "Distance browsing in spatial
        databases", section 4), for blocks of rows.

        Examples
        --------
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> df = pd.DataFrame({"x": [0.0, 1.0, 3.0]})
        >>> df.simjoin.knn_join(k=1)
           left  right  rank  distance
        0     0      1     1       1.0
        1     1      0     1       1.0
        2     2      1     1       2.0
        """
        return knn_join(
            self._frame, other, k, max_distance=max_distance, on=on, left_on=left_on, right_on=right_on,
            id=id, left_id=left_id, right_id=right_id, metric=metric, p=p, keep=keep, suffixes=suffixes,
            dropna=dropna, partitioning=partitioning, blocksize=blocksize,
        )  # fmt: skip
