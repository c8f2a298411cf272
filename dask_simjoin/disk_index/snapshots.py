"""Versions of an index: the rows of each, and the rows that were added or deleted
between two of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from dask_simjoin.disk_index.files import read_file, write_table
from dask_simjoin.disk_index.manifests import back_to, latest, read_manifest
from dask_simjoin.disk_index.publishing import Transaction
from dask_simjoin.disk_index.rows import read_deleted
from dask_simjoin.disk_index.schema import Finder
from dask_simjoin.disk_index.segments import NO_CACHED_ROWS, CachedRows
from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.disk_index.types import (
    Delta,
    Manifest,
    Options,
    RowFile,
    RowGroups,
    Snapshot,
    StoredPairs,
)

FILE = "file"
LOW, HIGH = "low", "high"


def write_boxes(
    own: Transaction, files: Sequence[tuple[str, RowGroups]]
) -> tuple[str, int]:
    """Write the row groups of row files, including their boxes, to a file. Return its
    name and its size in bytes.
    """
    names = np.repeat([name for name, _ in files], [len(groups) for _, groups in files])
    columns: dict[str, object] = {FILE: pa.array(names.astype(object))}
    for field in fields(RowGroups)[1:]:
        values = np.concatenate([getattr(groups, field.name) for _, groups in files])
        if values.ndim == 1:
            columns[field.name] = values
        else:
            columns |= {
                f"{field.name}{k}": values[:, k] for k in range(values.shape[1])
            }
    return own.write("boxes", lambda file: write_table(pa.table(columns), file))


def read_boxes(
    root: AnyPath, files: Iterable[RowFile], options: Options
) -> tuple[tuple[str, ...], RowGroups]:
    """Read the row groups of row files. Return the names of the row files, and their
    row groups.
    """
    files = list(files)
    number = {one.name: n for n, one in enumerate(files)}
    tables = [
        read_file(root / "boxes" / name)
        for name in dict.fromkeys(one.boxes for one in files)
    ]
    names = [name for table in tables for name in table[FILE].to_pylist()]

    def column(name: str) -> np.ndarray:
        return np.concatenate(
            [np.zeros(0, np.int64), *(table[name].to_numpy() for table in tables)]
        )

    def side(name: str) -> np.ndarray:
        return np.stack(
            [column(f"{name}{k}") for k in range(len(options.cut))], axis=1
        ).astype(np.float64)

    groups = RowGroups(
        np.array([number.get(name, -1) for name in names], np.int64),
        column("group"),
        column("start"),
        column("rows"),
        column("oldest"),
        column("newest"),
        side(LOW),
        side(HIGH),
    )
    groups = groups[groups.file >= 0]
    return tuple(number), groups[np.lexsort((groups.group, groups.file))]


@dataclass(frozen=True, eq=False)
class Version:
    """A version of an index: its manifest, the boxes of its row groups, and its
    deletions.
    """

    root: AnyPath
    library: str  # library of the frames that methods return
    manifest: Manifest
    cached: CachedRows = NO_CACHED_ROWS  # those rows of the version that are in memory

    @property
    def number(self) -> int:
        return self.manifest.version

    @functools.cached_property
    def _boxes(self) -> tuple[tuple[str, ...], RowGroups]:
        return read_boxes(self.root, self.manifest.files, self.manifest.options)

    @functools.cached_property
    def deleted(self) -> Mapping[str, np.ndarray]:
        """Name of a row file -> positions of its deleted rows."""
        return read_deleted(self.root, self._deleted)

    @property
    def _deleted(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.manifest.deleted)

    @functools.cached_property
    def rows(self) -> Snapshot:
        return self._between(-1, self.number)

    @property
    def finder(self) -> Finder:
        none = np.zeros(0, np.int64)
        places = {
            one.name: self.deleted.get(one.name, none) for one in self.manifest.files
        }
        return Finder(
            self.root,
            self.manifest.options.row_id,
            self.manifest.keys,
            places,
            self.cached.keys,
        )

    def _between(self, above: int, to: int) -> Snapshot:
        """Return the rows that were inserted by versions above `above`, up to version
        `to`.
        """
        files, groups = self._boxes
        groups = groups[(groups.newest > above) & (groups.oldest <= to)]
        places = {
            n: self.deleted[name]
            for n, name in enumerate(files)
            if name in self.deleted
        }
        max_rows = (
            self.manifest.rows
            if above < 0 and to >= self.number
            else int(groups.rows.sum())
        )
        return Snapshot(
            self.root,
            self.manifest.options,
            self.library,
            files,
            groups,
            places,
            False,
            (above, to),
            max_rows,
            self._deleted,
        )

    def since(self, version: int) -> Delta:
        """Return what has changed from an older version to this one."""
        inserted, unchanged = (
            self._between(version, self.number),
            self._between(-1, version),
        )
        steps = list(back_to(self.root, self.manifest, version))
        files: dict[str, RowFile] = {}
        deletions: list[str] = []
        for step in steps:
            own = [one for one in step.deleted if one.version == step.version]
            deletions += [one.name for one in own]
            if own and step.parent is not None:
                files |= {
                    one.name: one for one in read_manifest(self.root, step.parent).files
                }
        gone = self._listed(tuple(deletions), version, files)
        return Delta(inserted, gone, unchanged, self._pairs_of(steps))

    def _pairs_of(self, steps: Sequence[Manifest]) -> StoredPairs | None:
        """Return the stored pairs that some versions have added; None if the added
        pairs must be computed.

        After a restore or a replaced row they must be computed, since such versions
        also store pairs that existed before.
        """
        files = [
            one
            for step in steps
            for one in step.pairs.files
            if one.version == step.version
        ]
        marks = [
            one
            for step in steps
            for one in step.pairs.marks
            if one.version == step.version
        ]
        back = any(step.kind == "restore" for step in steps) or any(
            one.again for one in marks
        )
        if back or not self.manifest.options.store_pairs:
            return None
        made = {step.version for step in steps if step.kind != "rewrite"}
        return StoredPairs(
            tuple(one for one in files if one.version in made), tuple(marks)
        )

    def _listed(
        self, deletions: tuple[str, ...], to: int, files: dict[str, RowFile]
    ) -> Snapshot:
        """Return the rows that deletion files list, without the rows that were inserted
        after version `to`.

        `files`: name of a row file -> its entry in the manifest.
        """
        listed = read_deleted(self.root, deletions)
        names, groups = read_boxes(
            self.root, [files[name] for name in listed], self.manifest.options
        )
        places = {n: listed[name] for n, name in enumerate(names)}
        stop = groups.start + groups.rows
        has = np.zeros(len(groups), bool)
        for n, at in places.items():
            own = groups.file == n
            has[own] = np.searchsorted(at, groups.start[own]) < np.searchsorted(
                at, stop[own]
            )
        groups = groups[has & (groups.oldest <= to)]
        rows = sum(map(len, places.values()))
        return Snapshot(
            self.root,
            self.manifest.options,
            self.library,
            names,
            groups,
            places,
            True,
            (-1, to),
            rows,
            deletions,
        )


def last_version(root: AnyPath, library: str) -> Version:
    return Version(root, library, latest(root))


def version_of(root: AnyPath, library: str, version: int) -> Version:
    return Version(root, library, read_manifest(root, version))
