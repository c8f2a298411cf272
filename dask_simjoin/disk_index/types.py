"""Data types shared by the modules of an index.

An index consists of row files, each with several row groups, and one manifest per version that lists the
valid files.  Each row has a row number (`SEQ`) that identifies it, and the version that inserted it
(`VERSION`).  A replaced row keeps its row number and gets another version.  Rewriting files changes neither.

Take two versions v < w of an index.  The rows of w with a `VERSION` above v were added, and its other rows
are unchanged.  Deleted rows are the rows of v that deletion files of versions above v list.  Each of these
three sets of rows is a `Snapshot`.

- To read, `snapshots.py` makes the snapshots of a version.  `blocks.py` chooses row groups by their boxes,
  `graph.py` makes tasks that compare `Part`s, and `rows.read_part` reads a part in a task.
- To write, `rows.write_rows` makes row files and boxes in tasks, and `versions.commit` publishes a version.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.metrics.distances import Cosine, make_metric
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.request.spec import DistanceUnit, JoinSpec


@dataclass(frozen=True)
class RowFile:
    """A row file."""

    name: str
    rows: int
    boxes: str  # file with the boxes of its row groups


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
    """A file of pairs."""

    name: str
    rows: int
    version: int  # version that wrote the file


@dataclass(frozen=True)
class MarkFile:
    """A file with the row numbers of rows that a version deleted."""

    name: str
    rows: int
    version: int
    again: bool  # whether the version also inserted some of these rows with other values


@dataclass(frozen=True)
class StoredPairs:
    """Pairs in files: a pair is valid unless a version later than its file deleted one of its rows."""

    files: tuple[PairFile, ...] = ()
    marks: tuple[MarkFile, ...] = ()


SEQ = "_seq"
"""Column of row files with row numbers, int64."""

VERSION = "_version"
"""Column of row files with the version that inserted the row's current values, int64."""

ID = "_id"
"""Column of row files with ids that come from the index of the frame."""


@dataclass(frozen=True)
class Options:
    """Options of an index, which never change; options without a comment are as in `JoinSpec`."""

    eps: float  # largest distance of the maintained pairs
    on: tuple[str, ...]  # columns of coordinates, or one column of lists
    id: str | None  # column of row ids; None: ids come from the frame's index, and are in the column `ID`
    metric: str
    p: Norm
    dims: int  # dimensions of the embedded space
    lists: bool
    keep: tuple[str, ...]
    names: tuple[str, ...]
    dropna: bool
    return_distance: bool
    cut: tuple[int, ...]  # dimensions of the embedded space that boxes cover
    group: int  # rows of a row group
    recluster: str | float  # when to compact: a policy, or a scan ratio
    example: str  # name of an empty file with the schema of all row files
    store_pairs: bool = False
    unit: str | None = None  # unit of returned distances; None: the unit of the metric
    unit_size: float = 1.0  # size of the unit: see `DistanceUnit`

    @property
    def row_id(self) -> str:
        """Name of the column that holds the row ids in row files."""
        return ID if self.id is None else self.id

    @property
    def columns(self) -> list[str]:
        """The columns of row files, besides `SEQ` and `VERSION`."""
        return list(dict.fromkeys([self.row_id, *self.on, *self.keep]))

    @property
    def eps_in_unit(self) -> str:
        """The distance with its unit, for messages."""
        metric = make_metric(self.metric, self.p)
        if self.unit is None:
            return f"{self.eps!r} {metric.unit}".rstrip()
        size = 2 * math.asin(math.sqrt(self.eps / 2)) if metric.name == Cosine.name else self.eps
        return f"{size / self.unit_size:.12g} {self.unit}"

    def spec(self, library: str, eps: float | None = None) -> JoinSpec:
        """Return the join options of this index; the dtype of ids is left open."""
        return JoinSpec(
            self.eps if eps is None else eps, self.on, self.row_id, metric=self.metric, p=self.p,
            dims=self.dims, lists=self.lists, return_distance=self.return_distance, library=library,
            keep=self.keep, names=self.names,
            unit=None if self.unit is None else DistanceUnit(self.unit, self.unit_size),
        )  # fmt: skip


class Content(NamedTuple):
    """The new or deleted rows of a batch, regardless of their order and partitions."""

    rows: int = 0
    digest: int = 0  # sum of the 64-bit hashes of rows, modulo 2**64


class BatchContent(NamedTuple):
    new: Content
    deleted: Content

    def __str__(self) -> str:
        return " ".join(f"{one.rows}:{one.digest:016x}" for one in self)

    @classmethod
    def parse(cls, text: str) -> BatchContent:
        parts = (one.split(":") for one in text.split())
        return cls(*(Content(int(rows), int(digest, 16)) for rows, digest in parts))


