"""Read tables: parquet or CSV, from files, folders and URLs that fsspec supports."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import click
import dask
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
from fsspec.core import url_to_fs
from fsspec.utils import read_block

from dask_simjoin.catalog import HOME
from dask_simjoin.graph.dask_private import AUTO_BLOCKSIZE as BLOCK_BYTES
from dask_simjoin.metrics.norms import Frame

PARQUET, CSV = FORMATS = ("parquet", "csv")

SUFFIXES = {
    ".parquet": PARQUET,
    ".parq": PARQUET,
    ".pq": PARQUET,
    ".csv": CSV,
    ".tsv": CSV,
    ".txt": CSV,
}

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""Endings of compressed files; pandas and Dask must read such a file from its start."""


@dataclass(frozen=True)
class CsvColumns:
    """The columns of CSV files that a command uses. Types of columns are inferred, or
    columns are read as text.
    """

    # columns whose types are inferred; None: all except ids
    inferred: frozenset[Any] | None = None
    # columns that become integers if no digit is lost
    ids: frozenset[Any] = frozenset()
    read: frozenset[Any] | None = None  # columns to read; None: all

    def is_inferred(self, name: str) -> bool:
        return name not in self.ids if self.inferred is None else name in self.inferred


def read(
    paths: Sequence[str], kind: str | None = None, used: CsvColumns = CsvColumns()
) -> Frame:
    """Read tables as one lazy frame. `kind`: their format; None: decide by their names.

    An index that pandas stored in a file is not kept as an index but becomes a column,
    since options name columns.
    """
    try:
        found = [path for given in paths for path in files_of(given)]
        kinds = {kind or format_of(path) for path in found}
        if len(kinds) > 1:
            raise click.UsageError(
                f"{', '.join(paths)} have different formats: "
                f"{', '.join(sorted(kinds))}."
            )
        if kinds == {CSV}:
            return _read_csv(found, used)
        return dd.read_parquet(found if len(found) > 1 else found[0], index=False)
    except (OSError, ImportError, ValueError) as error:
        raise click.ClickException(
            f"{', '.join(paths)} cannot be read: {error}"
        ) from error


def format_of(path: str) -> str:
    """Return the format that a path's ending stands for; for an unknown ending, assume
    a folder of parquet files.
    """
    return SUFFIXES.get(_suffix(path), PARQUET)


def separator_of(path: str) -> str:
    return "\t" if _suffix(path) == ".tsv" else ","


def _written(path: str) -> tuple[str, str]:
    """Return separator and compression of a CSV file, by its name; "" if it is not
    compressed.
    """
    return separator_of(path), next(
        (one for one in COMPRESSED if path.endswith(one)), ""
    )


class Head(NamedTuple):
    """The beginning of a CSV file."""

    columns: list[str]  # all columns
    rows: pd.DataFrame  # the first rows, without most columns that are read as text


HEAD_ROWS = 5_000
"""Look at this many rows of each CSV file to choose dtypes."""

MAX_EXACT = 2**53
"""float64 represents every integer exactly up to this one."""

MISSING = [
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "None",
    "n/a",
    "nan",
    "null",
]
"""Texts that pandas reads as missing values. In columns of text, only empty cells are
missing.
"""


def _read_csv(paths: list[str], used: CsvColumns) -> Frame:
    with ThreadPoolExecutor() as threads:
        heads = dict(
            zip(paths, threads.map(lambda path: _head(path, used), paths), strict=True)
        )
    heads = _without_empty(heads)
    columns = list(
        dict.fromkeys(
            itertools.chain.from_iterable(head.columns for head in heads.values())
        )
    )
    how = _how(columns, used)
    dtypes: dict[str, Any] = dict.fromkeys(columns, str)
    for name in filter(used.is_inferred, columns):
        dtypes[name] = _common_dtype(
            [head.rows[name] for head in heads.values() if name in head.columns]
        )
    if used.read is not None:
        dtypes = {name: dtype for name, dtype in dtypes.items() if name in used.read}
    if _on_cpus():
        how["dtype"] = {name: dtype for name, dtype in dtypes.items() if dtype is str}
        frame = _by_blocks(
            heads,
            pd.DataFrame({name: pd.Series(dtype=dtypes[name]) for name in dtypes}),
            how,
        )
    else:
        how |= {"dtype": dtypes, "usecols": list(dtypes)}
        parts = [
            _csv(list(some), *written, how)
            for written, some in itertools.groupby(heads, _written)
        ]
        frame = parts[0] if len(parts) == 1 else dd.concat(parts)
    for name in used.ids.intersection(columns):
        texts = [head.rows[name] for head in heads.values() if name in head.columns]
        kind = None if used.is_inferred(name) else _integer_type(texts)
        if kind is not None:
            meta = (name, kind.to_pandas_dtype())
            frame = frame.assign(
                **{name: frame[name].map_partitions(as_integers, kind, meta=meta)}
            )
    return frame


