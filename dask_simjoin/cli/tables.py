"""Write results: parquet or CSV, to files, folders and URLs that fsspec supports."""

from __future__ import annotations

import contextlib
import csv
import errno
import os
import posixpath
import re
import shlex
import shutil
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import click
import dask
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from dask.base import compute
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from dask_simjoin.cli import running
from dask_simjoin.cli.csv_records import endings, separator_of
from dask_simjoin.cli.csv_rows import BadRow
from dask_simjoin.cli.sources import (
    CSV,
    ERROR,
    PARQUET,
    SKIP,
    STANDARD,
    SUFFIXES,
    format_of,
    is_pipe,
    named_files,
)
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.messages import size_text
from dask_simjoin.sizes import BATCH

FORMULA_STARTS = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
)
"""Characters that begin formulas, by OWASP's list. The last four are full-width forms
of the first four.
"""

NUMBERS = "biufcmM"
"""Kinds of dtypes (`numpy.dtype.kind`) whose values are never text, so they cannot be
formulas.
"""


def without_formulas(rows: Frame) -> Frame:
    """Put ``'`` before texts and column names that a spreadsheet would run as formulas."""
    if hasattr(rows, "to_pandas"):
        rows = rows.to_pandas()
    texts = [name for name, kind in rows.dtypes.items() if kind.kind not in NUMBERS]
    safe = rows.assign(
        **{name: rows[name].astype(object).map(_quoted) for name in texts}
    )
    return safe.rename(columns=_quoted)


NEGATIVE = re.compile(r"-\d+(\.\d*)?([eE][+-]?\d+)?")
"""Matches texts that are negative numbers, which are harmless: CSV columns without a
use are read as text.
"""


def _quoted(cell: Any) -> Any:
    is_formula = (
        isinstance(cell, str)
        and cell.startswith(FORMULA_STARTS)
        and not NEGATIVE.fullmatch(cell)
    )
    return f"'{cell}" if is_formula else cell


MARKER = "_dask_simjoin"
"""Name of an empty file that this program writes into each output folder, to recognize
the folder later.

Readers of the folder skip the file, because its name begins with an underscore, or
because it is empty.
"""

PART_NAME = re.compile(r"part\.\d+\.(parquet|csv)")
"""Matches the names of all files in an output folder except `MARKER`."""


def locate_output(output: str) -> tuple[Any, str]:
    """Return the file system and the resolved path of an output; refuse invalid names."""
    if not output:
        raise click.UsageError("--output is empty; name a file or a folder.")
    if "\0" in output:
        raise click.UsageError(
            f"--output {output!r} is not allowed: a path cannot contain a null "
            "character."
        )
    if output.startswith("~") and os.path.expanduser(output) == output:
        user = output[1:].partition("/")[0]
        raise click.UsageError(
            f"--output {output} is not allowed: there is no user {user!r}. Use "
            f"./{output} for a folder with "
            "this name."
        )
    fs, path = url_to_fs(output)
    return fs, _resolved(fs, path)


def check_apart(
    path: str, output: str, tables: Sequence[str], exists: bool, index: str | None
) -> None:
    """Refuse an output path that would replace an input table, or that is inside the
    folder of an index.

    `path`: the resolved path of `output`. `exists`: whether a file or folder is at this
    path.
    """
    read = [
        _resolved(*url_to_fs(each))
        for given in tables
        for each, _ in named_files(given)
    ]
    lost = exists and any(_within(name, path) or _within(path, name) for name in read)
    if lost or (index is not None and _in_index(path, index)):
        raise click.UsageError(
            f"{output} is an input, or overlaps an input folder; name another output."
        )


def is_on_store(index: str) -> bool:
    """Return whether the folder of an index is in an object store."""
    return "://" in index and not index.startswith("file://")


def _in_index(path: str, index: str) -> bool:
    """Return whether a path is in the folder of an index.

    In an object store, also return True if the folder of the index is in the path.
    """
    if is_on_store(index):
        name = index.rstrip("/").partition("://")[2]
        return _within(path, name) or _within(name, path)
    return _within(path, _resolved(*url_to_fs(index)))


