"""The columns of row files. And key files: they map 64-bit keys of ids to rows."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dask.tokenize import tokenize

from dask_simjoin.catalog import HOME, library
from dask_simjoin.disk_index.casts import DTYPES, NO_ROWS, cast, dtypes_in, stored
from dask_simjoin.disk_index.files import (
    cut_parts,
    parquet,
    read_anew,
    read_groups,
    write_table,
)
from dask_simjoin.disk_index.publishing import Transaction
from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.disk_index.types import ID, SEQ, VERSION, KeyFile
from dask_simjoin.engine.base import frames_for, frames_of_library
from dask_simjoin.errors import ColumnError
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.unique_ids import id_keys
from dask_simjoin.request.messages import NO_UNICODE, listed, shown
from dask_simjoin.sizes import FEW, PAIRS_AT_ONCE, PARTITION

OWN = pa.schema([pa.field(SEQ, pa.int64()), pa.field(VERSION, pa.int64())])


def check_names(names: list[Hashable]) -> None:
    """Raise an error for column names that row files cannot have."""
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise ColumnError(
            "An index on disk needs columns whose names are strings, but "
            f"{listed(odd)} is not. Rename "
            "the columns: df.columns = df.columns.astype(str)."
        )
    taken = [name for name in names if name in (SEQ, VERSION, ID)]
    if taken:
        raise ColumnError(
            f"The index on disk reserves the names {listed(taken)}; rename these "
            "columns."
        )


def with_ids(frame: Frame, id: str | None, columns: list[str]) -> Frame:
    """Return the columns of row files. If `id` is None, the index of the frame becomes
    the column `ID`.
    """
    if id is not None:
        return frame[columns].reset_index(drop=True)
    rows = frame[[name for name in columns if name != ID]].copy()
    rows.index = rows.index.rename(ID)
    return rows.reset_index()[columns]


def arrow_of(rows: Frame) -> pa.Table:
    """Convert rows to an Arrow table. Raise an error if a column has mixed types."""
    try:
        table = frames_for(rows).to_arrow(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise ColumnError(
            f"Columns {listed(rows.columns)} cannot all be written to parquet "
            f"({error}). Convert mixed "
            "values, such as with .astype(str), or leave them out of keep=."
        ) from None
    except UnicodeEncodeError as error:
        raise ColumnError(
            f"Columns {listed(rows.columns)} cannot all be written to parquet: there "
            "is "
            f"{shown(error.object)}, {NO_UNICODE}."
        ) from None
    for number, one in enumerate(table.schema):
        # categories are stored as plain values, because each file would have its own
        # list of categories
        if pa.types.is_dictionary(one.type):
            plain = table.column(number).cast(one.type.value_type)
            table = table.set_column(number, one.name, plain)
    return table


def dtypes_of(frame: Frame) -> dict[str, str]:
    """Return the pandas dtype of each column, as text. For categories it is the dtype
    of their values.
    """
    if library(frame) != HOME:
        return {}
    plain = {
        name: getattr(kind, "categories", kind) for name, kind in frame.dtypes.items()
    }
    return {name: str(getattr(kind, "dtype", kind)) for name, kind in plain.items()}


def schema_of(rows: Frame) -> pa.Schema:
    """Return the schema of row files for rows like these. There must be at least one
    row.
    """
    schema, dtypes = arrow_of(rows).schema, dtypes_of(rows)
    fields = [
        *OWN,
        *(
            pa.field(one.name, _roomy(stored(one.type), dtypes.get(one.name)))
            for one in schema
        ),
    ]
    return pa.schema(fields, {DTYPES: json.dumps(dtypes).encode()})


def schema_without_rows(example: Frame) -> pa.Schema:
    """Return the schema of row files for an index that is made from an empty frame."""
    schema = schema_of(example)
    return schema.with_metadata({**schema.metadata, NO_ROWS: b"1"})


def as_written(rows: Frame, schema: pa.Schema, where: str) -> pa.Table:
    """Convert rows, which have `SEQ` and `VERSION`, to the schema of row files. Other
    column types are an error.
    """
    return cast(arrow_of(rows[schema.names]), schema, where)


def ids_in(table: pa.Table, row_id: str) -> pd.Index:
    """Return the ids in a table of rows as a pandas index, so that keys do not depend
    on the library.
    """
    return pd.Index(as_frame(table.select([row_id]), "pandas")[row_id])


def ids_as_read(ids: pd.Index, schema: pa.Schema, row_id: str, where: str) -> pd.Index:
    """Convert ids (n,) to the dtype that they have in row files, because the key of an
    id depends on its dtype.
    """
    none = ids_in(schema.empty_table(), row_id)
    read: Any = none.dtype
    if not len(ids):
        return none
    # two columns of dtype object may hold different types, so equal dtypes are not
    # enough
    if ids.dtype == read and read.kind != "O":
        return ids
    own = pa.schema([schema.field(row_id)], schema.metadata)
    table = arrow_of(pd.DataFrame({row_id: ids}))
    return ids_in(cast(table, own, where), row_id)


def _roomy(kind: pa.DataType, dtype: str | None) -> pa.DataType:
    """Return a type that later rows will also fit: decimals from object columns get the
    highest precision.
    """
    if not pa.types.is_decimal(kind) or dtype != "object":
        return kind
    made = pa.decimal256 if pa.types.is_decimal256(kind) else pa.decimal128
    return made(76 if made is pa.decimal256 else 38, kind.scale)


def as_frame(table: pa.Table, library: str) -> Frame:
    return frames_of_library(library).from_arrow(table, dtypes_in(table.schema))


GROUP, AT_ONCE = 1 << 16, 64
"""Number of keys per row group in a key file, and number of row groups that a lookup
reads at once.
"""

MAX_DELETED_SHARE = 0.3
"""A row file is rewritten if more than this share of its rows are deleted. A key file
is rewritten if this share of its keys belongs to row files that are gone.
"""

KEY, FILE, POSITION = "key", "file", "position"


def write_keys(
    table: pa.Table, row_id: str, name: str, own: Transaction
) -> tuple[KeyFile, int]:
    """Write a key file for the ids in a row file.

    Return its entry for the manifest, and its size in bytes.
    """
    keys = id_keys(ids_in(table, row_id))
    order = np.argsort(keys, kind="stable")
    files = pa.DictionaryArray.from_arrays(np.zeros(len(order), np.int32), [name])
    return _write(own, keys[order], table[SEQ].to_numpy()[order], files, order)


def _write(
    own: Transaction,
    keys: np.ndarray,
    seq: np.ndarray,
    files: pa.Array,
    positions: np.ndarray,
) -> tuple[KeyFile, int]:
    made = pa.table({KEY: keys, SEQ: seq, FILE: files, POSITION: positions})
    name, size = own.write("keys", lambda file: write_table(made, file, GROUP))
    return KeyFile(name, len(keys), int(keys[0]), int(keys[-1])), size


def merged(
    keys: tuple[KeyFile, ...], own: Transaction, files: set[str]
) -> tuple[tuple[KeyFile, ...], int]:
    """If there are many small key files, merge them. Keys of row files that were
    removed are left out.

    Return the entries of all key files, and the number of bytes written.
    """
    small = [one for one in keys if one.rows < PARTITION]
    if len(small) <= FEW:
        return keys, 0
    found, total = [one for one in keys if one not in small], 0
    small.sort(key=lambda one: one.low)
    for part in cut_parts(np.array([one.rows for one in small]), PAIRS_AT_ONCE):
        some = [small[n] for n in part]
        made, size = _joined(some, own, files) if len(some) > 1 else (tuple(some), 0)
        found += made
        total += size
    return tuple(found), total


def without_stale(
    keys: tuple[KeyFile, ...], own: Transaction, files: set[str]
) -> tuple[tuple[KeyFile, ...], int]:
    """Rewrite a key file if many of its keys belong to row files that were removed.

    Return the entries of all key files, and the number of bytes written.
    """
    names, found, total = pa.array(sorted(files), pa.string()), [], 0
    for one in keys:
        with parquet(own.root / "keys" / one.name) as file:
            column = read_groups(file, range(file.num_row_groups), [FILE])[FILE].cast(
                pa.string()
            )
        live = pc.sum(pc.is_in(column, names)).as_py() or 0
        if live >= (1 - MAX_DELETED_SHARE) * one.rows:
            found.append(one)
        elif live:
            made, size = _joined([one], own, files)
            found += made
            total += size
    return tuple(found), total


def _joined(
    keys: Sequence[KeyFile], own: Transaction, files: set[str]
) -> tuple[tuple[KeyFile, ...], int]:
    """Merge key files without the keys of removed row files. If no key is left, write
    nothing.
    """
    every = pa.concat_tables([read_anew(own.root / "keys" / one.name) for one in keys])
    every = every.unify_dictionaries().combine_chunks().sort_by(KEY).combine_chunks()
    names = (
        every[FILE].chunk(0)
        if len(every)
        else pa.array([], pa.string()).dictionary_encode()
    )
    of = names.indices.to_numpy()
    live = np.asarray(
        pc.is_in(names.dictionary, pa.array(sorted(files), pa.string())), bool
    )[of]
    if not live.any():
        return (), 0
    columns = [every[name].to_numpy()[live] for name in (KEY, SEQ, POSITION)]
    used, of = np.unique(of[live], return_inverse=True)
    places = pa.DictionaryArray.from_arrays(
        of.astype(np.int32), names.dictionary.take(pa.array(used))
    )
    file, size = _write(own, columns[0], columns[1], places, columns[2])
    return (file,), size


@dataclass(frozen=True, eq=False)
class Finder:
    """Finds rows of a version by their ids."""

    root: AnyPath
    row_id: str  # name of the column with ids
    keys: tuple[KeyFile, ...]
    # name of each row file of the version -> positions of deleted rows in the file
    places: dict[str, np.ndarray]
    cached: Mapping[str, pa.Table] = field(default_factory=dict)
    """Name of a key file -> its table, if it is in memory: see `read_keys`."""

    def __dask_tokenize__(self) -> str:
        return tokenize(str(self.root), self.row_id, self.keys, self.places)

    def find(self, ids: pd.Index) -> pd.DataFrame:
        """Return one row for each of the ids that the version has.

        The columns are `row` (the position of the id in `ids`), `file`, `position` and
        `SEQ`.
        """
        wanted = id_keys(ids)
        order = np.argsort(wanted, kind="stable")
        found = pd.concat(
            [EMPTY, *(self._among(one, wanted[order]) for one in self.keys)],
            ignore_index=True,
        )
        found["row"] = order[found["row"].to_numpy()]
        found = found[self._live(found)]
        if not _is_key(ids):
            found = found[self._same(found, ids)]
        return found.sort_values("row", ignore_index=True)

    def _among(self, one: KeyFile, wanted: np.ndarray) -> pd.DataFrame:
        """From a key file, return the entries whose keys are wanted. `wanted`: keys,
        ascending.
        """
        low, high = np.array([one.low, one.high], np.uint64)
        if np.searchsorted(wanted, low) == np.searchsorted(wanted, high, "right"):
            return EMPTY
        if one.name in self.cached:
            table = self.cached[one.name]
            row, at = _matches(table[KEY].to_numpy(), wanted)
            return _found(row, table.select([FILE, POSITION, SEQ]).take(pa.array(at)))
        with parquet(self.root / "keys" / one.name) as file:
            groups = _with_some(file.metadata, wanted)
            parts = [
                _matching(file, groups[start : start + AT_ONCE], wanted)
                for start in range(0, len(groups), AT_ONCE)
            ]
        return pd.concat([EMPTY, *parts], ignore_index=True)

    def _live(self, found: pd.DataFrame) -> np.ndarray:
        """Return a mask of those found rows that belong to this version and are not
        deleted.
        """
        live = np.zeros(len(found), bool)
        for name, rows in found.groupby(FILE, sort=False).indices.items():
            if name in self.places:
                live[rows] = ~np.isin(
                    found[POSITION].to_numpy()[rows], self.places[name]
                )
        return live

    def _same(self, found: pd.DataFrame, ids: pd.Index) -> np.ndarray:
        """Return a mask of the found rows whose ids equal the requested ids. Equal keys
        are not enough.
        """
        are_equal = np.zeros(len(found), bool)
        for name, rows in found.groupby(FILE, sort=False).indices.items():
            places = found[POSITION].to_numpy()[rows]
            with parquet(self.root / "rows" / name) as file:
                sizes = [
                    file.metadata.row_group(g).num_rows
                    for g in range(file.num_row_groups)
                ]
                starts = np.cumsum([0, *sizes])
                group = np.searchsorted(starts, places, "right") - 1
                for g in np.unique(group).tolist():
                    own = rows[group == g]
                    table = read_groups(file, [g], [self.row_id])
                    there = ids_in(
                        table.take(pa.array(places[group == g] - starts[g])),
                        self.row_id,
                    )
                    are_equal[own] = np.asarray(
                        there == ids[found["row"].to_numpy()[own]], bool
                    )
        return are_equal


NONE = np.zeros(0, np.int64)
EMPTY = pd.DataFrame(
    {"row": NONE, FILE: np.zeros(0, object), POSITION: NONE, SEQ: NONE}
)


def _with_some(about: pq.FileMetaData, wanted: np.ndarray) -> list[int]:
    """List the row groups of a key file that may have a wanted key. `wanted`: keys,
    ascending.
    """
    statistics = [
        about.row_group(g).column(0).statistics for g in range(about.num_row_groups)
    ]
    low, high = (
        np.array([getattr(one, end) for one in statistics], np.uint64)
        for end in ("min", "max")
    )
    first, behind = np.searchsorted(wanted, low), np.searchsorted(wanted, high, "right")
    found: list[int] = np.flatnonzero(first < behind).tolist()
    return found


def _matching(
    file: pq.ParquetFile, groups: list[int], wanted: np.ndarray
) -> pd.DataFrame:
    """Read the entries with wanted keys from some consecutive row groups of a key file."""
    row, at = _matches(read_groups(file, groups, [KEY])[KEY].to_numpy(), wanted)
    if not len(row):
        return EMPTY
    ends = np.cumsum([file.metadata.row_group(g).num_rows for g in groups])
    of = np.searchsorted(ends, at, "right")
    some = np.unique(of)
    sizes = np.diff(ends, prepend=0)
    # for each row group, the number of rows before it in groups that are not read again
    skipped = np.zeros(len(groups), np.int64)
    skipped[1:] = np.cumsum(np.where(np.isin(np.arange(len(groups)), some), 0, sizes))[
        :-1
    ]
    table = read_groups(file, [groups[n] for n in some.tolist()], [FILE, POSITION, SEQ])
    return _found(row, table.take(pa.array(at - skipped[of])))


def _matches(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of equal keys, as indexes in `wanted` and in `keys`. Both arrays
    are ascending.
    """
    first = np.searchsorted(keys, wanted)
    times = np.searchsorted(keys, wanted, "right") - first
    # different ids can have the same key, so a key may repeat in both arrays
    row = np.repeat(np.arange(len(wanted)), times)
    return row, np.repeat(first, times) + np.arange(len(row)) - np.repeat(
        np.cumsum(times) - times, times
    )


def _found(row: np.ndarray, own: pa.Table) -> pd.DataFrame:
    names = own[FILE].cast(pa.string()).to_pandas().astype(object)
    places = {POSITION: own[POSITION].to_numpy(), SEQ: own[SEQ].to_numpy()}
    return pd.DataFrame({"row": row, FILE: names, **places})


def read_keys(root: AnyPath, one: KeyFile) -> pa.Table:
    return read_anew(root / "keys" / one.name).unify_dictionaries().combine_chunks()


def _is_key(ids: pd.Index) -> bool:
    """Return whether the key of an id is the id itself, so that equal keys mean equal
    ids.
    """
    return isinstance(ids.dtype, np.dtype) and ids.dtype.kind in "iumM"