def _on_cpus() -> bool:
    return dask.config.get("dataframe.backend", HOME) == HOME


def _how(columns: list[str], used: CsvColumns) -> dict[str, Any]:
    """Return options for reading some columns as text; the types of the others are
    inferred.
    """
    texts = [name for name in columns if not used.is_inferred(name)]
    how: dict[str, Any] = {"dtype": dict.fromkeys(texts, str)}
    if texts and _on_cpus():  # cuDF has no such option per column
        how["keep_default_na"] = False
        how["na_values"] = {
            name: [""] if name in texts else MISSING for name in columns
        }
    return how


def _head(path: str, used: CsvColumns) -> Head:
    try:
        columns = list(pd.read_csv(path, sep=separator_of(path), nrows=0))
    except pd.errors.EmptyDataError:
        raise click.ClickException(f"{path} is empty: it has no header.") from None
    looked = [
        name for name in columns if used.is_inferred(name) or name in used.ids
    ] or columns[:1]
    how = {"sep": separator_of(path), "nrows": HEAD_ROWS, "usecols": looked}
    return Head(columns, pd.read_csv(path, **how, **_how(columns, used)))


def _without_empty(heads: dict[str, Head]) -> dict[str, Head]:
    """Drop CSV files that have a header but no rows, because they do not show the
    dtypes.
    """
    filled = {path: head for path, head in heads.items() if len(head.rows)}
    if not filled:
        raise click.ClickException(
            f"{', '.join(heads)}: the table has a header and no rows, so its dtypes "
            "are unknown. Omit this "
            "table, or write it as parquet, which stores dtypes."
        )
    first, (columns, _) = next(iter(filled.items()))
    for path, head in heads.items():
        if path not in filled and head.columns != columns:
            raise click.ClickException(
                f"{path} has the columns {', '.join(head.columns)}, but {first} has "
                f"{', '.join(columns)}. "
                "Tables to concatenate need the same columns."
            )
    return filled


def _common_dtype(columns: list[pd.Series]) -> Any:
    """Return the dtype of a column in several CSV files: if they differ, float64 or
    text.
    """
    dtypes = {column.dtype for column in columns}
    if len(dtypes) == 1 and columns[0].dtype.kind in "biuf":
        return dtypes.pop()
    return np.float64 if all(map(_is_exact, columns)) else str


def _is_exact(column: pd.Series) -> bool:
    """Return whether a column holds numbers that float64 represents exactly."""
    if column.dtype.kind not in "iu":
        return bool(column.dtype.kind == "f")
    return not len(column) or max(-int(column.min()), int(column.max())) <= MAX_EXACT


def _integer_type(heads: list[pd.Series]) -> pa.DataType | None:
    """Return an integer type that loses no character of the texts, such as leading
    zeros; else None.
    """
    texts = pa.chunked_array(
        [pa.array(head, pa.large_string(), from_pandas=True) for head in heads]
    )
    return next(
        (kind for kind in (pa.int64(), pa.uint64()) if _exact(texts, kind) is not None),
        None,
    )


def as_integers(texts: Any, kind: pa.DataType) -> Any:
    """Convert the ids of a partition to integers; raise an error if that loses a
    character.
    """
    array = (
        texts.to_arrow()
        if hasattr(texts, "to_arrow")
        else pa.array(texts, from_pandas=True)
    )
    numbers = _exact(array, kind)
    if numbers is None:
        bad = next(
            one
            for one in array.to_pylist()
            if _exact(pa.array([one], pa.string()), kind) is None
        )
        found = "a missing id" if bad is None else f"the id {bad!r}"
        raise ValueError(
            f"Column {texts.name!r} of a CSV file has {found}, but the ids in its "
            "first rows are integers "
            "without leading zeros. Move a row with such an id to the top of the file, "
            "or write the table as "
            "parquet."
        )
    return type(texts)(numbers.to_numpy(), index=texts.index, name=texts.name)


