"""Read tables: Parquet or CSV, from files, folders, URLs and pipes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import posixpath
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import click
import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from fsspec.core import url_to_fs

from dask_simjoin.catalog import HOME, kind_of_number
from dask_simjoin.cli.csv_files import CsvFormat, CsvTable, read_csv
from dask_simjoin.cli.csv_records import endings
from dask_simjoin.cli.csv_rows import BadRow, lines_of
from dask_simjoin.cli.csv_types import TEXT, ZONED, CsvColumns, WiderType
from dask_simjoin.cli.left_out import left_out_in_csv, left_out_in_parquet
from dask_simjoin.cli.parquet_files import (
    DAMAGED,
    ParquetFile,
    ParquetTable,
    check_columns,
    check_readable,
    checked_rows,
    contents_of,
    first_other_list,
    is_not_damage,
    rows_of,
)
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.left_out import LeftOut

PARQUET, CSV = FORMATS = ("parquet", "csv")

SUFFIXES = {
    ".parquet": PARQUET,
    ".parq": PARQUET,
    ".pq": PARQUET,
    ".csv": CSV,
    ".tsv": CSV,
    ".txt": CSV,
}


ALL_COLUMNS = CsvColumns()


def nullable_dtype(kind: pa.DataType) -> Any:
    """Return the dtype of pandas for integers or booleans with missing values; None for
    other types.
    """
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        name = "boolean" if pa.types.is_boolean(kind) else str(kind)
        return pd.array([], dtype=name.replace("i", "I").replace("uI", "UI")).dtype
    if kind == pa.time64("ns"):  # Python's times have microseconds
        return pd.ArrowDtype(kind)
    return None


@dataclasses.dataclass
class TableReader:
    """Reads the tables of a command."""

    kind: str | None = None  # format of the tables; None: decide by their names
    written: CsvFormat = dataclasses.field(default_factory=CsvFormat)
    # how CSV files of the second table are written; None: like the first
    other: CsvFormat | None = None
    # types of CSV columns that need others than their first rows, by path and column
    wider: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    tables: dict[tuple[str, ...], CsvTable] = dataclasses.field(default_factory=dict)
    """Tables of CSV files that were read, by their paths."""
    parquet: dict[tuple[str, ...], ParquetTable] = dataclasses.field(
        default_factory=dict
    )
    """Tables of Parquet files that were read, by their paths."""

    def read(
        self,
        paths: Sequence[str],
        used: CsvColumns = ALL_COLUMNS,
        written: CsvFormat | None = None,
    ) -> Frame:
        """Read tables as one lazy frame. `written`: how CSV files are written.

        An index that pandas stored in a file is not kept as an index but becomes a
        column, since options name columns.
        """
        try:
            found = [one for given in paths for one in named_files(given)]
            kinds = {self.kind or format_of(path) for path, _ in found}
            if len(kinds) > 1:
                raise click.UsageError(
                    f"{', '.join(paths)} have different formats: "
                    f"{', '.join(sorted(kinds))}."
                )
            if kinds == {CSV}:
                table = read_csv(found, used, written or self.written, self.wider)
                self.tables[tuple(paths)] = table
                frame = table.frame
                backend = dask.config.get("dataframe.backend", HOME)
                return frame if backend == HOME else frame.to_backend(backend)
            names = [path for path, _ in found]
            files = [one for each in found for one in _parquet_files(*each)]
            contents = contents_of(files)
            how = {"types_mapper": nullable_dtype} if contents.has_gaps else {}
            frame = dd.read_parquet(
                names if len(names) > 1 else names[0], index=False, arrow_to_pandas=how
            )
            read = [name for name in frame.columns if used.reads(name)]
            check_columns(contents, read)
            checked = checked_rows(frame, contents, used, self.written.skips)
            self.parquet[tuple(paths)] = checked.table
            return checked.frame
        except (OSError, ImportError, ValueError) as error:
            unknown = self.kind is None and not any(
                endings(path)[0] in SUFFIXES for path in paths
            )
            hint = " If it is a CSV file, add --input-format csv." * unknown
            raise click.ClickException(
                f"{', '.join(paths)} cannot be read: {error}{hint}"
            ) from error

    def read_tables(
        self,
        tables: Sequence[Sequence[str]],
        used: list[CsvColumns],
        groups: Callable[[list[Frame]], list[tuple[Any, Any]]],
        tolerances: Callable[[list[Frame]], list[tuple[Any, Any]]],
    ) -> list[Frame]:
        """Read one table or two. `groups`, `tolerances`: return the columns of groups and
        of tolerances in both tables.

        If a column of groups is text in one table and numbers in the other, read a CSV
        table again. Numbers become text, except in Parquet tables and columns of
        coordinates. If times have a time zone in one table, and a CSV table has no
        times, it is also read again.
        """
        formats = self.written, self.other
        frames = [self.read(*one) for one in zip(tables, used, formats, strict=False)]
        for names in groups(frames) if len(frames) == 2 else ():
            both = [*zip(frames, names, strict=True)]
            if not all(name in frame.columns for frame, name in both):
                continue
            kinds = [bool(kind_of_number(frame.dtypes[name])) for frame, name in both]
            if kinds[0] == kinds[1]:
                continue
            number, text = kinds.index(True), kinds.index(False)
            table, name = self.tables.get(tuple(tables[number])), names[number]
            if table is not None and not used[number].is_inferred(name):
                paths = {block.file.path for block in table.blocks}
                self.wider |= {(path, name): TEXT for path in paths}
                again = number
            else:
                used[text] = used[text].with_inferred(names[text])
                again = text
            frames[again] = self.read(tables[again], used[again], formats[again])
        for names in tolerances(frames) if len(frames) == 2 else ():
            both = [*zip(frames, names, strict=True)]
            if not all(name in frame.columns for frame, name in both):
                continue
            zones = [hasattr(frame.dtypes[name], "tz") for frame, name in both]
            if zones[0] == zones[1]:
                continue
            again = zones.index(False)
            table = self.tables.get(tuple(tables[again]))
            if table is not None and names[again] in table.no_times:
                paths = {block.file.path for block in table.blocks}
                self.wider |= {(path, names[again]): ZONED for path in paths}
                frames[again] = self.read(tables[again], used[again], formats[again])
        return frames

    def types(self, paths: Sequence[str]) -> dict[str, pa.DataType]:
        """Return the Arrow types of the columns of Parquet tables that were read."""
        table = self.parquet.get(tuple(paths))
        return {} if table is None else table.contents.types

    def until_wide_enough(
        self, work: Callable[[], Any], say: Callable[[str], Any]
    ) -> Any:
        """Call `work`. If a column of a CSV file needs another type than its first rows,
        say so and call it again.
        """
        while True:
            try:
                return work()
            except WiderType as error:
                self.wider[error.path, error.column] = error.kind
                what = "text" if error.kind == TEXT else "floats"
                say(
                    f"Column {error.column!r} has {error.why!r} below its first rows. "
                    f"Its cells are read again, as {what}."
                )

    def bad_rows(self) -> list[BadRow]:
        """Return the rows that were left out."""
        lists = [table.bad_rows for table in self.tables.values()]
        lists += [table.bad_rows for table in self.parquet.values()]
        return [row for rows in lists for row in rows]

    def left_out_rows(self, paths: Sequence[str], left_out: LeftOut) -> list[BadRow]:
        """Return the rows of a table that cannot be compared."""
        if not left_out.rows:
            return []
        if tuple(paths) in self.tables:
            return left_out_in_csv(self.tables[tuple(paths)], left_out)
        return left_out_in_parquet(self.parquet[tuple(paths)], left_out)

    def places(self, column: str, value: str | float | None) -> list[str]:
        """Return the first two places of a value in the files; None: a missing one."""
        blocks = [block for table in self.tables.values() for block in table.blocks]
        found = [
            *lines_of(blocks, column, value),
            *rows_of(self._parquet_files(), column, value),
        ]
        return found[:2]

    def separator_hint(self, own: Sequence[str], other: Sequence[str]) -> str:
        """Return what to do if the header of a CSV table was not split, or is a comment;
        "" if all are headers.

        `own`, `other`: the paths of both tables.
        """
        first = {paths: table.blocks[0].file for paths, table in self.tables.items()}
        left = first.get(tuple(own))
        right = first.get(tuple(other)) if tuple(other) != tuple(own) else None
        for file, option in ((left, "--separator"), (right, "--other-separator")):
            if file is not None and file.columns[0].startswith("# "):
                return (
                    f"The first line of {file.name} is its header, but looks like a "
                    "comment: remove the lines above the header."
                )
            mark = None if file is None else file.likely_separator()
            if file is None or mark is None:
                continue
            hint = f"{option} {_shown(mark)}"
            # the option of the left table is the default for the right one
            if file is left and right is not None:
                needed = right.likely_separator() or right.separator
                if needed != mark:
                    hint += f" --other-separator {_shown(needed)}"
            return (
                f"The separator of {file.name} looks like {_shown(mark)}: add {hint}."
            )
        return ""

    def other_list(self, column: str) -> str | None:
        """Say which list of a column is the first one of another length; None: none."""
        tables = [one for one in self.parquet.values() if column in one.contents.lists]
        found = (first_other_list(one.contents.files, column) for one in tables)
        return next(filter(None, found), None)

    def _parquet_files(self) -> list[ParquetFile]:
        return [
            file for table in self.parquet.values() for file in table.contents.files
        ]

    @contextlib.contextmanager
    def naming_damaged_files(self) -> Iterator[None]:
        """If an error of a block is due to a damaged Parquet file, name the file."""
        try:
            yield
        except DAMAGED as error:
            if not is_not_damage(error):
                check_readable(self._parquet_files())
            raise


def _shown(separator: str) -> str:
    """Return a separator as a shell takes it."""
    return "'{}'".format(separator.replace("\t", "\\t"))


def _parquet_files(path: str, name: str) -> list[ParquetFile]:
    """Return a Parquet file, or the Parquet files of a folder. `name`: in messages."""
    fs, place = url_to_fs(path)
    if not fs.isdir(place):
        return [ParquetFile(fs, place, name)]
    return [
        ParquetFile(fs, one, posixpath.join(name, posixpath.relpath(one, place)), True)
        for one in sorted(fs.find(place))
        if not posixpath.basename(one).startswith((".", "_"))
        and SUFFIXES.get(endings(one)[0], PARQUET) == PARQUET
    ]


def format_of(path: str) -> str:
    """Return the format that a path's ending stands for; for an unknown ending, assume
    a folder of Parquet files.
    """
    if path in _spooled().values():
        with open(path, "rb") as file:
            return PARQUET if file.read(4) == b"PAR1" else CSV
    return SUFFIXES.get(endings(path)[0], PARQUET)


ERROR, SKIP = "error", "skip"
"""Values of --bad-rows that do not name a file."""

STANDARD = "-"
"""Name of standard input and standard output."""


def _spooled() -> dict[str, str]:
    """Return the copies of pipes that this command has made, by the names of the
    pipes.
    """
    ctx = click.get_current_context(silent=True)
    copies: dict[str, str] = {}
    return copies if ctx is None else ctx.find_root().meta.setdefault(__name__, copies)


def is_pipe(path: str) -> bool:
    """Return whether a path leads to a pipe or a device, which can be read only once."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


