"""All exceptions and warnings of the package, and decorators for deprecated names.

A message shows the value, the allowed values and the remedy. Each class also derives
from the built-in exception that a pandas user would catch. docs/reference/errors.md
shows the "Remedy:" texts.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, ParamSpec, TypeVar


@dataclass(frozen=True)
class Remedy:
    """A change that makes a failed call work, in a form for programs. The message
    describes it in words.

    Attributes
    ----------
    options : dict
        Options of the verb and their values; None means to omit the option.
    config : dict
        Dask configuration to set.
    npartitions : int or None
        Number of partitions that the frame should have. A plain frame must be converted
        to a Dask DataFrame.
    verb : str
        The verb to use instead; "" means the same verb.
    """

    options: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    npartitions: int | None = None
    verb: str = ""


class SimJoinError(Exception):
    """Base class of all errors of this package.

    Attributes
    ----------
    remedies : tuple of Remedy
        Changes. Each of them alone makes the call work. The message may recommend other
        changes, too.
    """

    without_table = ""  # the message before `in_table` added the name of the table

    def __init__(self, *args: object, remedies: Iterable[Remedy] = ()) -> None:
        super().__init__(*args)
        self.remedies = tuple(remedies)


class OptionError(SimJoinError, ValueError):
    """An option has a value that is not allowed.

    Remedy: Use one of the allowed values that the message lists. If you misspelled a
    value, the message suggests the correct one. docs/reference/options.md explains the
    options.
    """


class OptionTypeError(SimJoinError, TypeError):
    """An option is unknown, or its value is of the wrong type.

    Remedy: Use an option that the message lists. `help(frame.simjoin.self_join)`
    explains the options.
    """


class ColumnError(SimJoinError, ValueError):
    """A column is missing, duplicated or unsuitable as coordinate or id, or columns of
    `by` cannot be equal.

    Remedy: Name numeric columns with ``on=``, or one column of lists of numbers.
    Convert text and dates.
    """


class CoordinateError(SimJoinError, ValueError):
    """Coordinates are missing, infinite, or not exact in float64.

    Remedy: Correct the rows, or leave them out with ``dropna=True``. Scale integers
    beyond 2**53.
    """


class ListError(CoordinateError):
    """In a column of lists, a row has no list of numbers, or a list of another length
    than the other rows.

    Remedy: Give every row a list of the same length. Leave out rows without a list with
    ``dropna=True``.
    """

    row = 0  # number of the row in its partition
    what = ""
    # if lists differ in length: each length, the number of such lists, and the row of
    # the first of these
    lengths: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def at(
        cls, row: int, what: str, lengths: tuple[tuple[int, int, int], ...] = ()
    ) -> ListError:
        """Make the error for a row. `what`: its value."""
        error = cls(f"Row {row} holds {what}.")
        error.row, error.what, error.lengths = row, what, lengths
        return error


class NumberError(CoordinateError):
    """In a column of numbers, a row has a text or another value that is no number.

    Remedy: Convert the column with ``pd.to_numeric(column, errors="coerce")``, which
    makes such values missing. Leave out their rows with ``dropna=True``.
    """

    column: Hashable = None
    row = 0  # number of the row in its partition
    value = ""

    @classmethod
    def at(cls, column: Hashable, row: int, value: str, place: str = "") -> NumberError:
        """Make the error for a value. `place`: of its row; default: its number."""
        name = f"df[{column!r}]"
        error = cls(
            f"Column {column!r} holds {value} in {place or f'row {row}'}, which is not a "
            f"number. To make such values missing: {name} = pd.to_numeric({name}, "
            "errors='coerce'), or dd.to_numeric for a Dask DataFrame. Then fill them, "
            "or use dropna=True."
        )
        error.column, error.row, error.value = column, row, value
        return error


class TokenError(SimJoinError, ValueError):
    """A row does not hold a set of tokens, or tokens have different types.

    Remedy: Pass lists of strings, lists of integers, or texts with ``tokenizer=``.
    """


class TextError(SimJoinError, ValueError):
    """A row does not hold a text, or its text is not valid Unicode.

    Remedy: Pass strings. Convert other values with ``.astype("str")``, and decode bytes
    in their encoding.
    """


class DuplicateIdError(SimJoinError, ValueError):
    """Ids repeat or are missing, so they do not identify rows.

    Remedy: Name a column of unique values with ``id=``, or add one with
    ``frame.simjoin.with_row_id()``.
    """


class PartitionSizeError(SimJoinError, ValueError):
    """A partition has more rows than can be indexed.

    Remedy: Split the frame: ``ddf.repartition(partition_size="256MB")``.
    """


class BudgetError(SimJoinError, ValueError):
    """A chunk, task or result needs more memory or disk than available, or most pairs
    of rows are near.

    Remedy: Check the unit of `eps`, or use a smaller `eps`. Use the `blocksize` that
    the message suggests, a verb without pairs (`count_pairs`), or a Dask DataFrame,
    whose result has several partitions.
    """


class PlanningError(SimJoinError, RuntimeError):
    """Planning a join failed. Or the join was planned for a cluster and runs without
    one, or the reverse.

    Remedy: Fix the cause of the chained error, or call the verb again where the join is
    computed.
    """


class SourceChangedError(SimJoinError, RuntimeError):
    """Row counts or coordinate ranges of the source changed after the join was planned.

    Remedy: Persist the source, or write it to files that do not change, and build the
    join again.
    """


class ScratchError(SimJoinError, OSError):
    """A temporary file cannot be written, or the disks of workers are full.

    Remedy: Free disk space, or set Dask's ``temporary-directory`` to a folder on
    another disk.
    """


class IndexConflictError(SimJoinError, RuntimeError):
    """Other writers repeatedly committed a version of the index first, or a vacuum has
    ended an update that took over a day.

    Remedy: Try again, or let one writer work at a time, with fewer rows per update.
    """


class IndexFormatError(SimJoinError, ValueError):
    """A folder does not hold an index, a file of the index is damaged or missing, or
    its format is unknown.

    Remedy: Pass the folder of an index that all workers can read. ``Index.check()``
    lists damage. The guide to growing tables explains the repair.
    """


class IndexWriteError(SimJoinError, OSError):
    """A file of an index cannot be written or removed, for example on a full or
    read-only disk.

    Remedy: Free disk space, or make the folder writable, and retry. Files of the failed
    attempt are removed.
    """


class IndexStoreError(SimJoinError, ConnectionError):
    """An object store or a network file system with an index does not answer, or
    refuses a request.

    Remedy: Check the network, the bucket and the credentials. Then repeat the call with
    the same ``batch``.
    """


class VersionGoneError(SimJoinError, LookupError):
    """A version of an index was removed, or never existed.

    Remedy: Use a version that ``history()`` lists, and keep more versions in
    ``vacuum()``.
    """


class UnsupportedFrameError(SimJoinError, TypeError):
    """The object is not a DataFrame that can be joined.

    Remedy: Pass a Dask, pandas or cuDF DataFrame: ``pd.DataFrame(array)``,
    ``table.to_pandas()``.
    """


class SimJoinWarning(UserWarning):
    """Base class of all warnings of this package."""


class DeprecatedWarning(SimJoinWarning, FutureWarning):
    """You used a function or an option that a later release will remove.

    Remedy: Use the replacement that the message names. docs/reference/promises.md has
    the rules.
    """


class UnitsWarning(SimJoinWarning):
    """Units look wrong (degrees on a plane, radians, kilometers, a similarity), or most
    pairs are near.

    Remedy: Check the unit of `eps`: meters for "haversine", one minus the cosine for
    "cosine", else the unit of the columns.
    """


class ColumnsWarning(SimJoinWarning):
    """Without ``on=``, a column looks like ids, has a far wider range than others, or
    is ignored. Or the table has fewer rows than columns, and may be transposed. Or
    ``metric="hamming"`` compares a single column.

    Remedy: Name the coordinate columns with ``on=``; for "hamming", one for each bit.
    """


class UpkeepWarning(SimJoinWarning):
    """An update committed its version, but the compaction after it failed.

    Remedy: Free disk space. A later update, or ``optimize()``, compacts the index.
    """


class ApproximateWarning(SimJoinWarning):
    """Because of `approximate=True`, some pairs may be missing from the result.

    Remedy: Omit ``approximate=True`` if you need every pair. Otherwise ignore the
    warning.
    """


LARGER_DISK = (
    "Give workers a larger disk (local_directory= of the cluster, or Dask's "
    "configuration "
    "temporary-directory), more memory, or use more workers."
)
"""Part of messages that recommend more disk space for workers."""

TABLES = ("left", "right")


@contextlib.contextmanager
def in_table(which: str | None) -> Iterator[None]:
    """Add the name of the table, "left" or "right", to errors of the block. None: there
    is only one table.
    """
    try:
        yield
    except (ColumnError, CoordinateError, DuplicateIdError, TokenError) as error:
        if which is None:
            raise
        # not chained, because a traceback would show the message twice
        text = FIRST_WORD.sub(lambda word: word[0].lower(), str(error))
        advice = OTHER_NAMES if NOT_IN_TABLE.search(text) else ""
        advice = LIKE_THE_OTHER if TEXTS_OR_LISTS.search(text) else advice
        if OWN_ORIGIN.search(text):
            text, advice = OWN_ORIGIN.sub(" - origin)", text), ONE_ORIGIN
        named = type(error)(f"In the {which} table, {text}{advice}")
        named.without_table = str(error)
        raise named.with_traceback(error.__traceback__) from None


FIRST_WORD = re.compile(r"^[A-Z](?=[a-z]* )")
"""Matches the capital letter of a word that begins a message."""

NOT_IN_TABLE = re.compile(r"^on= names .* which is not a column;")
"""Matches a message about a column that one of two tables lacks, unless a similar
column is suggested.
"""

OWN_ORIGIN = re.compile(r" - df\[[^\]]*\]\.min\(\)\)")
"""Matches advice that subtracts the earliest time of a table, which may be another one in
the other table.
"""

ONE_ORIGIN = (
    " Use the same origin in both tables, such as the earliest time of the left table."
)

TEXTS_OR_LISTS = re.compile(
    "holds texts; say with tokenizer=|tokenizer= for (lists|texts)|leave out tokenizer="
)
"""Matches a message about a column of texts that has no tokenizer, or of lists that has
one.
"""

LIKE_THE_OTHER = (
    " If one table has lists and the other one texts, split the texts first, such as "
    "df['tags'] = df['tags'].str.split(), and leave out tokenizer= then."
)

OTHER_NAMES = " Use on= with columns of both tables, or left_on= and right_on= where names differ."


P = ParamSpec("P")
R = TypeVar("R")


class Deprecation(NamedTuple):
    """A deprecated name, the releases that deprecate and remove it, and its
    replacement.
    """

    name: str
    since: str
    removed_in: str
    use: str

    def __str__(self) -> str:
        return (
            f"{self.name} is deprecated since dask-simjoin {self.since} and will be "
            "removed in "
            f"{self.removed_in}; use {self.use}."
        )


OUTSIDE = ("dask_simjoin", "dask", "distributed", "functools", "contextlib")
"""Packages that are skipped to find the user's line that a warning names."""