def check_replaceable(fs: Any, path: str, output: str, single: bool) -> None:
    """Raise an error if the output must not replace the file or folder at its path.

    A file may replace a file. A folder may replace a folder that this program wrote.
    """
    local = isinstance(fs, LocalFileSystem)
    if local and any(
        _within(os.path.realpath(one), path)
        for one in (os.getcwd(), os.path.expanduser("~"))
    ):
        raise click.UsageError(
            f"{output} contains your home folder or the working folder; name another "
            "output."
        )
    if fs.isfile(path):
        if not single:
            raise click.UsageError(
                f"The output is a folder, but {output} already exists as a file. "
                "Remove the file, or name "
                "another output."
            )
        return
    if not fs.isdir(path):
        raise click.UsageError(
            f"{output} is neither a file nor a folder; name another output."
        )
    if single:
        raise click.UsageError(
            f"The output is a file, but {output} already exists as a folder. Remove "
            "the folder, or name "
            "another output."
        )
    _check_ours(fs, path)


def _check_ours(fs: Any, path: str) -> None:
    """Refuse a folder that contains files of other programs."""
    found = {posixpath.basename(one["name"]): one for one in fs.ls(path, detail=True)}
    if not found:
        return
    mark = found.pop(MARKER, {})
    marked = mark.get("type") == "file" and mark["size"] == 0
    foreign = [
        name
        for name, one in sorted(found.items())
        if one["type"] != "file" or not PART_NAME.fullmatch(name)
    ]
    if foreign or not marked:
        why = f"it contains {foreign[0]!r}" if foreign else f"it has no file {MARKER}"
        raise click.UsageError(
            f"{path} was not written by dask-simjoin alone: {why}. --overwrite does "
            "not replace it. "
            "Remove it, or name another output."
        )


def _resolved(fs: Any, path: str) -> str:
    return (
        os.path.realpath(path)
        if isinstance(fs, LocalFileSystem)
        else posixpath.normpath(path)
    )


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


