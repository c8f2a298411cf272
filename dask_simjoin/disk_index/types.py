"""Data types shared by the modules of an index.

An index is rows in files, each of row groups, and one manifest a version that says which of them there are.
A row is told by its sequence number (`SEQ`) and the version that it came in with (`VERSION`): a row that is
replaced keeps its number and gets another version, and rewriting files changes neither. So of two versions v
< w of an index, the rows that came in are those of w with a version above v; those that stay are the others
of w; those that went are the ones of v that files of deletions name in between. `Snapshot` is any of these:
row groups, and which of their rows count.

Who calls what:

- `index.py` is what users call. `snapshots.py` makes snapshots of versions for it, and `joins.py` lazy frames
  of their pairs: it chooses row groups by `Groups`, and makes tasks of `Part`s; `rows.read_part` reads them.
- `rows.write_rows` makes row files and boxes of frames, in tasks; `commits.commit` makes a version of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dask_simjoin.metrics.norms import Norm
from dask_simjoin.request.spec import JoinSpec


@dataclass(frozen=True)
class RowFile:
    """A row file; `boxes`: the file with the boxes of its row groups."""

    name: str
    rows: int
    boxes: str


@dataclass(frozen=True)
class DeletedFile:
    """A file of deletions, (file, position), that came with a version."""

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
    """A file of pairs between rows of one version: see `StoredPairs`."""

    name: str
    rows: int
    version: int


@dataclass(frozen=True)
class MarkFile:
    """Numbers of the rows that a version deleted; `again`: it also inserted some of them anew."""

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
"""The column of row files for the frame's index, if that names the rows."""


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
        As of `JoinSpec`.
    cut : tuple of int
        Dimensions of the embedded space that boxes cover.
    group : int
        Rows of a row group.
    recluster : str or float
    example : str
        Name of an empty file with the schema of all row files.
    store_pairs : bool
        Whether pairs are stored in files, too.
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
        "index", "update", "restore", or "rewrite", which changes no row.
    batch : str or None
        Name of the update.
    time : str
        UTC, ISO 8601.
    options : Options
    files : tuple of RowFile
    deleted : tuple of DeletedFile
        All deletion files that name rows of these files.
    keys : tuple of KeyFile
        Key files; they cover all rows of these files, and may cover others.
    rows, next_seq : int
        Valid rows; sequence number of the next new row.
    batches : mapping of str to int
        Version of each recent batch.
    earlier : tuple of str
        Files with the names of earlier batches.
    counters : mapping
        Numbers that are carried from version to version, such as what reclustering would have saved.
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
        The number of its file among the snapshot's.
    group : array, int64
        Its number in the file.
    start : array, int64
        The place of its first row in the file.
    rows : array, int64
        Rows that it has, deleted ones too.
    oldest, newest : array, int64
        The smallest and largest version of its rows.
    low, high : array (g, len(cut)), float64
        The box of its rows in the space that is joined in, of the dimensions `Options.cut`.
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
    """Row groups to be read by a task: see `rows.read_part` and `Snapshot`.

    Attributes
    ----------
    pieces : tuple of (file's name, numbers of its row groups)
    deleted : tuple of str
        The deletion files with rows of these row groups.
    """

    root: Path
    options: Options
    library: str
    pieces: tuple[tuple[str, tuple[int, ...]], ...]
    named: bool
    versions: tuple[int, int] | None
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Rows of an index: all of a version, or those that came, went or stayed between two.

    Attributes
    ----------
    root : Path
        The folder of the row files.
    options : Options
    library : str
        Library of the resulting frames: "pandas" or "cudf".
    files : tuple of str
        Names of the row files.
    groups : Groups
        Row groups that may contain rows of the snapshot.
    places : mapping of int to array
        File number -> positions of excluded rows or, if `named`, of the only included rows.
    named : bool
    versions : (int, int)
        Only rows of a version above the first and up to the second.
    rows : int
        Number of rows.
    deleted : tuple of str
        The deletion files that `places` was read from; tasks read them again.
    """

    root: Path
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
        """Some of the row groups, by their numbers in `groups`, as a task reads them."""
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
        told = (chosen.oldest > above).all() and (chosen.newest <= to).all()
        versions = None if told else self.versions
        told_by = self.deleted if some else ()  # the same object for all tasks, so that it is sent once
        return Part(self.root, self.options, self.library, tuple(pieces), self.named, versions, told_by)

    def only(self, which: np.ndarray) -> Snapshot:
        """Some of its row groups; `rows` is then an upper bound."""
        groups = self.groups[which]
        return replace(self, groups=groups, rows=min(self.rows, int(groups.rows.sum())))


@dataclass(frozen=True, eq=False)
class Delta:
    """Rows and pairs that changed between two versions of an index.

    Attributes
    ----------
    since, until : int
    inserted, deleted, same : Snapshot
        Rows, or values of replaced rows, that came, that went, and that stayed. Rows of `same` are never
        to be compared with each other.
    pairs : StoredPairs or None
        The added pairs, if they are stored.
    """

    since: int
    until: int
    inserted: Snapshot
    deleted: Snapshot
    same: Snapshot
    pairs: StoredPairs | None = None