def line_of_user() -> int:
    """Return the stack level of the first caller outside of `OUTSIDE`."""
    level, frame = 1, inspect.currentframe()
    frame = frame.f_back if frame is not None else None
    while (
        frame is not None
        and frame.f_globals.get("__name__", "").split(".")[0] in OUTSIDE
    ):
        frame, level = frame.f_back, level + 1
    return level


DEPRECATIONS: list[Deprecation] = []
"""All deprecated names. A test fails in a release that still has a name that it should
have removed.
"""


def deprecated(
    *, since: str, removed_in: str, use: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that makes a function warn at each call. The warning shows the
    caller's line.

    `since`: the first release that warns. `removed_in`: the release that removes the
    function. `use`: the replacement, as users write it.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        entry = Deprecation(f"{function.__name__}()", since, removed_in, use)
        DEPRECATIONS.append(entry)

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            warnings.warn(str(entry), DeprecatedWarning, stacklevel=line_of_user())
            return function(*args, **options)

        summary, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        call.__doc__ = (
            f"{summary}\n\n.. deprecated:: {since}\n    Use {use}.\n\n{rest}".rstrip()
            + "\n"
        )
        return call

    return decorate


def renamed_option(
    old: str, new: str, *, since: str, removed_in: str
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator that lets a function also accept the old name of an option,
    with a warning.

    If both names are passed, it raises `OptionTypeError`.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        entry = Deprecation(
            f"The option {old}= of {function.__name__}()", since, removed_in, f"{new}="
        )
        DEPRECATIONS.append(entry)

        @functools.wraps(function)
        def call(*args: object, **options: object) -> R:
            if old in options:
                if new in options:
                    raise OptionTypeError(
                        f"{old}= is the old name of {new}=; pass {new}= only."
                    )
                warnings.warn(str(entry), DeprecatedWarning, stacklevel=line_of_user())
                options[new] = options.pop(old)
            return function(*args, **options)

        return call

    return decorate