@dataclass(frozen=True)
class OutputWriter:
    """Writes a result to a file or a folder."""

    fs: Any  # the output's file system, of fsspec
    path: str  # the final path
    output: str  # the path as the user typed it
    kind: str  # "parquet" or "csv"
    # whether to write one file, instead of a folder with a file per partition
    single: bool
    overwrite: bool  # whether to replace an existing output
    csv_safe: bool  # whether to change texts that a spreadsheet would run as formulas

    @contextlib.contextmanager
    def made(self) -> Iterator[str]:
        """Make a temporary folder next to the final path, yield its path, and remove it
        after the block.
        """
        folder, name = posixpath.split(self.path)
        temporary = posixpath.join(folder, f".{name}.{uuid.uuid4().hex[:8]}.partial")
        try:
            self.fs.makedirs(temporary)
            yield temporary
        finally:
            running.finish()
            with contextlib.suppress(FileNotFoundError):
                self.fs.rm(temporary, recursive=True)

    @property
    def name(self) -> str:
        """The name of the output in messages."""
        return self.output

    def write(
        self,
        frame: Frame,
        temporary: str,
        types: Mapping[str, pa.DataType] = MappingProxyType({}),
    ) -> None:
        """Write a lazy frame. `types`: Arrow types of columns whose dtypes do not show
        them.
        """
        with self._naming_full_disks():
            self._write(frame, temporary, types)

    @contextlib.contextmanager
    def _naming_full_disks(self) -> Iterator[None]:
        """If the disk is full, add the path and the free space to the error."""
        try:
            yield
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            folders = [
                dask.config.get("temporary-directory", None) or tempfile.gettempdir()
            ]
            if isinstance(self.fs, LocalFileSystem):
                folders.insert(0, posixpath.dirname(self.path) or ".")
            free = ", ".join(
                f"{size_text(shutil.disk_usage(at).free)} in {at}" for at in folders
            )
            text = (
                f"{os.strerror(error.errno)}, while writing {self.path}; free: {free}"
            )
            raise OSError(error.errno, text) from error

    def _write(
        self, frame: Frame, temporary: str, types: Mapping[str, pa.DataType]
    ) -> None:
        parts = posixpath.join(temporary, "parts")
        self.fs.makedirs(parts)
        if not self.single:
            self.fs.pipe_file(posixpath.join(parts, MARKER), b"")
        url = self.fs.unstrip_protocol(parts)
        width = len(str(max(frame.npartitions - 1, 1)))

        def name(n: int) -> str:
            return f"part.{n:0{width}d}"

        if self.kind == CSV:
            how: dict[str, Any] = {
                "sep": separator_of(self.output),
                "name_function": name,
                "index": False,
            }
            # the csv module would not quote a text with a lone carriage return, so
            # quote every text
            if self.csv_safe:
                frame, how["quoting"] = (
                    frame.map_partitions(without_formulas),
                    csv.QUOTE_NONNUMERIC,
                )
            compute(*frame.to_csv(f"{url}/*.csv", compute=False, **how))
        else:
            compute(
                frame.to_parquet(
                    url,
                    schema=_schema(frame, types),
                    write_index=False,
                    name_function=lambda n: f"{name(n)}.parquet",
                    compute=False,
                )
            )

    def rows(self, temporary: str, count: bool = False) -> int | None:
        """Return the number of written rows, which Parquet files on local disks store;
        None if unknown.

        `count`: read other files again to count their rows.
        """
        if self.kind != CSV and isinstance(self.fs, LocalFileSystem):
            return sum(
                pq.read_metadata(name).num_rows for name in self._parts(temporary)
            )
        return sum(map(len, self._written(temporary))) if count else None

    def tally(self, temporary: str, column: str) -> Counter[int]:
        found: Counter[int] = Counter()
        for table in self._written(temporary, column):
            found.update(table[column].value_counts().to_dict())
        return found

    def _written(
        self, temporary: str, column: str | None = None
    ) -> Iterator[pd.DataFrame]:
        """Read the written rows in chunks. `column`: the only column to read; default:
        the first one.
        """
        for name in self._parts(temporary):
            with self.fs.open(name, "rb") as file:
                if self.kind == CSV:
                    how: dict[str, Any] = {
                        "sep": separator_of(self.output),
                        "usecols": [column or 0],
                    }
                    yield from pd.read_csv(file, chunksize=BATCH, **how)
                else:
                    parquet = pq.ParquetFile(file)
                    columns = [column or parquet.schema_arrow.names[0]]
                    yield from (
                        one.to_pandas()
                        for one in parquet.iter_batches(BATCH, columns=columns)
                    )

    def _parts(self, temporary: str) -> list[str]:
        """List the files that were written, one per partition. `finish` later merges or
        renames them.
        """
        names = self.fs.find(posixpath.join(temporary, "parts"))
        return [name for name in names if posixpath.basename(name) != MARKER]

    def finish(self, temporary: str) -> None:
        target = posixpath.join(temporary, "parts")
        if self.single:
            files, target = (
                sorted(self.fs.find(target)),
                posixpath.join(temporary, "whole"),
            )
            with self._naming_full_disks():
                (_join_csv if self.kind == CSV else _join_parquet)(
                    self.fs, files, target
                )
        if self.fs.exists(self.path):
            if not self.overwrite:
                raise click.ClickException(
                    f"Another program created {self.path} meanwhile."
                )
            check_replaceable(self.fs, self.path, self.output, self.single)
            running.commit()
            _rename(self.fs, self.path, posixpath.join(temporary, "replaced"))
        running.commit()
        _rename(self.fs, target, self.path)


