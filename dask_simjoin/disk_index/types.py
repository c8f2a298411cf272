"""Data types shared by the modules of an index.

An index consists of files of rows, each of several row groups, and one manifest per version that lists the
valid files.  A sequence number (`SEQ`) identifies a row, and `VERSION` is the version that inserted it.  A
replaced row keeps its number and gets another version.  Rewriting files changes neither.

Two versions v < w of an index differ as follows.  Added rows are rows of w with a `VERSION` above v.  All
other rows of w are unchanged.  Deleted rows are rows of v that deletion files of versions above v name.  A
`Snapshot` is any such set of rows: row groups, and which of their rows count.

Call graph:

- Users call `index.py`.  `snapshots.py` makes the snapshots of a version.  `blocks.py` chooses row groups by
  their boxes, `graph.py` makes tasks that compare `Part`s, and `rows.read_part` reads them.
- `rows.write_rows` makes row files and boxes from frames, in tasks; `versions.commit` publishes a version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.request.spec import DistanceUnit, JoinSpec


@dataclass(frozen=True)
class RowFile:
    """A row file; `boxes`: the file with the boxes of its row groups."""

    name: str
    rows: int
    boxes: str


@dataclass(frozen=True)
class DeletedFile:
    """A deletion file: the (file, position) of each row that a version deleted."""

    name: str
    rows: int
    version: int


@dataclass(frozen=True)
class KeyFile:
    """A file of id keys, ascending from `low` to `high`, with the positions of their rows."""

    name: str
    rows: int
    low: int
    high: int


@dataclass(frozen=True)
class PairFile:
    """A pair file; `version`: the version that wrote it; see `StoredPairs`."""

    name: str
    rows: int
    version: int


@dataclass(frozen=True)
class MarkFile:
    """A file with the row numbers of rows that a version deleted; `again`: it inserted some of them anew."""

    name: str
    rows: int
    version: int
    again: bool


@dataclass(frozen=True)
class StoredPairs:
    """Pairs in files.

    A pair is valid unless a version later than its file deleted one of its rows.

    Attributes
    ----------
    files : tuple of PairFile
    marks : tuple of MarkFile
    """

    files: tuple[PairFile, ...] = ()
    marks: tuple[MarkFile, ...] = ()


SEQ = "_seq"
"""The column of row files with each row's sequence number, int64."""

VERSION = "_version"
"""The column of row files with the version that inserted the row's current values, int64."""

ID = "_id"
"""The column of row files for the frame's index, if the index names the rows."""


@dataclass(frozen=True)
class Options:
    """Options of an index, which never change.

    Attributes
    ----------
    eps : float
        Largest distance of the maintained pairs.
    on : tuple of str
        Columns of coordinates, or one of lists.
    id : str or None
        The column that names rows; None: the frame's index, which is the column `ID` of files.
    metric, p
    dims : int
        Dimensions of the embedded space, which boxes are measured in.
    lists, dropna, return_distance : bool
    keep, names : tuple of str
        As in `JoinSpec`.
    cut : tuple of int
        Dimensions of the embedded space that boxes cover.
    group : int
        Rows of a row group.
    recluster : str or float
    example : str
        Name of an empty file with the schema of all row files.
    store_pairs : bool
        Whether pairs are stored in files, too.
    unit : str or None
        Name of the unit of returned distances; None: the unit of the metric.
    unit_size : float
        The size of the unit: see `DistanceUnit`.
    """

    eps: float
    on: tuple[str, ...]
    id: str | None
    metric: str
    p: Norm
    dims: int
    lists: bool
    keep: tuple[str, ...]
    names: tuple[str, ...]
    dropna: bool
    return_distance: bool
    cut: tuple[int, ...]
    group: int
    recluster: str | float
    example: str
    store_pairs: bool = False
    unit: str | None = None
    unit_size: float = 1.0

    @property
    def row_id(self) -> str:
        """The column of row files that names rows."""
        return ID if self.id is None else self.id

    @property
    def columns(self) -> list[str]:
        """The columns of row files, besides `SEQ` and `VERSION`."""
        return list(dict.fromkeys([self.row_id, *self.on, *self.keep]))

    def spec(self, library: str, eps: float | None = None) -> JoinSpec:
        """Return the join options of this index; the dtype of ids is left open."""
        return JoinSpec(
            self.eps if eps is None else eps, self.on, self.row_id, metric=self.metric, p=self.p,
            dims=self.dims, lists=self.lists, return_distance=self.return_distance, library=library,
            keep=self.keep, names=self.names,
            unit=None if self.unit is None else DistanceUnit(self.unit, self.unit_size),
        )  # fmt: skip


