"""Groups of the rows of a version in a file: what the groups of the next version are told from."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any, NamedTuple

import dask.dataframe as dd
import numpy as np
import pyarrow as pa

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.errors import IndexFormatError, VersionGoneError
from dask_simjoin.incremental.checked import SummedFile
from dask_simjoin.incremental.damage import damaged
from dask_simjoin.incremental.files import parquet, read_anew, read_groups, write_named, write_tables
from dask_simjoin.incremental.rows import example_table
from dask_simjoin.incremental.schema import dtypes_in
from dask_simjoin.incremental.snapshots import Version
from dask_simjoin.incremental.types import SEQ
from dask_simjoin.metrics.types import Frame

FOLDER, ID, COMPONENT, ROOT = "components", "id", "component", "root"

NAME = re.compile(r"([0-9]{20})(?:-[0-9a-f]{16})?")
"""What a file is called, without its ending: its version and its checksum, which older files lack."""

KEPT = 2
"""Versions of which groups are kept."""

ROWS = 1 << 20
"""Rows of a partition of what is told."""


class Grouping(NamedTuple):
    """The group of each row of a version.

    Attributes
    ----------
    version : int
    seq : array (n,), int64
        The rows' numbers, ascending.
    ids : Array of Arrow (n,)
    root : array (n,), int64
        The smallest number of each row's group.
    again : int
        Rows whose groups were looked through again.
    """

    version: int
    seq: np.ndarray
    ids: pa.Array
    root: np.ndarray
    again: int

    def root_of(self, seq: np.ndarray) -> np.ndarray:
        """Find the groups of rows; of those that are not known themselves."""
        if not len(self.seq):
            return seq
        at = np.minimum(np.searchsorted(self.seq, seq), len(self.seq) - 1)
        return np.where(self.seq[at] == seq, self.root[at], seq)


def grouping_files(root: Path) -> list[tuple[int, Path]]:
    """List the files that there are, with their versions, the last one first."""
    folder = root / FOLDER
    found = folder.glob("*.parquet") if folder.is_dir() else ()
    told = ((NAME.fullmatch(path.stem), path) for path in found)
    return sorted(((int(match[1]), path) for match, path in told if match), reverse=True)


def known_grouping(version: Version) -> tuple[Grouping, Path] | None:
    """Read the groups of the last version up to this one of which they are known, and tell the file."""
    for number, path in grouping_files(version.root):
        if number > version.number:
            continue
        if path.is_dir():  # nothing can be written in its place
            raise damaged(path, "it is a folder", "Move it away: components() writes the file anew.")
        try:
            table = read_anew(path, [SEQ, ID, ROOT]).combine_chunks()
            seq, root = (table[name].to_numpy() for name in (SEQ, ROOT))
            ids = table[ID].combine_chunks()
        except VersionGoneError:  # removed meanwhile
            continue
        except (IndexFormatError, KeyError):  # all of it can be told anew
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        own = ids.chunk(0) if isinstance(ids, pa.ChunkedArray) else ids
        return Grouping(number, seq, own, root, 0), path
    return None


def write_grouping(version: Version, found: Grouping) -> Path:
    """Keep the groups of a version in a file, and those of no more versions than some."""
    folder = version.root / FOLDER
    folder.mkdir(exist_ok=True)
    component = found.ids.take(pa.array(np.searchsorted(found.seq, found.root)))
    table = pa.table({SEQ: found.seq, ID: found.ids, ROOT: found.root, COMPONENT: component})

    def write(file: SummedFile) -> None:
        write_tables([table], file, table.schema, table.schema.names, ROWS)

    name, _ = write_named(folder, write, f"{found.version:020d}")
    others = grouping_files(version.root)
    numbers = sorted({number for number, _ in others} - {found.version}, reverse=True)
    for number, path in others:
        if number in numbers[KEPT - 1 :]:
            path.unlink(missing_ok=True)
    return folder / name


def grouping_frame(version: Version, path: Path) -> Frame:
    """Make a lazy frame of the groups of a version, which are in a file: columns id and component."""
    options = version.manifest.options
    dtype = dtypes_in(example_table(version.root, options).schema).get(options.row_id)
    dtypes = {} if dtype is None else {ID: dtype, COMPONENT: dtype}
    with parquet(path) as file:
        groups = range(max(1, file.num_row_groups))
    how: dict[str, Any] = {"path": path, "dtypes": dtypes, "library": version.library}
    meta = _read(0, **how).iloc[:0]
    return dd.from_map(_read, groups, **how, meta=meta, label="simjoin_components")


def _read(group: int, path: Path, dtypes: dict[str, str], library: str) -> Frame:
    with parquet(path) as file:
        table = read_groups(file, [group] if file.num_row_groups else [], [ID, COMPONENT])
    return frames_of_library(library).from_arrow(table, dtypes)
