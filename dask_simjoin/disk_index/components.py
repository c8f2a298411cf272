"""Connected components of the rows of an index, updated from version to version.

A group is a connected component. The id of its oldest row, which has the smallest row
number, is the name of the group. When groups merge, the result has the name of the
oldest one. When a group is split, the part with its oldest row keeps the name, and the
other parts get new names.

Added pairs merge groups. Groups that lost pairs are computed again: their rows are
read, and joined with each other. Other groups stay as they are.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import dask.dataframe as dd
import numpy as np
import pyarrow as pa

from dask_simjoin.disk_index.blocks import sizes
from dask_simjoin.disk_index.casts import dtypes_in
from dask_simjoin.disk_index.changes import PairChanges
from dask_simjoin.disk_index.checksums import ChecksumWriter, damaged
from dask_simjoin.disk_index.compare import Comparison, pairs_within
from dask_simjoin.disk_index.disks import check_folder
from dask_simjoin.disk_index.files import COMPONENTS as FOLDER
from dask_simjoin.disk_index.files import (
    call_on_workers,
    parquet,
    read_anew,
    read_groups,
    write_named,
    write_tables,
)
from dask_simjoin.disk_index.files import listed as files_in
from dask_simjoin.disk_index.folders import removed
from dask_simjoin.disk_index.graph import example_of_pairs, parts_of, spec_of
from dask_simjoin.disk_index.pair_files import all_pairs
from dask_simjoin.disk_index.row_batch import RowBatch, load, some
from dask_simjoin.disk_index.rows import (
    CACHED_VERSIONS,
    example_table,
    read_part,
    read_tables,
)
from dask_simjoin.disk_index.snapshots import Version
from dask_simjoin.disk_index.stores import AnyPath, is_read_only
from dask_simjoin.disk_index.types import SEQ, Part, Snapshot
from dask_simjoin.engine.base import (
    frames_for,
    frames_of_library,
    host_joiner,
    joiner_for,
)
from dask_simjoin.engine.compat import module_of, to_host, values_of
from dask_simjoin.errors import (
    IndexFormatError,
    IndexStoreError,
    IndexWriteError,
    VersionGoneError,
)
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import BATCH, PARTITION
from dask_simjoin.tasks.counts import Edges, new_nodes, no_edges, spanning_forest

ID, COMPONENT, ROOT = "id", "component", "root"

NAME = re.compile(r"([0-9]{20})(?:-[0-9a-f]{16})?")
"""Names of files, without the ending: a version, then a checksum, which is missing in
older files.
"""


class Grouping(NamedTuple):
    """The groups of a version that has n rows."""

    version: int
    seq: np.ndarray  # (n,), int64: row number of each row, ascending
    ids: pa.Array
    root: np.ndarray  # (n,), int64: for each row, the smallest row number in its group
    again: int  # how many rows are in groups that were computed again

    def root_of(self, seq: np.ndarray) -> np.ndarray:
        """For each row, return the smallest row number in its group. `seq`: row numbers
        of these rows.

        A row that this version does not have counts as a group of its own.
        """
        if not len(self.seq):
            return seq
        at = np.minimum(np.searchsorted(self.seq, seq), len(self.seq) - 1)
        return np.where(self.seq[at] == seq, self.root[at], seq)


def grouping_files(root: AnyPath) -> list[tuple[int, AnyPath]]:
    """List the files that store groups, as (version, path), the newest version first."""
    folder = root / FOLDER
    if isinstance(folder, Path):
        check_folder(folder)
    found = (path for path in files_in(folder) if path.suffix == ".parquet")
    matches = ((NAME.fullmatch(path.stem), path) for path in found)
    return sorted(
        ((int(match[1]), path) for match, path in matches if match), reverse=True
    )


def stored_grouping(version: Version) -> tuple[Grouping, AnyPath] | None:
    """Return the newest stored groups that are not newer than this version, with their
    file; None if there are none.
    """
    for number, path in grouping_files(version.root):
        if number > version.number:
            continue
        if path.is_dir():  # `write_grouping` could not replace a folder by a file
            raise damaged(
                path,
                "it is a folder",
                "Move it away: components() writes the file anew.",
            )
        try:
            table = read_anew(path, [SEQ, ID, ROOT]).combine_chunks()
            seq, root = (table[name].to_numpy() for name in (SEQ, ROOT))
            ids = _array(table[ID])
        except VersionGoneError:  # another process has removed the file meanwhile
            continue
        # the file is damaged: remove it, because groups can be computed again
        except (IndexFormatError, KeyError):
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        return Grouping(number, seq, ids, root, 0), path
    return None


def _array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    if not isinstance(found, pa.ChunkedArray):
        return found
    return (
        pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], found.type)
    )


def write_grouping(version: Version, found: Grouping) -> AnyPath:
    """Write the groups of a version to a file.

    Remove the files of older versions, except the newest `CACHED_VERSIONS`.
    """
    folder, table = version.root / FOLDER, grouping_table(found)

    def write(file: ChecksumWriter) -> None:
        write_tables([table], file, table.schema, table.schema.names, PARTITION)

    name, _ = write_named(folder, write, f"{found.version:020d}")
    others = grouping_files(version.root)
    numbers = sorted({number for number, _ in others} - {found.version}, reverse=True)
    for number, path in others:
        if number in numbers[CACHED_VERSIONS - 1 :]:
            # an old file that stays does no harm
            with contextlib.suppress(IndexWriteError, IndexStoreError):
                removed(path)
    return folder / name


def grouping_table(found: Grouping) -> pa.Table:
    component = found.ids.take(pa.array(np.searchsorted(found.seq, found.root)))
    return pa.table(
        {SEQ: found.seq, ID: found.ids, ROOT: found.root, COMPONENT: component}
    )


def grouping_frame(version: Version, path: AnyPath) -> Frame:
    """Return a lazy frame with the groups of a version, read from their file: columns
    id and component.
    """
    with parquet(path) as file:
        groups = range(max(1, file.num_row_groups))
    how: dict[str, Any] = {
        "path": path,
        "dtypes": _dtypes(version),
        "library": version.library,
    }
    meta = _read(0, **how).iloc[:0]
    return dd.from_map(_read, groups, **how, meta=meta, label="simjoin_components")


def frame_in_memory(version: Version, found: Grouping) -> Frame:
    """Return the same frame as `grouping_frame`, from groups in memory."""
    table = grouping_table(found).select([ID, COMPONENT])
    starts = range(0, max(1, len(table)), PARTITION)
    parts = [table.slice(start, PARTITION).combine_chunks() for start in starts]
    how: dict[str, Any] = {"dtypes": _dtypes(version), "library": version.library}
    meta = _as_frame(parts[0].slice(0, 0), **how)
    return dd.from_map(_as_frame, parts, **how, meta=meta, label="simjoin_components")


def _as_frame(table: pa.Table, dtypes: dict[str, str], library: str) -> Frame:
    return frames_of_library(library).from_arrow(table, dtypes)


def _dtypes(version: Version) -> dict[str, str]:
    options = version.manifest.options
    dtype = dtypes_in(example_table(version.root, options).schema).get(options.row_id)
    return {} if dtype is None else {ID: dtype, COMPONENT: dtype}


def _read(group: int, path: AnyPath, dtypes: dict[str, str], library: str) -> Frame:
    with parquet(path) as file:
        table = read_groups(
            file, [group] if file.num_row_groups else [], [ID, COMPONENT]
        )
    return frames_of_library(library).from_arrow(table, dtypes)


def components(version: Version) -> Frame:
    """Return the groups of a version's rows as a lazy frame. If no file has them, they
    are computed now and stored.
    """
    found, path = grouping_of(version)
    return (
        frame_in_memory(version, found)
        if path is None
        else grouping_frame(version, path)
    )


def grouping_of(version: Version) -> tuple[Grouping, AnyPath | None]:
    """Return the groups of a version and their file; None if it cannot be written.

    Groups that are not stored yet are computed: if possible, from the groups of an
    older version.
    """
    known = stored_grouping(version)
    if known is not None and known[0].version == version.number:
        return known
    found = None if known is None else _updated(known[0], version)
    found = found or _computed(version)
    try:
        return found, write_grouping(version, found)
    # the file is only a cache, so a full disk or a reader without rights needs none
    except IndexWriteError:
        return found, None
    except IndexStoreError as error:
        if not is_read_only(error):
            raise
        return found, None


def _computed(version: Version) -> Grouping:
    seq, ids = _numbers(version.rows)
    edges = _forest(all_pairs(version, numbered=True))
    return Grouping(
        version.number,
        seq,
        ids,
        _smallest_in_groups(np.arange(len(seq)), seq, edges),
        len(seq),
    )


def _updated(old: Grouping, version: Version) -> Grouping | None:
    """Compute the groups of a version from the stored groups of an older one.

    Return None if all groups must be computed anew. This is the case if the older
    version is not an ancestor, or if too many rows are in groups that lost pairs.
    """
    try:
        delta = version.since(old.version)
    except VersionGoneError:  # the older version is not an ancestor of this one
        return None
    changes = PairChanges(delta, False, numbered=True)
    (new, new_ids), (gone, _) = (
        _numbers(part) for part in (delta.inserted, delta.deleted)
    )
    stays = ~np.isin(old.seq, np.concatenate([gone, new]))
    seq = np.concatenate([old.seq[stays], new])
    order = np.argsort(seq)
    ids = pa.concat_arrays(
        [old.ids.filter(pa.array(stays)), new_ids.cast(old.ids.type)]
    )
    seq, ids = seq[order], ids.take(pa.array(order))
    before = old.root_of(seq)
    again = np.isin(before, old.root_of(np.concatenate(_forest(changes.removed))))
    rows, spec = version.rows, spec_of(version.rows, None, False, numbered=True)
    if again.sum() > min(len(seq) // 2, sizes(rows, spec).rows):
        return None
    start = np.where(again, np.arange(len(seq)), np.searchsorted(seq, before))
    parts = [
        _forest(changes.added),
        _edges_among(rows, seq[again], spec) if again.any() else no_edges(),
    ]
    root = _smallest_in_groups(start, seq, spanning_forest(parts, host_joiner()))
    return Grouping(version.number, seq, ids, root, int(again.sum()))


def _smallest_in_groups(start: np.ndarray, seq: np.ndarray, edges: Edges) -> np.ndarray:
    """For each row, return the smallest row number in its group.

    `start`: for each row, the position of a row that is known to be in its group.
    `seq`: row numbers, ascending. `edges`: the row numbers of pairs, which connect
    further rows.
    """
    parent = start.astype(new_nodes(len(start)).dtype)
    joiner = host_joiner()
    joiner.link(parent, np.searchsorted(seq, edges[0]), np.searchsorted(seq, edges[1]))
    joiner.roots(parent)
    return seq[parent]


def _forest(pairs: Frame) -> Edges:
    """Return the edges of a spanning forest of lazy pairs.

    Each task first reduces its own pairs to a forest.
    """
    found = pairs.map_partitions(
        _connecting, meta=pairs._meta[["left", "right"]]
    ).compute()
    return spanning_forest([_row_numbers_of(found)], host_joiner())


def _row_numbers_of(pairs: Frame) -> Edges:
    """Return the row numbers of left rows and of right rows, on the host."""
    left, right = (
        to_host(values_of(pairs[name])).astype(np.int64) for name in ("left", "right")
    )
    return left, right


def _connecting(pairs: Frame) -> Frame:
    """Return only the pairs that form a spanning forest, so that fewer pairs are sent."""
    sides = values_of(pairs["left"]), values_of(pairs["right"])
    left, right = spanning_forest([sides], joiner_for(pairs))
    return frames_for(pairs).result({"left": left, "right": right}, len(left))


def _numbers(rows: Snapshot) -> tuple[np.ndarray, pa.Array]:
    """Read the row numbers of all rows, ascending, and their ids."""
    columns = [SEQ, rows.options.row_id]
    parts = ((part, columns) for part in parts_of(rows, BATCH))
    found = call_on_workers("simjoin_numbers", _read_numbers, parts)
    table = pa.concat_tables(found).sort_by(SEQ).combine_chunks()
    return table[SEQ].to_numpy(), _array(table[columns[1]])


def _read_numbers(part: Part, columns: list[str]) -> pa.Table:
    tables = [table.select(columns) for table, _ in read_tables(part, columns)]
    return pa.concat_tables(
        [example_table(part.root, part.options).select(columns), *tables]
    )


def _edges_among(rows: Snapshot, seq: np.ndarray, spec: JoinSpec) -> Edges:
    """Return the edges of a spanning forest of the pairs among some rows. `seq`: row
    numbers of these rows, ascending.
    """
    each = ((part, seq, spec) for part in parts_of(rows, BATCH))
    found = [
        one
        for one in call_on_workers("simjoin_again", _rows_in, each)
        if len(one["seq"])
    ]
    xp = module_of(found[0]["x"])
    parts = {
        name: xp.concatenate([one[name] for one in found]) for name in ("x", "seq")
    }
    ids = frames_for(found[0]["example"]).index(parts["seq"])
    whole = RowBatch(
        x=xp.asfortranarray(parts["x"]),
        seq=parts["seq"],
        ids=ids,
        example=found[0]["example"],
    )
    how = Comparison(spec, rows.options.cut, example_of_pairs(rows, spec))
    return spanning_forest(
        [_row_numbers_of(pairs_within(how, whole, None, ["left", "right"]))],
        host_joiner(),
    )


def _rows_in(part: Part, seq: np.ndarray, spec: JoinSpec) -> RowBatch:
    """Read the rows of a part whose row numbers are in `seq`. If there are none, no
    coordinates are read.
    """
    numbers = to_host(values_of(read_part(part, [SEQ])[SEQ]))
    wanted = np.flatnonzero(np.isin(numbers, seq))
    rows = load(part if len(wanted) else replace(part, pieces=()), spec)
    return some(rows, module_of(rows["x"]).asarray(wanted))
