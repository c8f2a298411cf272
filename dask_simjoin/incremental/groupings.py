"""Groups of the rows of a version in a file: what the groups of the next version are told from."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.incremental.files import new_name, parquet, read_groups, write_new
from dask_simjoin.incremental.rows import example_table
from dask_simjoin.incremental.schema import dtypes_in
from dask_simjoin.incremental.snapshots import Version
from dask_simjoin.incremental.types import SEQ
from dask_simjoin.metrics.types import Frame

FOLDER, ID, COMPONENT, ROOT = "components", "id", "component", "root"

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


def _paths(root: Path) -> dict[int, Path]:
    """The files that there are, by version."""
    folder = root / FOLDER
    found = folder.glob("*.parquet") if folder.is_dir() else ()
    return {int(path.stem): path for path in found if path.stem.isdigit()}


def known_grouping(version: Version) -> Grouping | None:
    """Read the groups of the last version up to this one of which they are known."""
    known = {number: path for number, path in _paths(version.root).items() if number <= version.number}
    for number in sorted(known, reverse=True):
        with contextlib.suppress(OSError, pa.ArrowInvalid):  # removed meanwhile, or half of a file
            table = pq.read_table(known[number], columns=[SEQ, ID, ROOT]).combine_chunks()
            seq, root = (table[name].to_numpy() for name in (SEQ, ROOT))
            ids = table[ID].combine_chunks()
            return Grouping(number, seq, ids.chunk(0) if isinstance(ids, pa.ChunkedArray) else ids, root, 0)
    return None


def write_grouping(version: Version, found: Grouping) -> None:
    """Keep the groups of a version, and no more than some."""
    folder = version.root / FOLDER
    folder.mkdir(exist_ok=True)
    component = found.ids.take(pa.array(np.searchsorted(found.seq, found.root)))
    table = pa.table({SEQ: found.seq, ID: found.ids, ROOT: found.root, COMPONENT: component})
    part = folder / f".{new_name()}"
    write_new(part, lambda file: pq.write_table(table, file, row_group_size=ROWS, compression="lz4"))
    part.replace(folder / f"{found.version:020d}.parquet")
    others = _paths(version.root)
    others.pop(found.version, None)  # kept, however old: it is about to be read
    for number in sorted(others, reverse=True)[KEPT - 1 :]:
        others[number].unlink(missing_ok=True)


def grouping_frame(version: Version) -> Frame:
    """Make a lazy frame of the groups of a version, which are known: columns id and component."""
    path = version.root / FOLDER / f"{version.number:020d}.parquet"  # others may have removed it
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
