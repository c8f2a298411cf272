"""A driver runs the steps of verbs: at once for plain frames, or as tasks of Dask.

Each similarity (distances, sets, strings) has one driver of each kind. A verb checks its
options, makes a spec, and then calls a driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from dask_simjoin.calls.tables import table_of
from dask_simjoin.metrics.norms import Frame, Series

Number = Any
"""A number of pairs: an int, or for Dask DataFrames a lazy Scalar."""


class Driver(Protocol):
    """Runs the steps of a verb for one table or two. `example`: an empty frame or Series
    like the result.
    """

    def pairs(self, example: Frame, how: str = "inner") -> Frame:
        """Find the pairs of rows. With some values of `how`, also rows without one: see
        `KEEPS`.
        """

    def counts(self, example: Series | Frame) -> Series | Frame:
        """Count the neighbors of each row. For two tables, count the matches of each
        left row in the right table.
        """

    def number(self, meta: Frame) -> Number:
        """Count the pairs. `meta`: an empty frame like the table."""

    def marks(self, request: Any, example: Series) -> Series:
        """Mark the rows that are near a kept row."""

    def plan(self) -> Any:
        """Plan the search for pairs. Return the report of the plan."""


class Drivers(NamedTuple):
    """The two drivers of a similarity."""

    local: Callable[[Sequence[Frame], Any], Any]
    lazy: Callable[[], Callable[[Sequence[Frame], Any], Any]]
    """Returns the driver of Dask DataFrames. It is a function so that Dask's data frames
    are imported only when needed.
    """

    def of(self, frames: Sequence[Frame], spec: Any) -> Any:
        """Return the driver of one table or two."""
        return table_of(frames[0]).driver(self)(frames, spec)