def spooled(given: str) -> str:
    """Copy a pipe to a temporary file, because tables are read several times. The file
    is removed when the command ends.
    """
    copies = _spooled()
    if given not in copies:
        folder = dask.config.get("temporary-directory", None)
        place = tempfile.TemporaryDirectory(prefix="dask-simjoin-", dir=folder)
        click.get_current_context().find_root().call_on_close(place.cleanup)
        ending = "".join(endings(given)) if given != STANDARD else ""
        path = os.path.join(place.name, f"table{ending}")
        is_standard = given in (STANDARD, "/dev/stdin")
        with open(path, "wb") as file:
            if is_standard:
                _copy(sys.stdin.buffer, file)
            else:
                with open(given, "rb") as source:
                    _copy(source, file)
        copies[given] = path
    return copies[given]


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    shutil.copyfileobj(source, target, 1 << 20)


def named_files(given: str) -> list[tuple[str, str]]:
    """Return the files that a table on the command line stands for, with their names in
    messages.
    """
    if given in (STANDARD, "/dev/stdin"):
        return [(spooled(given), "standard input")]
    if "://" not in given and is_pipe(given):
        return [(spooled(given), given)]
    return [(path, path.removeprefix("file://")) for path in files_of(given)]


def files_of(given: str) -> list[str]:
    """Return the files that a path, glob or folder on the command line stands for.

    If no file exists, the error also says how options take several values: the path may
    be a misplaced value.
    """
    if not given:
        raise click.UsageError(
            "A table's name is empty; name a file, a folder or a URL."
        )
    try:
        return _files(given)
    except FileNotFoundError as error:
        word = not PurePosixPath(given).suffix and "/" not in given
        of_option = (
            " (If it belongs to an option: separate columns with commas, as in --on "
            "lat,lon. Flags take no "
            "value.)"
        )
        raise click.UsageError(
            f"{given} cannot be read: {error}{of_option * word}"
        ) from error


def _files(given: str) -> list[str]:
    """Return the files of a glob or of a folder of CSV files; any other path stands for
    itself.
    """
    fs, path = url_to_fs(given)
    if any(one in path for one in "*?[") and not fs.exists(path):
        found = sorted(fs.glob(path))
        if not found:
            raise FileNotFoundError("no file matches")
        return [fs.unstrip_protocol(one) for one in found]
    if not fs.exists(path):
        raise FileNotFoundError("no such file or folder")
    if fs.isdir(path):
        every = sorted(fs.find(path))
        if not every:
            raise FileNotFoundError("the folder is empty")
        files = [one for one in every if format_of(one) == CSV]
        if files and not any(SUFFIXES.get(endings(one)[0]) == PARQUET for one in every):
            return [fs.unstrip_protocol(one) for one in files]
    return [given]
