"""Every exception and warning of the package.

Messages name the value, what is allowed and the remedy.  Each class is also the
built-in exception that a user of pandas would catch.  What follows "Remedy:" is told in
docs/reference/errors.md too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Remedy:
    """A change that lets a refused call go on, for programs; the message says the same in words.

    Attributes
    ----------
    options : dict
        Options of the verb, and their values; None: leave the option out.
    config : dict
        Dask's configuration to set.
    npartitions : int or None
        Partitions that the frame should have; of a plain frame: as a Dask DataFrame.
    verb : str
        The verb to use instead; "": the same one.
    """

    options: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    npartitions: int | None = None
    verb: str = ""


class SimJoinError(Exception):
    """Base of all errors of this package.

    Attributes
    ----------
    remedies : tuple of Remedy
        Changes each of which lets the call go on; not all that the message says can be one.
    """

    def __init__(self, *args: object, remedies: Iterable[Remedy] = ()) -> None:
        super().__init__(*args)
        self.remedies = tuple(remedies)


class OptionError(SimJoinError, ValueError):
    """An option has a value that is not allowed.

    Remedy: The message names the value, what is allowed and what was likely meant; see `options`.
    """


class OptionTypeError(SimJoinError, TypeError):
    """An option is unknown, or its value is of the wrong type.

    Remedy: The message lists the options of the verb. `help(frame.simjoin.self_join)` explains them.
    """


class ColumnError(SimJoinError, ValueError):
    """A column is missing, named twice, no coordinate or id, or `by` compares what is never equal.

    Remedy: Name numeric columns with ``on=``: convert text or dates, or name one column of lists of numbers.
    """


class CoordinateError(SimJoinError, ValueError):
    """Coordinates are missing, infinite, or no float64 number.

    Remedy: Mend the rows, or leave them out with ``dropna=True``; scale integers beyond 2**53.
    """


class ListError(CoordinateError):
    """A row of a column of lists holds none of numbers, or one of another length.

    Remedy: Give every row a list of as many numbers, or leave out those without one by ``dropna=True``.
    """

    def __init__(self, row: int, what: str) -> None:
        super().__init__(row, what)
        self.row, self.what = row, what

    def __str__(self) -> str:
        return f"Row {self.row} holds {self.what}."


class TokenError(SimJoinError, ValueError):
    """A row holds no set of tokens, or tokens are of several kinds.

    Remedy: Give lists of strings or of integers, or texts with ``tokenizer=``.
    """


class DuplicateIdError(SimJoinError, ValueError):
    """Ids do not name the rows: some repeat, or are missing.

    Remedy: Name a column of unique values with ``id=``, or add one by ``frame.simjoin.with_row_id()``.
    """


class PartitionSizeError(SimJoinError, ValueError):
    """A partition has more rows than can be indexed.

    Remedy: Split the frame: ``ddf.repartition(partition_size="256MB")``.
    """


class BudgetError(SimJoinError, ValueError):
    """A chunk, a task or the result needs more memory or disk than there is, or has most of all pairs.

    Remedy: A smaller `eps`, in the right units; a `blocksize` that the message names, a verb that makes no
    pairs (`count_pairs`), or a Dask DataFrame, whose result has parts.
    """


class PlanningError(SimJoinError, RuntimeError):
    """The source failed while a join of it was planned.

    Remedy: Mend what the source raised, which is chained; or build the join where it is computed.
    """


class SourceChangedError(SimJoinError, RuntimeError):
    """The source gave the join other numbers of rows or other ranges of coordinates than its planning.

    Remedy: Persist the source, or write it to files that stay as they are, and build the join again.
    """


class ScratchError(SimJoinError, OSError):
    """A temporary file cannot be written, or not read by another worker; or all workers' disks are full.

    Remedy: Free disk, or set Dask's ``temporary-directory`` to a folder with room that all workers share.
    """


class IndexConflictError(SimJoinError, RuntimeError):
    """Other writers made versions of an index again and again while this one worked, or it took half a day.

    Remedy: Try again, or let one writer work at a time, with fewer rows.
    """


class IndexFormatError(SimJoinError, ValueError):
    """A folder holds no index, or one with a damaged or missing file, or of another format.

    Remedy: Name the folder of an index that all workers see. ``Index.check()`` lists damage, and the guide to
    tables that grow says how to go on.
    """


class IndexWriteError(SimJoinError, OSError):
    """A file of an index cannot be written, as on a full disk.

    Remedy: Free disk and do the same again; what the failed attempt wrote is removed.
    """


class VersionGoneError(SimJoinError, LookupError):
    """A version of an index is not there any more, or never was.

    Remedy: Use a version that ``history()`` names, and keep more of them when old ones are removed.
    """


class UnsupportedFrameError(SimJoinError, TypeError):
    """The object is no data frame that can be joined.

    Remedy: Give a DataFrame of Dask, pandas or cuDF: ``pd.DataFrame(array)``, ``table.to_pandas()``.
    """


class SimJoinWarning(UserWarning):
    """Base of all warnings of this package."""


class UnitsWarning(SimJoinWarning):
    """Units look mistaken: degrees on a plane, radians, kilometres for metres, a similarity; or all is near.

    Remedy: Look at the unit of `eps`: metres of "haversine", one minus the cosine of "cosine", else the
    unit of the columns.
    """


class ColumnsWarning(SimJoinWarning):
    """Without ``on=``, integers count rows or are far wider than the others, or number objects are left out.

    Remedy: Name the coordinates with ``on=``.
    """


class UpkeepWarning(SimJoinWarning):
    """An update made its version, and rows could not be put in order after it.

    Remedy: Free disk; a later update, or ``optimize()``, puts them in order.
    """


class ApproximateWarning(SimJoinWarning):
    """The result was asked for with `approximate=True`, and some of it may be missing.

    Remedy: Leave ``approximate=True`` out where every pair matters; else this is as it should be.
    """


LARGER_DISK = (
    "Give workers a larger disk (local_directory= of the cluster, or Dask's configuration "
    "temporary-directory), more memory, or use more workers."
)
"""What helps where workers cannot write what does not fit their memory, in messages."""

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