@dataclass(frozen=True)
class Manifest:
    """One version of an index.

    Attributes
    ----------
    version : int
    parent : int or None
        The version that this one is based on.
    kind : str
        "index", "update", "restore" or "rewrite"; a rewrite keeps all rows and pairs.
    batch : str or None
        Name of the update.
    time : str
        UTC, ISO 8601.
    options : Options
    files : tuple of RowFile
    deleted : tuple of DeletedFile
        All deletion files that name rows of these files.
    keys : tuple of KeyFile
        Key files; they have keys of all rows of these files, and may have further keys.
    rows, next_seq : int
        Number of valid rows, and the sequence number of the next new row.
    batches : mapping of str to int
        Version of each recent batch.
    earlier : tuple of str
        Files with the names of earlier batches.
    counters : mapping
        Numbers carried from version to version, such as the reads that reclustering would have saved.
    pairs : StoredPairs
        The stored pairs, if any.
    """

    version: int
    parent: int | None
    kind: str
    batch: str | None
    time: str
    options: Options
    files: tuple[RowFile, ...]
    deleted: tuple[DeletedFile, ...]
    keys: tuple[KeyFile, ...]
    rows: int
    next_seq: int
    batches: Mapping[str, int] = field(default_factory=dict)
    earlier: tuple[str, ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    pairs: StoredPairs = field(default_factory=StoredPairs)


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Row groups: each array (g,) has one entry per row group.

    Attributes
    ----------
    file : array, int64
        Index of the row group's file in the snapshot.
    group : array, int64
        Index of the row group in the file.
    start : array, int64
        The position of its first row in the file.
    rows : array, int64
        Number of rows, including deleted rows.
    oldest, newest : array, int64
        The smallest and largest version of its rows.
    low, high : array (g, len(cut)), float64
        The box of its rows in the dimensions `Options.cut` of the embedded space.
    """

    file: np.ndarray
    group: np.ndarray
    start: np.ndarray
    rows: np.ndarray
    oldest: np.ndarray
    newest: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: np.ndarray) -> RowGroups:
        """Return some of the row groups."""
        return RowGroups(**{name: values[which] for name, values in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Part:
    """Row groups for a task to read: see `rows.read_part` and `Snapshot`.

    Attributes
    ----------
    pieces : tuple of (file's name, numbers of its row groups)
    deleted : tuple of str
        The deletion files with rows of these row groups.
    """

    root: AnyPath
    options: Options
    library: str
    pieces: tuple[tuple[str, tuple[int, ...]], ...]
    named: bool
    versions: tuple[int, int] | None
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Rows of an index: all of a version, or those added, deleted or unchanged between two versions.

    Attributes
    ----------
    root : Path
        The folder of the row files.
    options : Options
    library : str
        Library of the resulting frames: "pandas" or "cudf".
    files : tuple of str
        Names of the row files.
    groups : RowGroups
        Row groups that may contain rows of the snapshot.
    places : mapping of int to array
        Index of a file -> positions of excluded rows or, if `named`, of the only included rows.
    named : bool
    versions : (int, int)
        Only rows of a version above the first and up to the second.
    rows : int
        Number of rows.
    deleted : tuple of str
        The deletion files that `places` was read from; tasks read them again.
    """

    root: AnyPath
    options: Options
    library: str
    files: tuple[str, ...]
    groups: RowGroups
    places: Mapping[int, np.ndarray]
    named: bool
    versions: tuple[int, int]
    rows: int
    deleted: tuple[str, ...] = ()

    def part(self, which: Sequence[int] | np.ndarray) -> Part:
        """Return some of the row groups, by their index in `groups`, for a task to read."""
        pieces, some = [], False
        chosen = self.groups[np.asarray(which, np.int64)]
        for file in np.unique(chosen.file).tolist():
            own = chosen[chosen.file == file]
            own = own[np.argsort(own.group)]
            places = self.places.get(file, np.zeros(0, np.int64))
            first, behind = np.searchsorted(places, own.start), np.searchsorted(places, own.start + own.rows)
            some = some or bool((first < behind).any())
            pieces.append((self.files[file], tuple(own.group.tolist())))
        above, to = self.versions
        is_whole = (chosen.oldest > above).all() and (chosen.newest <= to).all()
        versions = None if is_whole else self.versions
        deletions = self.deleted if some else ()  # tasks share one object, which is sent once
        return Part(self.root, self.options, self.library, tuple(pieces), self.named, versions, deletions)

    def only(self, which: np.ndarray) -> Snapshot:
        """Select some row groups; `rows` is then an upper bound."""
        groups = self.groups[which]
        return replace(self, groups=groups, rows=min(self.rows, int(groups.rows.sum())))


@dataclass(frozen=True, eq=False)
class Delta:
    """Rows and pairs that changed between two versions of an index.

    Attributes
    ----------
    since, until : int
    inserted, deleted, same : Snapshot
        Added, deleted and unchanged rows. A replaced row is in `deleted` with its old values, and in
        `inserted` with its new values. Rows of `same` are never compared with each other.
    pairs : StoredPairs or None
        The added pairs, if they are stored.
    """

    since: int
    until: int
    inserted: Snapshot
    deleted: Snapshot
    same: Snapshot
    pairs: StoredPairs | None = None