@dataclass(frozen=True)
class Manifest:
    """One version of an index."""

    version: int
    parent: int | None  # version that this one is based on
    kind: str  # "index", "update", "restore" or "rewrite"; a rewrite keeps all rows and pairs
    batch: str | None  # name of the update
    time: str  # UTC, ISO 8601
    options: Options
    files: tuple[RowFile, ...]
    deleted: tuple[DeletedFile, ...]  # all deletion files that list rows of `files`
    keys: tuple[KeyFile, ...]  # keys of all rows of `files`, and perhaps of rows that were removed
    rows: int  # number of valid rows
    next_seq: int  # row number of the next new row
    batches: Mapping[str, int] = field(default_factory=dict)  # version of each recent batch
    earlier: tuple[str, ...] = ()  # files with the names of earlier batches
    counters: Mapping[str, float] = field(default_factory=dict)
    """Numbers that pass from version to version, such as the reads that a compaction would have saved."""
    pairs: StoredPairs = field(default_factory=StoredPairs)
    contents: Mapping[str, str] = field(default_factory=dict)
    """`BatchContent` of each recent batch, as text; batches of early versions have none."""


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Row groups: each array has one entry per row group; all are int64 (g,), except `low` and `high`."""

    file: np.ndarray  # index of the row group's file in the snapshot
    group: np.ndarray  # index of the row group in its file
    start: np.ndarray  # position of its first row in the file
    rows: np.ndarray  # number of its rows, including deleted rows
    oldest: np.ndarray  # smallest version of its rows
    newest: np.ndarray  # largest version of its rows
    low: np.ndarray  # box of its rows: float64 (g, len(cut)), in the dimensions `Options.cut`
    high: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: np.ndarray) -> RowGroups:
        return RowGroups(**{name: values[which] for name, values in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Part:
    """Row groups of a `Snapshot` for a task to read: see `rows.read_part`."""

    root: AnyPath
    options: Options
    library: str
    pieces: tuple[tuple[str, tuple[int, ...]], ...]  # name of a file, and indexes of its row groups
    only_listed: bool  # as in `Snapshot`
    versions: tuple[int, int] | None  # as in `Snapshot`; None: they exclude no row of these row groups
    deleted: tuple[str, ...] = ()  # deletion files with rows of these row groups


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Rows of an index: all rows of a version, or the rows that a change added, deleted or left unchanged."""

    root: AnyPath  # folder of the index
    options: Options
    library: str  # library of returned frames: "pandas" or "cudf"
    files: tuple[str, ...]  # names of the row files
    groups: RowGroups  # row groups that may contain rows of the snapshot
    places: Mapping[int, np.ndarray]
    """Index of a file -> positions of excluded rows or, if `only_listed`, of the only included rows."""
    only_listed: bool  # whether only the rows in `places` are included
    versions: tuple[int, int]  # only rows with a version above the first, and up to the second
    rows: int
    deleted: tuple[str, ...] = ()  # deletion files that `places` was read from; tasks read them again

    def part(self, which: Sequence[int] | np.ndarray) -> Part:
        """Return some of the row groups, by their index in `groups`, for a task to read."""
        pieces, has_places = [], False
        chosen = self.groups[np.asarray(which, np.int64)]
        for file in np.unique(chosen.file).tolist():
            own = chosen[chosen.file == file]
            own = own[np.argsort(own.group)]
            places = self.places.get(file, np.zeros(0, np.int64))
            first, behind = np.searchsorted(places, own.start), np.searchsorted(places, own.start + own.rows)
            has_places = has_places or bool((first < behind).any())
            pieces.append((self.files[file], tuple(own.group.tolist())))
        above, to = self.versions
        is_whole = (chosen.oldest > above).all() and (chosen.newest <= to).all()
        versions = None if is_whole else self.versions
        deletions = self.deleted if has_places else ()  # tasks share one object, which is sent once
        return Part(
            self.root, self.options, self.library, tuple(pieces), self.only_listed, versions, deletions
        )

    def only(self, which: np.ndarray) -> Snapshot:
        """Select some row groups; `rows` is then an upper bound."""
        groups = self.groups[which]
        return replace(self, groups=groups, rows=min(self.rows, int(groups.rows.sum())))


@dataclass(frozen=True, eq=False)
class Delta:
    """Rows and pairs that changed between two versions of an index.

    A replaced row is in `deleted` with its old values, and in `inserted` with its new values.
    """

    inserted: Snapshot
    deleted: Snapshot
    unchanged: Snapshot  # rows in both versions, which are never compared with each other
    pairs: StoredPairs | None = None  # the added pairs, if they are stored
