"""Reports of an index: the work and results of updates, changes, checks and
compactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from dask_simjoin.reports.facts import FieldsReport


@dataclass(frozen=True, repr=False)
class ChangeReport(FieldsReport):
    """The work to find the pairs that a change added or removed.

    Attributes
    ----------
    inserted, deleted : int
        Inserted and deleted rows; a replaced row counts as both.
    row_groups_read, row_groups_held, row_groups : int
        Row groups that may have pairs with changed rows: the number read from disk, and
        the number in memory (see `Index.persist`). And the number of all row groups of
        the index.
    rows_read : int
        Rows of the row groups that are read.
    bytes_read : int
        Bytes to read from files.
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
    """Estimated work and result of an update.

    Attributes
    ----------
    rows : int
        New rows.
    row_groups_read, row_groups : int
        Number of row groups within eps of a new row, and of all row groups.
    rows_read : int
        Rows of the row groups that are read.
    bytes_read : int
        Bytes to read from files.
    pairs : float
        Estimated number of new pairs, from a sample of row groups.
    seconds : float
        Estimated seconds for one thread to find the new pairs.
    seconds_anew : float
        Estimated seconds for one thread to join all rows again.
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
    """Rows and files that an update changed.

    Attributes
    ----------
    inserted, replaced, ignored, deleted : int
        Added rows with new ids; added rows that replaced old ones; new rows that were
        ignored; and rows whose ids were in `delete`.
    rows_left_out : int
        New rows without coordinates, which an index with ``dropna=True`` does not store.
    files : int
        Row files written.
    bytes_written : int
        Bytes written, without the manifest.
    known : bool
        Whether the batch was already committed, so that nothing was written.
    """

    title = "Index update"

    inserted: int = 0
    replaced: int = 0
    ignored: int = 0
    deleted: int = 0
    files: int = 0
    bytes_written: int = 0
    known: bool = False
    rows_left_out: int = 0

    def _further_facts(self) -> list[tuple[str, str]]:
        hidden = {"known"} if self.rows_left_out else {"known", "rows left out"}
        facts = [fact for fact in super()._further_facts() if fact[0] not in hidden]
        return [*facts, ("batch", "committed before")] if self.known else facts


@dataclass(frozen=True, repr=False)
class UpkeepReport(FieldsReport):
    """Result of a compaction.

    Attributes
    ----------
    version : int
        The version that the compaction made; the current version if nothing was worth
        rewriting.
    files_dropped, files_written : int
    rows : int
        Rows written.
    bytes_written : int
    """

    title = "Upkeep of an index"

    version: int
    files_dropped: int
    files_written: int
    rows: int
    bytes_written: int


class Damage(NamedTuple):
    """A file that is damaged or missing, with the versions that need it."""

    file: str  # path of the file within the folder of the index
    damage: str
    versions: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class CheckReport(FieldsReport):
    """Result of reading all files of an index.

    Attributes
    ----------
    versions, files : int
        Versions, and their files including manifests.
    bytes_read : int
        Bytes of these files.
    files_without_checksums : int
        Files that an older version of this package wrote. Reading cannot prove that
        they are intact; `optimize("all")` rewrites them.
    damaged : int
        Files that are damaged or missing.
    damage : tuple of Damage
        One entry per damaged or missing file.
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
        """One row per damaged file: its path in the folder, its damage, and the
        versions that need it.
        """
        return pd.DataFrame(list(self.damage), columns=list(Damage._fields))

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers of the report, by name."""
        return {
            name: value for name, value in super().numbers.items() if name != "damage"
        }

    def _further_facts(self) -> list[tuple[str, str]]:
        named = [
            (one.file, f"{one.damage} ({_listed(one.versions)})") for one in self.damage
        ]
        return [*super()._further_facts(), *named]


@dataclass(frozen=True, repr=False)
class QualityReport(FieldsReport):
    """Layout quality of the rows of an index; see `Index.quality`.

    Attributes
    ----------
    rows, files, row_groups : int
    small_files : int
        Files that updates wrote and that were not compacted yet.
    small_share, deleted_share : float
        Share of rows in small files, and share of deleted rows.
    scan : float
        Average number of rows that a search around one row reads: all rows of the row
        groups within eps.
    scan_ratio : float
        `scan`, divided by its estimated value after a full rewrite: 1 is the best.
    centroid_drift : float
        Total distance that the centroids of 20 clusters moved since the last full
        rewrite.  Centroids are computed from the boxes of row groups.  It is the
        quality metric of RE-JOIN (Korkmaz 2012).
    drift_in_eps : float
        The drift, divided by eps.
    excess : float
        Rows that updates have read needlessly since files were last reordered, because
        rows are not in order. ``recluster="auto"`` compares it with the cost of a
        rewrite.
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
    """Rows of an index in memory; see `Index.persist`.

    Attributes
    ----------
    rows, rows_on_disk : int
        Rows in memory, including deleted rows; and rows that do not fit in memory, so
        that each call reads them.
    files, files_on_disk : int
    slabs : int
        Segments in memory: rows of a file, each with its own search index.
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
    """Format version numbers. For consecutive versions, only the first and the last one
    are shown.
    """
    return f"version{'s' * (len(numbers) > 1)} {', '.join(_runs(numbers))}"


def _runs(numbers: tuple[int, ...]) -> Iterator[str]:
    first = last = numbers[0]
    for number in (*numbers[1:], None):
        if number != last + 1:
            yield f"{first}" if first == last else f"{first} to {last}"
            first = number or 0
        last = number or 0
