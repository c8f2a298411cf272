"""Operations on the tables of a call, for tables in memory and for Dask's.

`table_of` chooses the class. Verbs call its methods, and do not ask which class it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.catalog import HOME
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.native import is_native, native
from dask_simjoin.errors import ColumnError
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.request.columns import ROW_ID, is_frame, optional
from dask_simjoin.request.options import texts_as_given

LOG = logging.getLogger("dask_simjoin")


class PlainTable:
    """A frame in memory, or another value that is not Dask's."""

    has_positions = True
    """Whether the functions of `by_partition` get rows at their positions in the table.
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def computed(self) -> Any:
        """Return the rows in memory."""
        return self.rows

    def in_memory(self, _: Exception) -> Any:
        """Return the rows in memory; raise an error if they are still to be computed."""
        return self.rows

    def known_length(self) -> int | None:
        """Return the number of rows if it is known without computing them."""
        return len(self.rows)

    def own_threads(self, threads: Any) -> Any:
        """Return the option `threads` if the table's verbs have it; else None."""
        return threads

    def by_partition(
        self, function: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        """Call ``function(rows, *args)`` once, or for each partition of a lazy table.

        `options`: as in `map_partitions`. Without `meta`, the example is the result for
        an empty partition; `meta` may also be a function that makes it. The arguments
        may be lazy values of one partition.
        """
        return function(self.rows, *(table_of(value).computed() for value in args))

    def reduced(
        self,
        function: Callable[..., Any],
        merge: Callable[..., Any],
        finish: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Any:
        """Call a function for the rows, or for each partition of a lazy table. Then
        return the merged results as a lazy value, because Dask would align a lazy frame
        with others.

        `finish`: merges the results for the last time, and also takes all rows instead.
        `options`: as in `reduction`; `meta` may also be a function that makes it.
        """
        return (finish or function)(self.rows)

    def in_one(self) -> PlainTable:
        """Return the table with one partition."""
        return self

    def native(self) -> Any:
        """Return a frame with native columns; return other values unchanged."""
        return native(self.rows)

    def without_categorize(self) -> Any:
        """Hide `categorize()` of a lazy frame from Dask's optimizer."""
        return self.rows

    def numbered(self, name: str) -> Frame:
        """Add a column with the numbers of the rows."""
        return self.rows.assign(**{name: np.arange(len(self.rows), dtype=np.int64)})

    def recorded(self) -> Frame:
        """Return the rows. They are the result of the join behind them; its report
        counts them.
        """
        return self.rows

    def lazy(self, kind: str) -> Frame:
        """Convert the frame to a Dask DataFrame with one partition. `kind`: its library."""
        if kind == HOME:
            import dask.dataframe as dd

            # Dask would convert lists and other objects to texts, so switch that off
            with texts_as_given():
                return dd.from_pandas(self.rows, npartitions=1, sort=False)
        dask_cudf = optional(
            "dask_cudf", "dask-cudf", "Joins of Dask DataFrames with cuDF's"
        )
        return dask_cudf.from_cudf(self.rows, npartitions=1, sort=False)

    def log_done(self, name: str, found: object, seconds: float) -> None:
        """Log that a verb has found its result."""
        if LOG.isEnabledFor(logging.INFO):
            rows = f"{len(found):,} rows, " if hasattr(found, "iloc") else ""  # type: ignore[arg-type]
            LOG.info("done %s of a plain frame: %sin %.2f s", name, rows, seconds)

    def driver(self, drivers: Any) -> Callable[..., Any]:
        """Return the driver of the table: see `Drivers`."""
        return drivers.local


class LazyTable(PlainTable):
    """A Dask DataFrame, or another collection of Dask."""

    has_positions = False

    def computed(self) -> Any:
        return self.rows.compute()

    def in_memory(self, error: Exception) -> Any:
        raise error

    def known_length(self) -> int | None:
        return None

    def own_threads(self, threads: Any) -> Any:
        return None

    def by_partition(
        self, function: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        meta = options.pop("meta", None)
        if meta is None:
            meta = function(self.rows._meta, *args)
        elif callable(meta):
            meta = meta()
        return self.rows.map_partitions(function, *args, meta=meta, **options)

    def reduced(
        self,
        function: Callable[..., Any],
        merge: Callable[..., Any],
        finish: Callable[..., Any] | None = None,
        **options: Any,
    ) -> Any:
        meta = options.pop("meta", 0)
        meta = meta() if callable(meta) else meta
        return self.rows.reduction(
            function, aggregate=finish or merge, combine=merge, meta=meta, **options
        )

    def in_one(self) -> PlainTable:
        return LazyTable(self.rows.repartition(npartitions=1))

    def native(self) -> Any:
        from dask_simjoin.graph.dask_private import frames_given
        from dask_simjoin.graph.source import check_selections

        meta = getattr(self.rows, "_meta", None)
        if is_frame(self.rows):
            check_selections(self.rows)
        if is_native(meta) and all(map(is_native, frames_given(self.rows))):
            return self.rows
        return self.rows.map_partitions(native, meta=native(meta))

    def without_categorize(self) -> Any:
        from dask_simjoin.graph.dask_private import without_categorize

        return without_categorize(self.rows)

    def numbered(self, name: str) -> Frame:
        columns = self.rows._meta.columns
        if not len(columns):
            raise ColumnError(
                "The frame has no column, so its rows cannot be numbered."
            )
        # one column is enough to count rows; its name is in a list, because a name that
        # is a tuple would mean several columns
        ones = self.rows[[columns[0]]].map_partitions(
            _ones, meta=_ones(self.rows._meta)
        )
        return self.rows.assign(**{name: ones.cumsum() - 1})

    def lazy(self, kind: str) -> Frame:
        return self.rows

    def recorded(self) -> Frame:
        from dask_simjoin.graph.result_rows import with_recorded_rows

        return with_recorded_rows(self.rows)

    def log_done(self, name: str, found: object, seconds: float) -> None:
        """Log nothing, because a lazy join has not run yet."""

    def driver(self, drivers: Any) -> Callable[..., Any]:
        return drivers.lazy()


def table_of(rows: Any) -> PlainTable:
    """Return the operations on a table."""
    return LazyTable(rows) if is_dask_collection(rows) else PlainTable(rows)


def _ones(rows: Series) -> Series:
    return frames_for(rows).series(np.ones(len(rows), np.int64), rows.index, ROW_ID)
