"""Where rows lie, by their ids: files of 64-bit keys in order, with the rows' places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dask.tokenize import tokenize

from dask_simjoin.incremental.cuts import cut_parts
from dask_simjoin.incremental.entries import KeyFile
from dask_simjoin.incremental.files import parquet, read_anew, read_groups, write_named, write_table
from dask_simjoin.incremental.schema import ids_in
from dask_simjoin.incremental.types import SEQ
from dask_simjoin.planning.statistics.unique_ids import id_keys

GROUP = 1 << 16
"""Keys of a row group: what is read to find one."""

AT_ONCE = 64
"""Row groups that are read at a time."""

MOST_SMALL = 8
"""Files of fewer than `SMALL` keys from which on they become one."""

SMALL = 1 << 20

JOINED = 1 << 22
"""Keys of a file that is made of several, at most: they are in the memory of this process as it is made."""

MOSTLY = 0.75
"""Share of a key file's keys that are to be of row files that there are, else it is written anew."""

KEY, FILE, POSITION = "key", "file", "position"


def write_keys(table: pa.Table, row_id: str, name: str, root: Path) -> tuple[KeyFile, int]:
    """Write the keys of the ids of a row file of that name; tells the file and its bytes."""
    keys = id_keys(ids_in(table, row_id))
    order = np.argsort(keys, kind="stable")
    files = pa.DictionaryArray.from_arrays(np.zeros(len(order), np.int32), [name])
    return _write(root, keys[order], table[SEQ].to_numpy()[order], files, order)


def _write(root: Path, keys: np.ndarray, seq: np.ndarray, files: pa.Array,
           positions: np.ndarray) -> tuple[KeyFile, int]:  # fmt: skip
    made = pa.table({KEY: keys, SEQ: seq, FILE: files, POSITION: positions})
    own, size = write_named(root / "keys", lambda file: write_table(made, file, GROUP))
    return KeyFile(own, len(keys), int(keys[0]), int(keys[-1])), size


def merged(keys: tuple[KeyFile, ...], root: Path, files: set[str]) -> tuple[tuple[KeyFile, ...], int]:
    """Make few of small key files, if they are many, without keys of other row files; tells their bytes."""
    small = [one for one in keys if one.rows < SMALL]
    if len(small) <= MOST_SMALL:
        return keys, 0
    found, total = [one for one in keys if one not in small], 0
    small.sort(key=lambda one: one.low)
    for part in cut_parts(np.array([one.rows for one in small]), JOINED):
        some = [small[n] for n in part]
        made, size = _joined(some, root, files) if len(some) > 1 else (tuple(some), 0)
        found += made
        total += size
    return tuple(found), total


def without_stale(keys: tuple[KeyFile, ...], root: Path,
                  files: set[str]) -> tuple[tuple[KeyFile, ...], int]:  # fmt: skip
    """Write key files anew that are mostly of row files that there are no more; tells their bytes."""
    names, found, total = pa.array(sorted(files), pa.string()), [], 0
    for one in keys:
        with parquet(root / "keys" / one.name) as file:
            column = read_groups(file, range(file.num_row_groups), [FILE])[FILE].cast(pa.string())
        live = pc.sum(pc.is_in(column, names)).as_py() or 0
        if live >= MOSTLY * one.rows:
            found.append(one)
        elif live:
            made, size = _joined([one], root, files)
            found += made
            total += size
    return tuple(found), total


def _joined(keys: Sequence[KeyFile], root: Path, files: set[str]) -> tuple[tuple[KeyFile, ...], int]:
    """Make one key file of some, without keys of other row files; none if none are left."""
    every = pa.concat_tables([read_anew(root / "keys" / one.name) for one in keys])
    every = every.unify_dictionaries().combine_chunks().sort_by(KEY).combine_chunks()
    names = every[FILE].chunk(0) if len(every) else pa.array([], pa.string()).dictionary_encode()
    of = names.indices.to_numpy()
    live = np.asarray(pc.is_in(names.dictionary, pa.array(sorted(files), pa.string())), bool)[of]
    if not live.any():
        return (), 0
    columns = [every[name].to_numpy()[live] for name in (KEY, SEQ, POSITION)]
    used, of = np.unique(of[live], return_inverse=True)
    own = pa.DictionaryArray.from_arrays(of.astype(np.int32), names.dictionary.take(pa.array(used)))
    file, size = _write(root, columns[0], columns[1], own, columns[2])
    return (file,), size