@dataclass(frozen=True)
class StandardOutput(OutputWriter):
    """Writes a result as CSV to standard output or a pipe, when it is complete.

    `pipes`: file descriptor of the pipe while it is open.
    """

    pipes: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return "standard output" if self.output in STANDARD_OUTPUT else self.output

    @contextlib.contextmanager
    def made(self) -> Iterator[str]:
        folder = dask.config.get("temporary-directory", None)
        # open before the join runs: a pipe that nothing reads would block for ever
        if self.output not in STANDARD_OUTPUT:
            self.pipes.append(_open_pipe(self.output))
        with tempfile.TemporaryDirectory(prefix="dask-simjoin-", dir=folder) as made:
            yield made

    def finish(self, temporary: str) -> None:
        files = sorted(self.fs.find(posixpath.join(temporary, "parts")))
        if self.pipes:
            opened = self.pipes.pop()
            with contextlib.suppress(BrokenPipeError), open(opened, "wb") as pipe:
                _copy_csv(self.fs, files, pipe)
            return
        out = sys.stdout.buffer
        try:
            _copy_csv(self.fs, files, out)
            out.flush()
        except BrokenPipeError:  # the reader, such as head, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def _open_pipe(path: str) -> int:
    """Open a pipe or device for writing; refuse a pipe that no program reads."""
    try:
        opened = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise click.UsageError(
            f"{path} is a pipe that no program reads. Start the reading program first, "
            f"such as cat {path} &."
        ) from None
    os.set_blocking(opened, True)
    return opened


def _schema(frame: Frame, types: Mapping[str, pa.DataType]) -> Any:
    """Return the Arrow schema of a frame for Parquet, or "infer" if its dtypes show all
    types.
    """
    dtypes = frame.dtypes
    hidden = [
        name
        for name, dtype in dtypes.items()
        if name in types
        and (dtype.name in ("object", "category") or isinstance(dtype, pd.ArrowDtype))
    ]
    if not hidden or hasattr(frame._meta, "to_pandas"):  # cuDF's dtypes show them
        return "infer"
    shown = frame[[name for name in dtypes.index if name not in hidden]]._meta_nonempty
    found = pa.Schema.from_pandas(shown, preserve_index=False)
    return pa.schema(
        [
            pa.field(name, types[name]) if name in hidden else found.field(name)
            for name in dtypes.index
        ]
    )


def sink(
    given: Mapping[str, Any], tables: Sequence[str], index: str | None = None
) -> OutputWriter:
    """Check the options of `WRITTEN`, and return the writer for them.

    `tables`: the inputs. `index`: the folder of an index, which must not contain the
    output.
    """
    output, kind, overwrite = given["output"], given["format"], given["overwrite"]
    if output in STANDARD_OUTPUT or is_pipe(output):
        return _standard(given)
    name = output.rstrip("/")
    ending, packed = endings(name)
    is_known = ending in SUFFIXES and not packed
    # a date or a version, as in run-2026.11, is not an ending
    has_ending = bool(packed) or ending[1:2].isalpha()
    if packed or (has_ending and not is_known and kind is None and name == output):
        raise click.UsageError(
            f"{output} cannot be written: {posixpath.splitext(name)[1]} is not "
            "supported. End the name in .parquet or .csv, or in / for a parquet "
            f"folder{'' if packed else ', or name its format with --format'}."
        )
    kind = kind or format_of(name)
    if given["csv_safe"] and kind != CSV:
        raise click.UsageError(
            f"--csv-safe is for CSV, but {output} is {kind}; omit it."
        )
    single = name == output and has_ending
    try:
        fs, path = locate_output(output)
        exists = fs.exists(path)
        check_apart(path, output, tables, exists, index)
        if exists and not overwrite:
            raise click.UsageError(
                f"{output} already exists; add --overwrite to replace it."
            )
        if exists:
            check_replaceable(fs, path, output, single)
        _check_folder(fs, path, output)
    except (OSError, ImportError, ValueError) as error:
        raise click.ClickException(f"{output} cannot be written: {error}") from error
    return OutputWriter(fs, path, output, kind, single, overwrite, given["csv_safe"])