def _exact(texts: Any, kind: pa.DataType) -> Any:
    """Convert texts to integers. Return None if a text is missing, or is not written
    like its integer.
    """
    try:
        numbers = texts.cast(kind)
    except pa.ArrowInvalid:
        return None
    return (
        numbers
        if not texts.null_count and numbers.cast(texts.type).equals(texts)
        else None
    )


class CsvBlock(NamedTuple):
    """A part of a CSV file. It ends with the first line that ends at or after its last
    byte.
    """

    path: str
    columns: list[str]  # all columns of the file
    start: int  # position of the first byte
    size: int | None  # bytes; None: the whole file


def _by_blocks(
    heads: dict[str, Head], meta: pd.DataFrame, how: dict[str, Any]
) -> Frame:
    """Read CSV files as a lazy frame like `meta`, with a partition per block.

    Unlike `dd.read_csv`, its tasks parse only the columns that a computation needs.
    """
    blocks = []
    for path, head in heads.items():
        fs, name = url_to_fs(path)
        size = None if path.endswith(COMPRESSED) else fs.size(name)
        if size is None:
            blocks.append(CsvBlock(path, head.columns, 0, None))
        else:
            blocks += [
                CsvBlock(path, head.columns, at, BLOCK_BYTES)
                for at in range(0, size, BLOCK_BYTES)
            ]
    func = functools.partial(read_csv_block, meta=meta, how=how)
    return dd.from_map(
        func, blocks, meta=meta, enforce_metadata=False, label="read-csv"
    )


def read_csv_block(
    block: CsvBlock,
    columns: list[str] | None = None,
    *,
    meta: pd.DataFrame,
    how: dict[str, Any],
) -> pd.DataFrame:
    """Parse some columns of a block, and convert them to the dtypes of `meta`."""
    wanted = meta if columns is None else meta[columns]
    with fsspec.open(block.path, compression="infer") as file:
        data = (
            file.read()
            if block.size is None
            else read_block(file, block.start, block.size, b"\n")
        )
    if not data.strip():
        return wanted
    names = {"header": None, "names": block.columns} if block.start else {}
    how = how | {
        "sep": separator_of(block.path),
        "usecols": list(wanted.columns) or block.columns[:1],
    }
    frame = pd.read_csv(BytesIO(data), **how, **names)[list(wanted.columns)]
    for name, dtype in wanted.dtypes.items():
        column = frame[name]
        if column.dtype == dtype or not len(column):
            continue
        if dtype.kind != "f" or column.dtype.kind not in "iu":
            raise _other_values(column, dtype)
        frame[name] = column.astype(dtype)
    return frame


def _other_values(column: pd.Series, dtype: Any) -> ValueError:
    """Return the error for a column whose values do not have the dtype of the first
    rows.
    """
    texts = column[[isinstance(one, str) for one in column]]
    bad = texts[pd.to_numeric(texts, errors="coerce").isna()]
    such = f", such as {bad.iloc[0]!r}" if len(bad) else ""
    return ValueError(
        f"Column {column.name!r} of a CSV file has values of dtype "
        f"{column.dtype}{such}, but its first rows "
        f"are of dtype {dtype}. Move a row with such a value to the top of the file, "
        "or write the table as "
        "parquet."
    )


def _csv(paths: list[str], separator: str, packed: str, how: dict[str, Any]) -> Frame:
    """Read similar CSV files as a lazy frame. Dask would treat a single path in a list
    as a pattern.
    """
    blocks = None if packed else "default"
    return dd.read_csv(
        paths if len(paths) > 1 else paths[0], sep=separator, blocksize=blocks, **how
    )


def _suffix(path: str) -> str:
    name = PurePosixPath(path)
    return PurePosixPath(name.stem).suffix if name.suffix in COMPRESSED else name.suffix


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
        raise click.ClickException(
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
        files = [one for one in sorted(fs.find(path)) if format_of(one) == CSV]
        if files and not any(
            _suffix(one) in SUFFIXES and format_of(one) == PARQUET
            for one in fs.find(path)
        ):
            return [fs.unstrip_protocol(one) for one in files]
    return [given]
