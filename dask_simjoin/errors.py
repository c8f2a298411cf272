"""Every exception and warning of the package.

Messages name the value, what is allowed and the remedy.  Each class is also the
built-in exception that a user of pandas would catch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class SimJoinError(Exception):
    """Base of all errors of this package."""


class OptionError(SimJoinError, ValueError):
    """An option has a value that is not allowed."""


class OptionTypeError(SimJoinError, TypeError):
    """An option is unknown, or its value is of the wrong type."""


class ColumnError(SimJoinError, ValueError):
    """A column is missing, is named twice, or cannot be a coordinate or an id."""


class CoordinateError(SimJoinError, ValueError):
    """Coordinates are missing, infinite, or no float64 number."""


class ListError(CoordinateError):
    """A row of a column of lists holds none of numbers, or one of another length."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(row, what)
        self.row, self.what = row, what

    def __str__(self) -> str:
        return f"Row {self.row} holds {self.what}."


class TokenError(SimJoinError, ValueError):
    """A row holds no set of tokens, or tokens are of several kinds."""


class DuplicateIdError(SimJoinError, ValueError):
    """Ids do not name the rows: some repeat, or are missing."""


class PartitionSizeError(SimJoinError, ValueError):
    """A partition has more rows than can be indexed."""


class BudgetError(SimJoinError, ValueError):
    """A chunk, a task or the result needs more memory than there is."""


class PlanningError(SimJoinError, RuntimeError):
    """The source failed while a join of it was planned."""


class SourceChangedError(SimJoinError, RuntimeError):
    """The source gave the join other numbers of rows or other ranges of coordinates than its planning."""


class ScratchError(SimJoinError, OSError):
    """A temporary file cannot be written, or one of another worker cannot be read."""


class IndexConflictError(SimJoinError, RuntimeError):
    """Other writers made versions of an index again and again while this one worked."""


class IndexFormatError(SimJoinError, ValueError):
    """A folder holds no index, or one that is damaged or of another format."""


class VersionGoneError(SimJoinError, LookupError):
    """A version of an index is not there any more, or never was."""


class UnsupportedFrameError(SimJoinError, TypeError):
    """The object is no data frame that can be joined."""


class SimJoinWarning(UserWarning):
    """Base of all warnings of this package."""


class UnitsWarning(SimJoinWarning):
    """By what the data tell, `eps` or coordinates are in other units than those of the metric."""


class ColumnsWarning(SimJoinWarning):
    """By what the data tell, a column that is a coordinate as `on` names none may not be meant to be one."""


class ApproximateWarning(SimJoinWarning):
    """The result was asked for with `approximate=True`, and some of it may be missing."""


TABLES = ("left", "right")


@contextlib.contextmanager
def in_table(which: str | None) -> Iterator[None]:
    """Say of errors which table ("left" or "right") they are about; None: there is but one."""
    try:
        yield
    except (ColumnError, CoordinateError, DuplicateIdError, TokenError) as error:
        if which is None:
            raise
        # chained errors would be told twice
        raise type(error)(f"In the {which} table: {error}").with_traceback(error.__traceback__) from None
