"""Reports of an index: what changes, checks and maintenance of it will do and did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from dask_simjoin.reports.facts import FieldsReport


@dataclass(frozen=True, repr=False)
class ChangeReport(FieldsReport):
    """The work of the pairs that a change made or took away.

    Attributes
    ----------
    inserted, deleted : int
        Rows that came and that went; a replaced row is one of each.
    row_groups_read, row_groups_held, row_groups : int
        Row groups of rows that stayed within reach of one of those: that are read, and that are in memory
        (`Index.persist`); and how many there are.
    rows_read : int
        Rows of the row groups that are read.
    bytes_read : int
        Of files: those row groups' columns that are read.
    tasks : int
        Tasks that find pairs.
    """

    title = "Work of a change of an index"

    inserted: int
    deleted: int
    row_groups_read: int
    row_groups_held: int
    row_groups: int
    rows_read: int
    bytes_read: int
    tasks: int


@dataclass(frozen=True, repr=False)
class UpdatePlan(FieldsReport):
    """What an update with some new rows would do.

    Attributes
    ----------
    rows : int
        New rows.
    row_groups_read, row_groups : int
        Row groups within reach of one of them, and how many there are.
    rows_read : int
        Rows of those.
    bytes_read : int
        Of files.
    pairs : float
        Pairs that would come, from the new rows' and from those of some row groups, which are joined.
    seconds : float
        Of one thread, to find them, as long as those row groups take.
    seconds_anew : float
        Of one thread, to join all rows anew, as long as it takes some row groups.
    """

    title = "Plan of an update of an index"

    rows: int
    row_groups_read: int
    row_groups: int
    rows_read: int
    bytes_read: int
    pairs: float
    seconds: float
    seconds_anew: float


@dataclass(frozen=True, repr=False)
class UpdateReport(FieldsReport):
    """What an update took in and wrote.

    Attributes
    ----------
    inserted, replaced, ignored, deleted : int
        Rows whose ids were new; that took the place of others; that were left out; that went.
    files : int
        Row files that were written.
    bytes_written : int
        Of all files, but for the manifest.
    known : bool
        Whether the batch was known, so that nothing was written.
    """

    title = "An update of an index"

    inserted: int = 0
    replaced: int = 0
    ignored: int = 0
    deleted: int = 0
    files: int = 0
    bytes_written: int = 0
    known: bool = False


@dataclass(frozen=True, repr=False)
class UpkeepReport(FieldsReport):
    """What putting rows in order did.

    Attributes
    ----------
    version : int
        The version it made; the one there was, if nothing was worth it.
    files_dropped, files_written : int
    rows : int
        Rows that were written.
    bytes_written : int
    """

    title = "Upkeep of an index"

    version: int
    files_dropped: int
    files_written: int
    rows: int
    bytes_written: int


class Damage(NamedTuple):
    """A damaged or missing file: its path in the folder, what is wrong, and the versions that need it."""

    file: str
    damage: str
    versions: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class CheckReport(FieldsReport):
    """What reading all of an index found.

    Attributes
    ----------
    versions, files : int
        Versions that there are, and their files, with manifests.
    bytes_read : int
        Of these files.
    files_without_checksums : int
        Files that an older version of this package wrote.  They can be read, which does not prove that they
        are as they were written; `optimize("all")` writes them anew.
    damaged : int
        Files that are damaged or missing.
    damage : tuple of Damage
        What they are.
    """

    title = "Check of an index"

    versions: int
    files: int
    bytes_read: int
    files_without_checksums: int
    damaged: int
    damage: tuple[Damage, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each damaged file: its path in the folder, its damage, and the versions that need it."""
        return pd.DataFrame(list(self.damage), columns=list(Damage._fields))

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers, by name."""
        return {name: value for name, value in super().numbers.items() if name != "damage"}

    def _further_facts(self) -> list[tuple[str, str]]:
        named = [(one.file, f"{one.damage} ({_listed(one.versions)})") for one in self.damage]
        return [*super()._further_facts(), *named]


@dataclass(frozen=True, repr=False)
class QualityReport(FieldsReport):
    """Tell how the rows of an index lie; see `Index.quality`.

    Attributes
    ----------
    rows, files, row_groups : int
    small_files : int
        Files of updates that were not put in order with others yet.
    small_share, deleted_share : float
        The share of rows in those, and of rows in files that were deleted.
    scan : float
        Rows of the row groups within eps of a row, on average.
    scan_ratio : float
        As many times as many as if all rows were put in order anew: 1 is the best.
    centroid_drift : float
        By how much, in all, the centroids of 20 clusters of the rows as they last were put in order moved by
        rows that came since: the quality metric of RE-JOIN (Korkmaz 2012), from the boxes of row groups.
    drift_in_eps : float
        The same, divided by eps.
    excess : float
        Rows that updates read since because row groups do not lie in order: what ``recluster="auto"``
        compares with the work of putting them in order.
    """

    title = "Quality of an index"

    rows: int
    files: int
    row_groups: int
    small_files: int
    small_share: float
    deleted_share: float
    scan: float
    scan_ratio: float
    centroid_drift: float
    drift_in_eps: float
    excess: float


@dataclass(frozen=True, repr=False)
class MemoryReport(FieldsReport):
    """Tell what of an index is held in memory; see `Index.persist`.

    Attributes
    ----------
    rows, rows_on_disk : int
        Rows that are held, deleted ones too, and those for which there is no room: they are read each time.
    files, files_on_disk : int
    slabs : int
        Parts of them, each with an index of its own.
    bytes_held : int
    """

    title = "Rows of an index in memory"

    rows: int
    rows_on_disk: int
    files: int
    files_on_disk: int
    slabs: int
    bytes_held: int


def _listed(numbers: tuple[int, ...]) -> str:
    """Name versions, those that follow each other by the first and the last."""
    return f"version{'s' * (len(numbers) > 1)} {', '.join(_runs(numbers))}"


def _runs(numbers: tuple[int, ...]) -> Iterator[str]:
    first = last = numbers[0]
    for number in (*numbers[1:], None):
        if number != last + 1:
            yield f"{first}" if first == last else f"{first} to {last}"
            first = number or 0
        last = number or 0
