"""What a manifest tells of files: their names, and what is in them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowFile:
    """A file of so many rows; `boxes`: the file of its boxes."""

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
    """A file of the keys of ids, ascending, with their rows' places: so many, from `low` to `high`."""

    name: str
    rows: int
    low: int
    high: int


@dataclass(frozen=True)
class PairFile:
    """A file of so many pairs, all of the rows that a version had: see `StoredPairs`."""

    name: str
    rows: int
    version: int


@dataclass(frozen=True)
class MarkFile:
    """A file of the numbers of rows that went with a version; `again`: some of them came back with it."""

    name: str
    rows: int
    version: int
    again: bool


@dataclass(frozen=True)
class StoredPairs:
    """Pairs in files.

    A pair is there as long as neither of its rows went with a version after that of its file.

    Attributes
    ----------
    files : tuple of PairFile
    marks : tuple of MarkFile
    """

    files: tuple[PairFile, ...] = ()
    marks: tuple[MarkFile, ...] = ()