@dataclass(frozen=True, eq=False)
class Finder:
    """Finds rows of a version by their ids.

    Attributes
    ----------
    root : Path
    row_id : str
    keys : tuple of KeyFile
    places : mapping of str to array
        Of each row file of the version the places of its deleted rows.
    held : mapping of str to Table
        Key files that are in memory, by their names: see `read_keys`.
    """

    root: Path
    row_id: str
    keys: tuple[KeyFile, ...]
    places: dict[str, np.ndarray]
    held: Mapping[str, pa.Table] = field(default_factory=dict)

    def __dask_tokenize__(self) -> str:
        return tokenize(str(self.root), self.row_id, self.keys, self.places)

    def find(self, ids: pd.Index) -> pd.DataFrame:
        """Where rows of these ids are: columns `row` (of `ids`), `file`, `position`, `SEQ`.

        Ids that no row has are left out.
        """
        wanted = id_keys(ids)
        order = np.argsort(wanted, kind="stable")
        found = pd.concat([EMPTY, *(self._among(one, wanted[order]) for one in self.keys)], ignore_index=True)
        found["row"] = order[found["row"].to_numpy()]
        found = found[self._live(found)]
        if not _is_key(ids):
            found = found[self._same(found, ids)]
        return found.sort_values("row", ignore_index=True)

    def _among(self, one: KeyFile, wanted: np.ndarray) -> pd.DataFrame:
        """Rows of a key file of keys that are wanted, which are in order."""
        if not _within(wanted, one.low, one.high):
            return EMPTY
        if one.name in self.held:
            table = self.held[one.name]
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
        """Which of the places are rows of this version."""
        live = np.zeros(len(found), bool)
        for name, rows in found.groupby(FILE, sort=False).indices.items():
            if name in self.places:
                live[rows] = ~np.isin(found[POSITION].to_numpy()[rows], self.places[name])
        return live

    def _same(self, found: pd.DataFrame, ids: pd.Index) -> np.ndarray:
        """Which of the rows have the ids themselves: of others only the keys are the same."""
        same = np.zeros(len(found), bool)
        for name, rows in found.groupby(FILE, sort=False).indices.items():
            places = found[POSITION].to_numpy()[rows]
            with parquet(self.root / "rows" / name) as file:
                sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
                starts = np.cumsum([0, *sizes])
                group = np.searchsorted(starts, places, "right") - 1
                for g in np.unique(group).tolist():
                    own = rows[group == g]
                    table = read_groups(file, [g], [self.row_id])
                    there = ids_in(table.take(pa.array(places[group == g] - starts[g])), self.row_id)
                    same[own] = np.asarray(there == ids[found["row"].to_numpy()[own]], bool)
        return same


NONE = np.zeros(0, np.int64)
EMPTY = pd.DataFrame({"row": NONE, FILE: np.zeros(0, object), POSITION: NONE, SEQ: NONE})


def _within(wanted: np.ndarray, low: int, high: int) -> bool:
    """Whether some of the keys, which are in order, are from one up to another."""
    first, last = np.array([low, high], np.uint64)
    return bool(np.searchsorted(wanted, first) < np.searchsorted(wanted, last, "right"))


def _with_some(about: pq.FileMetaData, wanted: np.ndarray) -> list[int]:
    """List the row groups of a key file that may have some of the keys, which are in order."""
    told = [about.row_group(g).column(0).statistics for g in range(about.num_row_groups)]
    low, high = (np.array([getattr(one, end) for one in told], np.uint64) for end in ("min", "max"))
    first, behind = np.searchsorted(wanted, low), np.searchsorted(wanted, high, "right")
    found: list[int] = np.flatnonzero(first < behind).tolist()
    return found


def _matching(file: pq.ParquetFile, groups: list[int], wanted: np.ndarray) -> pd.DataFrame:
    """Read the rows of some row groups, which follow each other, whose keys are wanted."""
    row, at = _matches(read_groups(file, groups, [KEY])[KEY].to_numpy(), wanted)
    if not len(row):
        return EMPTY
    ends = np.cumsum([file.metadata.row_group(g).num_rows for g in groups])
    of = np.searchsorted(ends, at, "right")
    some = np.unique(of)
    sizes = np.diff(ends, prepend=0)
    kept = np.zeros(len(groups), np.int64)  # rows of groups before each that are not read again
    kept[1:] = np.cumsum(np.where(np.isin(np.arange(len(groups)), some), 0, sizes))[:-1]
    table = read_groups(file, [groups[n] for n in some.tolist()], [FILE, POSITION, SEQ])
    return _found(row, table.take(pa.array(at - kept[of])))


def _matches(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair keys that are wanted with equal ones, both in order: places in `wanted`, and in `keys`."""
    first = np.searchsorted(keys, wanted)
    times = np.searchsorted(keys, wanted, "right") - first
    # equal keys of different ids may be there, and wanted, several times
    row = np.repeat(np.arange(len(wanted)), times)
    return row, np.repeat(first, times) + np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)


def _found(row: np.ndarray, own: pa.Table) -> pd.DataFrame:
    names = own[FILE].cast(pa.string()).to_pandas().astype(object)
    places = {POSITION: own[POSITION].to_numpy(), SEQ: own[SEQ].to_numpy()}
    return pd.DataFrame({"row": row, FILE: names, **places})


def read_keys(root: Path, one: KeyFile) -> pa.Table:
    """Read a key file, to be held in memory."""
    return read_anew(root / "keys" / one.name).unify_dictionaries().combine_chunks()


def _is_key(ids: pd.Index) -> bool:
    """Whether ids are their keys."""
    return isinstance(ids.dtype, np.dtype) and ids.dtype.kind in "iumM"