def _standard(given: Mapping[str, Any]) -> OutputWriter:
    if given["format"] == PARQUET:
        raise click.UsageError(
            "--format parquet is not allowed with --output -: standard output is CSV."
        )
    if given["json"] and given["output"] in STANDARD_OUTPUT:
        raise click.UsageError(
            "--json is not allowed with --output -: both print to standard output. "
            "Name a file."
        )
    output, safe = given["output"], given["csv_safe"]
    return StandardOutput(LocalFileSystem(), output, output, CSV, True, True, safe)


STANDARD_OUTPUT = (STANDARD, "/dev/stdout")


def _check_folder(fs: Any, path: str, output: str) -> None:
    """Refuse an output in a folder that does not exist; object stores have none."""
    folder = posixpath.dirname(path)
    if isinstance(fs, LocalFileSystem) and not fs.isdir(folder):
        raise click.UsageError(
            f"{output} cannot be written: there is no folder {folder}. Create it with "
            f"mkdir -p {shlex.quote(folder)}, or correct the name."
        )


BAD_ROWS = ["file", "line", "reason", "row"]
"""Columns of the file of bad rows."""


def check_bad_rows(params: Mapping[str, Any], tables: Sequence[str]) -> None:
    """Refuse a file of --bad-rows that this program did not write."""
    path = params["bad_rows"]
    if path in (ERROR, SKIP):
        return
    _check_folder(LocalFileSystem(), os.path.abspath(path), f"--bad-rows {path}")
    others = [each for given in tables for each, _ in named_files(given)]
    if params.get("output", STANDARD) not in STANDARD_OUTPUT:
        others.append(params["output"])
    if os.path.realpath(path) in map(os.path.realpath, others):
        raise click.UsageError(
            f"--bad-rows {path} is also an input or the output; name another file."
        )
    if not os.path.exists(path):
        return
    first = ",".join(BAD_ROWS).encode()
    begin = None
    if os.path.isfile(path):
        with open(path, "rb") as file:
            begin = file.read(len(first))
    if begin not in (b"", first):
        raise click.UsageError(
            f"--bad-rows {path} exists and is not a file of bad rows; name another "
            "file, or use skip or error."
        )


def in_file_order(rows: Sequence[BadRow]) -> list[BadRow]:
    """Sort rows by their places in each file, without repeats. Files keep the order of
    the rows.
    """
    rows = list(dict.fromkeys(rows))
    files = list(dict.fromkeys(row.file for row in rows))
    return sorted(rows, key=lambda row: (files.index(row.file), row.line))


def write_bad_rows(path: str, rows: Sequence[BadRow]) -> None:
    """Write bad rows to a CSV file, which gets its name when it is complete."""
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([BAD_ROWS, *rows])
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


def _rename(fs: Any, old: str, new: str) -> None:
    """Rename a file or folder. On local disks use `os.rename`, which is atomic; some
    versions of fsspec would copy.
    """
    if isinstance(fs, LocalFileSystem):
        os.rename(old, new)
    else:
        fs.mv(old, new, recursive=True)


def _join_csv(fs: Any, files: list[str], target: str) -> None:
    with fs.open(target, "wb") as out:
        _copy_csv(fs, files, out)


def _copy_csv(fs: Any, files: list[str], out: Any) -> None:
    for n, name in enumerate(files):
        with fs.open(name, "rb") as part:
            if n:
                part.readline()
            shutil.copyfileobj(part, out, 1 << 20)


def _join_parquet(fs: Any, files: list[str], target: str) -> None:
    """Concatenate Parquet files into one file, one row group in memory at a time."""
    if len(files) == 1:
        _rename(fs, files[0], target)
        return
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(fs.open(target, "wb"))
        writer: Any = None
        for name in files:
            with fs.open(name, "rb") as source, pq.ParquetFile(source) as part:
                if writer is None:
                    writer = stack.enter_context(
                        pq.ParquetWriter(out, part.schema_arrow)
                    )
                for n in range(part.num_row_groups):
                    rows: pa.Table = part.read_row_group(n)
                    writer.write_table(rows)
