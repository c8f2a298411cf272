"""Write and read the files of an index that hold rows, sorted in kd order. Write and
read deletion files.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dask_simjoin.disk_index.files import (
    cut_parts,
    parquet,
    read_file,
    read_groups,
    write_table,
)
from dask_simjoin.disk_index.publishing import Transaction
from dask_simjoin.disk_index.schema import as_frame, as_written, write_keys
from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.disk_index.types import (
    SEQ,
    VERSION,
    DeletedFile,
    KeyFile,
    Options,
    Part,
    RowGroups,
)
from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.index.cpu_tiles import FAN_OUT
from dask_simjoin.engine.index.kdtree import dims_to_cut, kd_order
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.sample import moments
from dask_simjoin.sizes import FEW, READ_BYTES

FILE, POSITION = "file", "position"

CACHED_VERSIONS = 2
"""A process caches the deleted rows of this many versions: one for a version, and one
for a change. The groups of this many versions stay on disk.
"""


def write_deleted(
    own: Transaction, places: dict[str, np.ndarray], version: int
) -> tuple[DeletedFile, int]:
    """Write a deletion file. Return its entry for the manifest, and its size in bytes.

    `places`: name of a row file -> positions of its deleted rows.
    """
    names = np.repeat(
        np.array(list(places), object), [len(some) for some in places.values()]
    )
    at = np.concatenate([np.zeros(0, np.int64), *places.values()])
    table = pa.table(
        {FILE: pa.array(names, pa.string()).dictionary_encode(), POSITION: at}
    )
    name, size = own.write("deleted", lambda file: write_table(table, file))
    return DeletedFile(name, len(at), version), size


def places_in(root: AnyPath, name: str) -> dict[str, np.ndarray]:
    """Read a deletion file. Return: name of a row file -> positions of its deleted
    rows.
    """
    table = read_file(root / "deleted" / name)
    at, files = table[POSITION].to_numpy(), table[FILE].to_pandas().cat
    codes = files.codes.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(files.categories) + 1))
    parts = zip(files.categories, ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    return {name: at[order[a:b]] for name, a, b in parts if a < b}


@functools.lru_cache(CACHED_VERSIONS)
def read_deleted(root: AnyPath, deleted: tuple[str, ...]) -> Mapping[str, np.ndarray]:
    """Read deletion files. Return: name of a row file -> positions of its deleted rows,
    ascending.

    The result is cached for later tasks, because files never change.
    """
    found: dict[str, list[np.ndarray]] = {}
    for one in deleted:
        for name, at in places_in(root, one).items():
            found.setdefault(name, []).append(at)
    places = {name: np.unique(np.concatenate(parts)) for name, parts in found.items()}
    for at in places.values():
        at.flags.writeable = False
    return MappingProxyType(places)


NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Written:
    name: str
    rows: int
    size: int  # size of the row file in bytes
    groups: RowGroups  # the row groups of the file; their field `file` is 0
    keys: KeyFile
    keys_size: int  # size of the key file in bytes


def embedded(rows: Frame, options: Options, library: str) -> np.ndarray:
    """Return the embedded coordinates (n, dims) of rows, on the host."""
    frames = frames_of_library(library)
    columns = frames.coordinates(rows, options.on)
    return to_host(options.spec(library).measure.embed(columns, frames.xp))


def write_rows(
    rows: Frame, options: Options, own: Transaction, schema: pa.Schema, library: str
) -> Written | None:
    """Write rows to a new file. They have the columns of the index, `SEQ` and
    `VERSION`. Return None if there are no rows.
    """
    n, group = len(rows), options.group
    if not n:
        return None
    x = embedded(rows, options, library)
    order = kd_order(x, dims_to_cut(moments(x).variance, x), group, FAN_OUT)
    table = as_written(rows, schema, "of the new rows").take(pa.array(order))
    name, size = own.write("rows", lambda file: write_table(table, file, group))
    groups = _groups(x[order][:, list(options.cut)], table[VERSION].to_numpy(), group)
    return Written(name, n, size, groups, *write_keys(table, options.row_id, name, own))


def _groups(x: np.ndarray, version: np.ndarray, group: int) -> RowGroups:
    """Return the row groups of a file. Each has `group` rows, except the last one.

    `x` (n, dims): embedded coordinates in the order of the file. `version` (n,): the
    version of each row.
    """
    start = np.arange(0, len(x), group)
    rows = np.diff(np.append(start, len(x)))
    lowest, highest = np.minimum.reduceat, np.maximum.reduceat
    boxes = lowest(x, start, axis=0), highest(x, start, axis=0)
    ages = lowest(version, start), highest(version, start)
    return RowGroups(
        np.zeros_like(start), np.arange(len(start)), start, rows, *ages, *boxes
    )


def read_part(part: Part, columns: list[str] | None = None) -> Frame:
    """Read the rows of a part. Their order is arbitrary.

    `columns`: the columns to return, in this order; None: `SEQ`, `VERSION` and all
    columns of the index.
    """
    wanted = [SEQ, VERSION, *part.options.columns] if columns is None else columns
    tables = [table for table, _ in read_tables(part, wanted)]
    if not tables:
        tables = [example_table(part.root, part.options)]
    return as_frame(pa.concat_tables(tables).select(wanted), part.library)


def read_tables(
    part: Part, columns: list[str]
) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """For each file of a part, yield the rows of the part, and the positions of these
    rows in the file.
    """
    for table, places, kept in _read_pieces(part, columns):
        if kept is None or kept.all():
            yield table, places
        elif FEW * (some := np.flatnonzero(kept)).size < len(kept):
            yield table.take(pa.array(some)), places[some]
        else:
            yield table.filter(pa.array(kept)), places[kept]


def read_every(part: Part, columns: list[str]) -> tuple[Frame, np.ndarray | None]:
    """Read all rows of row groups. Also return a mask of the rows that belong to the
    part; None if all do.
    """
    pieces = list(_read_pieces(part, columns))
    if not pieces:
        return read_part(part, columns), None
    return _as_one(pieces, columns, part), _all_masks(pieces)


def read_both(
    part: Part, listing: Part, columns: list[str]
) -> tuple[Frame, np.ndarray | None, np.ndarray]:
    """Read row groups as `read_every` does. Also return a mask of the rows that belong
    to `listing`.
    """
    pieces = list(
        _read_pieces(part, columns if listing.versions is None else [*columns, VERSION])
    )
    listed, own = read_deleted(listing.root, listing.deleted), []
    for (name, _), (table, places, _) in zip(part.pieces, pieces, strict=True):
        those = np.zeros(len(places), bool)
        those[_indexes_of(listed.get(name, NONE), places)] = True
        if listing.versions is not None:
            those &= _of_versions(table[VERSION].to_numpy(), listing.versions)
        own.append(those)
    return _as_one(pieces, columns, part), _all_masks(pieces), np.concatenate(own)


Piece = tuple[pa.Table, np.ndarray, np.ndarray | None]
"""Rows of a file, their positions in the file, and a mask of the rows that belong to
the part; None: all.
"""


def _all_masks(pieces: list[Piece]) -> np.ndarray | None:
    """Concatenate the masks of pieces. Return None if all rows of all pieces belong to
    the part.
    """
    if all(kept is None for _, _, kept in pieces):
        return None
    return np.concatenate(
        [np.ones(len(at), bool) if kept is None else kept for _, at, kept in pieces]
    )


def _as_one(pieces: list[Piece], columns: list[str], part: Part) -> Frame:
    return as_frame(
        pa.concat_tables([table for table, _, _ in pieces]).select(columns),
        part.library,
    )


def _read_pieces(part: Part, columns: list[str]) -> Iterator[Piece]:
    versions = part.versions
    wanted = list(dict.fromkeys(columns if versions is None else [*columns, VERSION]))
    deleted = read_deleted(part.root, part.deleted)
    for name, groups in part.pieces:
        listed = deleted.get(name, NONE)
        with parquet(part.root / "rows" / name) as file:
            about = file.metadata
            sizes = np.array(
                [about.row_group(g).num_rows for g in range(groups[-1] + 1)]
            )
            own, starts = np.asarray(groups), np.cumsum(sizes) - sizes
            if part.only_listed:
                table, places = _read_named(file, wanted, listed, own, starts, sizes)
            else:
                table, places = (
                    read_groups(file, groups, wanted),
                    _places(starts[own], sizes[own]),
                )
        kept = (
            None
            if versions is None
            else _of_versions(table[VERSION].to_numpy(), versions)
        )
        gone = NONE if part.only_listed else _indexes_of(listed, places)
        if len(gone):
            kept = np.ones(len(places), bool) if kept is None else kept
            kept[gone] = False
        yield table, places, kept


def _read_named(
    file: pq.ParquetFile,
    columns: list[str],
    listed: np.ndarray,
    groups: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
) -> tuple[pa.Table, np.ndarray]:
    """From some row groups, read the rows at listed positions.

    Only a few row groups are in memory at a time.
    """
    tables, found = [], []
    size = np.array(
        [file.metadata.row_group(g).total_byte_size for g in groups.tolist()]
    )
    for part in cut_parts(size, READ_BYTES):
        some = groups[part]
        places = _places(starts[some], sizes[some])
        own = _indexes_of(listed, places)
        tables.append(read_groups(file, some.tolist(), columns).take(pa.array(own)))
        found.append(places[own])
    return pa.concat_tables(tables), np.concatenate(found)


def _places(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """For the rows of some row groups, return their positions in the file (n,),
    ascending.
    """
    return np.concatenate(
        [
            np.arange(a, a + n)
            for a, n in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]
    )


def _indexes_of(listed: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return where in `places` the values of `listed` are. Both are ascending."""
    own = listed[
        np.searchsorted(listed, places[0]) : np.searchsorted(
            listed, places[-1], "right"
        )
    ]
    at = np.searchsorted(places, own)
    return at[places[at] == own]


def _of_versions(version: np.ndarray, versions: tuple[int, int]) -> np.ndarray:
    """Return a mask of the rows whose version is above `versions[0]`, and at most
    `versions[1]`.
    """
    return (version > versions[0]) & (version <= versions[1])


def write_example(own: Transaction, schema: pa.Schema) -> str:
    """Write an empty file with the schema that all row files have. Return its name."""
    return own.write("rows", lambda file: write_table(schema.empty_table(), file))[0]


def example_table(root: AnyPath, options: Options) -> pa.Table:
    return read_file(root / "rows" / options.example)
