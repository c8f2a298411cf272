"""Data types shared by the modules of an index.

An index consists of row files, each with several row groups. One manifest per version
lists the files of the version. Each row has a row number (`SEQ`), which identifies it,
and the version that inserted it (`VERSION`). A replaced row keeps its row number and
gets another version. When files are rewritten, neither changes.

Take two versions v < w of an index. Rows of w whose `VERSION` is above v were added;
the other rows of w are unchanged. Deleted rows are those rows of v that are listed in
the deletion files of later versions up to w. Each of these three sets of rows is a
`Snapshot`.

- To read, `snapshots.py` makes the snapshots of a version.  `blocks.py` chooses row
  groups by their boxes, `graph.py` makes tasks that compare `Part`s, and
  `rows.read_part` reads a part in a task.
- To write, `rows.write_rows` makes row files and boxes in tasks, and `versions.commit`
  publishes a version.
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
from dask_simjoin.request.spec import (
    Coordinates,
    DistanceUnit,
    JoinSpec,
    Limit,
    MetricOptions,
    ResultOptions,
)


@dataclass(frozen=True)
class RowFile:
    """The entry of a row file in a manifest."""

    name: str
    rows: int
    boxes: str  # name of the file with the boxes of its row groups


@dataclass(frozen=True)
class DeletedFile:
    """The entry of a deletion file. The file has a (file, position) for each row that a
    version deleted.
    """

    name: str
    rows: int
    version: int


@dataclass(frozen=True)
class KeyFile:
    """The entry of a key file. The file has keys of ids, sorted from `low` to `high`,
    and where their rows are.
    """

    name: str
    rows: int
    low: int
    high: int


@dataclass(frozen=True)
class PairFile:
    """The entry of a file with stored pairs."""

    name: str
    rows: int
    version: int  # the version that wrote the file


@dataclass(frozen=True)
class MarkFile:
    """The entry of a mark file. The file has the row numbers of the rows that a version
    deleted.
    """

    name: str
    rows: int
    version: int
    # whether the version also inserted some of these rows again, with other values
    again: bool


@dataclass(frozen=True)
class StoredPairs:
    """Pairs in files. A pair is valid unless one of its rows was deleted by a version
    that is later than its file.
    """

    files: tuple[PairFile, ...] = ()
    marks: tuple[MarkFile, ...] = ()


SEQ = "_seq"
"""Name of the column with row numbers in row files, int64."""

VERSION = "_version"
"""Name of the column in row files with the version that inserted the current values of
the row, int64.
"""

ID = "_id"
"""Name of the column with ids in row files, if the ids come from the index of the
frame.
"""


@dataclass(frozen=True)
class Options:
    """The options of an index, which never change.

    Options without a comment are the same as in `JoinSpec`.
    """

    eps: float  # largest distance of the pairs that the index maintains
    on: tuple[str, ...]  # columns of coordinates, or one column of lists
    # column with row ids; None: ids come from the index of the frame, and are in the
    # column `ID`
    id: str | None
    metric: str
    p: Norm
    dims: int  # number of dimensions of the embedded space
    lists: bool
    keep: tuple[str, ...]
    names: tuple[str, ...]
    dropna: bool
    return_distance: bool
    # dimensions of the embedded space, by number; boxes have bounds in these only
    cut: tuple[int, ...]
    group: int  # number of rows in a row group
    # when to compact: the name of a policy, or a number that the scan ratio must exceed
    recluster: str | float
    example: str  # name of an empty file with the schema of all row files
    store_pairs: bool = False
    unit: str | None = None  # unit of returned distances; None: the unit of the metric
    unit_size: float = 1.0  # size of that unit: see `DistanceUnit`

    @property
    def row_id(self) -> str:
        """Name of the column in row files that has the row ids."""
        return ID if self.id is None else self.id

    @property
    def columns(self) -> list[str]:
        """The columns of row files other than `SEQ` and `VERSION`."""
        return list(dict.fromkeys([self.row_id, *self.on, *self.keep]))

    @property
    def eps_in_unit(self) -> str:
        """The distance with its unit, for messages."""
        metric = make_metric(self.metric, self.p)
        if self.unit is None:
            return f"{self.eps!r} {metric.unit}".rstrip()
        size = (
            2 * math.asin(math.sqrt(self.eps / 2))
            if metric.name == Cosine.name
            else self.eps
        )
        return f"{size / self.unit_size:.12g} {self.unit}"

    def spec(self, library: str, eps: float | None = None) -> JoinSpec:
        """Return the options for a join of the index. The dtype of ids is left open."""
        unit = None if self.unit is None else DistanceUnit(self.unit, self.unit_size)
        return JoinSpec(
            Limit(self.eps if eps is None else eps),
            self.on,
            self.row_id,
            keep=self.keep,
            names=self.names,
            metric=MetricOptions(self.metric, self.p),
            coordinates=Coordinates(self.dims, self.lists),
            result=ResultOptions(distance=self.return_distance, unit=unit),
            library=library,
        )


class Content(NamedTuple):
    """Identifies the new or the deleted rows of a batch. It does not depend on their
    order or partitions.
    """

    rows: int = 0
    digest: int = 0  # sum of a 64-bit hash for each row, modulo 2**64


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
    """One version of an index, as its manifest file describes it."""

    version: int
    parent: int | None  # the version that this one is based on; None for the first
    # "index", "update", "restore" or "rewrite"; a rewrite leaves all rows and pairs
    # unchanged
    kind: str
    batch: str | None  # name of the update, if it has one
    time: str  # UTC, ISO 8601
    options: Options
    files: tuple[RowFile, ...]
    deleted: tuple[DeletedFile, ...]  # all deletion files that list rows in `files`
    # key files that have the keys of all rows in `files`, and perhaps keys of removed
    # rows
    keys: tuple[KeyFile, ...]
    rows: int  # number of rows that are not deleted
    next_seq: int  # the row number that the next new row gets
    # name of each recent batch -> version that it made
    batches: Mapping[str, int] = field(default_factory=dict)
    earlier: tuple[str, ...] = ()  # names of files that list earlier batches
    counters: Mapping[str, float] = field(default_factory=dict)
    """Numbers that each version takes over from its parent, such as reads that a
    compaction would have saved.
    """
    pairs: StoredPairs = field(default_factory=StoredPairs)
    contents: Mapping[str, str] = field(default_factory=dict)
    """Name of each recent batch -> its `BatchContent` as text. Batches of early
    versions of the package have none.
    """


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Row groups. Each array has one entry per row group: int64 (g,), except for `low`
    and `high`.
    """

    # the file that has the row group, as an index in the snapshot's files
    file: np.ndarray
    group: np.ndarray  # index of the row group in its file
    start: np.ndarray  # position of the first row in the file
    rows: np.ndarray  # number of rows, including deleted rows
    oldest: np.ndarray  # smallest version of a row in the group
    newest: np.ndarray  # largest version of a row in the group
    # smallest and largest coordinates: float64 (g, len(cut)), in the dimensions
    # `Options.cut`
    low: np.ndarray
    high: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: np.ndarray) -> RowGroups:
        return RowGroups(**{name: values[which] for name, values in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Part:
    """Row groups of a `Snapshot` that one task reads: see `rows.read_part`."""

    root: AnyPath
    options: Options
    library: str
    # for each file, its name and the indexes of the row groups to read
    pieces: tuple[tuple[str, tuple[int, ...]], ...]
    only_listed: bool  # as in `Snapshot`
    # as in `Snapshot`; None if the versions of all rows of these row groups are in this
    # range
    versions: tuple[int, int] | None
    # names of the deletion files that list rows of these row groups
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Some rows of an index: all of a version, or those that a change added, deleted or
    left unchanged.
    """

    root: AnyPath  # folder of the index
    options: Options
    library: str  # library of the frames that methods return: "pandas" or "cudf"
    files: tuple[str, ...]  # names of the row files
    groups: RowGroups  # the row groups that may have rows of the snapshot
    places: Mapping[int, np.ndarray]
    """Index of a file -> positions of rows to exclude; or, if `only_listed`, of the
    only rows to include.
    """
    only_listed: bool  # whether only the rows in `places` are included
    # only rows whose version is above the first number and at most the second are
    # included
    versions: tuple[int, int]
    rows: int
    # the deletion files that gave `places`; tasks read these files again, since that is
    # faster than sending `places`
    deleted: tuple[str, ...] = ()

    def part(self, which: Sequence[int] | np.ndarray) -> Part:
        """Return a part for a task to read. `which`: indexes of its row groups in
        `groups`.
        """
        pieces, has_places = [], False
        chosen = self.groups[np.asarray(which, np.int64)]
        for file in np.unique(chosen.file).tolist():
            own = chosen[chosen.file == file]
            own = own[np.argsort(own.group)]
            places = self.places.get(file, np.zeros(0, np.int64))
            first, behind = (
                np.searchsorted(places, own.start),
                np.searchsorted(places, own.start + own.rows),
            )
            has_places = has_places or bool((first < behind).any())
            pieces.append((self.files[file], tuple(own.group.tolist())))
        above, to = self.versions
        is_whole = (chosen.oldest > above).all() and (chosen.newest <= to).all()
        versions = None if is_whole else self.versions
        # the same object in all tasks, so that Dask sends it once
        deletions = self.deleted if has_places else ()
        return Part(
            self.root,
            self.options,
            self.library,
            tuple(pieces),
            self.only_listed,
            versions,
            deletions,
        )

    def only(self, which: np.ndarray) -> Snapshot:
        """Select some of the row groups. The field `rows` is then an upper bound."""
        groups = self.groups[which]
        return replace(self, groups=groups, rows=min(self.rows, int(groups.rows.sum())))


@dataclass(frozen=True, eq=False)
class Delta:
    """The rows and pairs that have changed between two versions of an index.

    A replaced row is both in `deleted`, with its old values, and in `inserted`, with
    its new values.
    """

    inserted: Snapshot
    deleted: Snapshot
    # rows that are in both versions; no pair of two such rows has changed
    unchanged: Snapshot
    pairs: StoredPairs | None = None  # the added pairs, if the index stores them
