"""The `Index` class: rows on disk whose pairs change as rows come and go."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import dask.dataframe as dd
import numpy as np
import pandas as pd

from dask_simjoin.catalog.libraries import library
from dask_simjoin.disk_index import changes as joins
from dask_simjoin.disk_index.cache import Opened, changes_to
from dask_simjoin.disk_index.changes import PairChanges
from dask_simjoin.disk_index.checking import check_index, history_of, quality_of, vacuumed
from dask_simjoin.disk_index.commits import Change, attempted, commit
from dask_simjoin.disk_index.components import components
from dask_simjoin.disk_index.graph import stored_rows
from dask_simjoin.disk_index.maintenance import HOW, keep_up, optimize, worn
from dask_simjoin.disk_index.manifests import read_manifest
from dask_simjoin.disk_index.pair_files import all_pairs
from dask_simjoin.disk_index.publishing import Transaction, made_by
from dask_simjoin.disk_index.reports import (
    ChangeReport,
    CheckReport,
    QualityReport,
    UpdatePlan,
    UpdateReport,
    UpkeepReport,
)
from dask_simjoin.disk_index.requests import (
    DIFF,
    IF_EXISTS,
    check_batch,
    check_version,
)
from dask_simjoin.disk_index.snapshots import Version
from dask_simjoin.disk_index.types import Manifest
from dask_simjoin.disk_index.updating import (
    Update,
    changed_by,
    foreign_rows,
    incoming_rows,
    lazy_frame,
    restored,
)
from dask_simjoin.disk_index.writing import FILE_ROWS, coordinates_of
from dask_simjoin.errors import VersionGoneError
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.inputs import example_of
from dask_simjoin.request.units import check_choice, check_eps, check_metric, check_whole, without_unit


class IndexChanges:
    """What changed between two versions of an index: pairs that came, and pairs that went.

    Attributes
    ----------
    since, version : int
        The two versions; pairs of `since`, less `removed`, with `added`, are those of `version`.
    report : UpdateReport
        What the update took in and wrote, in numbers.
    upkeep : UpkeepReport or None
        What putting rows in order after it did, by the index's policy; None: nothing is done after it.
    """

    def __init__(self, find: Callable[[int, int], PairChanges], since: int, version: int,
                 report: UpdateReport, upkeep: UpkeepReport | None = None) -> None:  # fmt: skip
        self._find = find
        self.since, self.version, self.report, self.upkeep = since, version, report, upkeep

    @functools.cached_property
    def _pairs(self) -> PairChanges:
        return self._find(self.since, self.version)

    @property
    def added(self) -> Frame:
        """Pairs that came, lazily: columns as those of `Index.pairs`."""
        return self._pairs.added

    @property
    def removed(self) -> Frame:
        """Pairs that went, lazily."""
        return self._pairs.removed

    @property
    def work(self) -> ChangeReport:
        """What finding them takes, in numbers: row groups that are read, of how many there are."""
        return self._pairs.report

    def __repr__(self) -> str:
        return f"Changes from version {self.since} to {self.version}: {self.report}"


class Made(NamedTuple):
    """What an attempt made.

    Attributes
    ----------
    since : int
        The version before it; of a batch that is known, the one that it made then.
    manifest : Manifest
    report : UpdateReport
    """

    since: int
    manifest: Manifest
    report: UpdateReport


class Index(Opened):
    """Rows on disk, and their pairs within a distance: see `frame.simjoin.index` and `open_index`.

    Every update makes a version. Versions are never changed, so that what is asked of two of them is the
    same whenever, and by whomever, it is asked. Frames that methods return are lazy.
    """

    def __len__(self) -> int:
        return self._now().manifest.rows

    def update(self, new: Frame | None = None, *, delete: Any = None, if_exists: str = "fail",
               batch: str | None = None) -> IndexChanges:  # fmt: skip
        """Take in new rows, and let others go, as one version.

        Parameters
        ----------
        new : DataFrame, optional
            Dask's, pandas' or cuDF's, with the columns of the index.
        delete : list, array, Index or Series of ids, optional
            Rows that go.  An id that is in `new` too is that of a row that is replaced.
        if_exists : {"fail", "replace", "ignore"}
            What to do with rows whose ids the index has.
        batch : str, optional
            A name of this update.  If there was one of this name, nothing is done, and its changes are
            returned: so what may have been done before a crash can be done again.

        Returns
        -------
        Changes

        Raises
        ------
        DuplicateIdError
            Ids repeat in `new`, or are known to the index and `if_exists` is "fail".
        OptionError
            Ids in `delete` that no row has.
        ColumnError, CoordinateError
            Rows that are not like those of the index.
        IndexConflictError
            Other writers made versions again and again meanwhile, or it took more than half a day.
        IndexWriteError
            The disk is full, or cannot be written for another reason.  What was written is removed.
        VersionGoneError
            `new` is made of an old version of an index that was removed.
        """
        check_choice("if_exists", if_exists, IF_EXISTS)
        asked = Update(new, delete, if_exists, check_batch(batch))
        if new is not None:
            example_of(new)

        def work(now: Version, base: int, own: Transaction) -> Made | None:
            known = made_by(self._root, now.manifest, batch)
            if known is not None:
                return Made(known, now.manifest, UpdateReport(known=True))
            change, report = changed_by(own, asked, now, base + 1)
            change = replace(change, counters=worn(now, [one.groups for one in change.written], FILE_ROWS))
            return self._commit(own, now, base, change, report)

        made = attempted(self._root, lambda: self._latest("update"), work)
        if made.report.known:
            return self._known_batch(made.manifest, made.since)
        # what is held of the version serves its changes, whatever is put in order now
        now = self._made(made)
        return IndexChanges(changes_to(now), made.since, now.number, made.report, keep_up(now))

    def delete(self, ids: Any, *, batch: str | None = None) -> IndexChanges:
        """Let the rows of these ids go: `update(delete=ids)`."""
        return self.update(delete=ids, batch=batch)

    def pairs(self, eps: float | str | None = None) -> Frame:
        """All pairs of rows, lazily; `eps`: within another distance than that of the index.

        They are found, or read, where `store_pairs` stored them and `eps` is none larger.

        Returns
        -------
        DataFrame
            Columns ``left``, ``right`` (ids), ``distance`` and what is kept, if the index was asked for it.
            `left` is the row that came first; a row that was replaced keeps its place.
        """
        return all_pairs(self._now(), self._far(eps))

    def changes(self, since: int, until: int | None = None) -> Frame:
        """Tell how pairs changed from one version to another (by default the last), lazily.

        Parameters
        ----------
        since : int
            A version, or 0: the time before there were any rows, so that all pairs came.
        until : int, optional

        Returns
        -------
        DataFrame
            As `pairs`, with a column ``diff`` (int8): 1 of a pair that came, -1 of one that went.
        """
        first, to = check_whole("since", since, 0), None if until is None else check_version(until, "until")
        last = self._now() if to is None else self._at(to)
        if not first:
            return all_pairs(last).assign(**{DIFF: np.int8(1)})
        found = changes_to(last)(first, last.number)
        sides = (found.removed, -1), (found.added, 1)
        return dd.concat([side.assign(**{DIFF: np.int8(sign)}) for side, sign in sides])

    def rows(self) -> Frame:
        """All rows that the index has, lazily: ids, coordinates and what is kept, in no order."""
        return stored_rows(self._now().rows)

    def join(self, frame: Frame, eps: float | str | None = None) -> Frame:
        """Pairs of the rows of another table (left) with those of the index (right), lazily.

        The table must have the coordinates and the ids of the index, as columns of the same names; nothing is
        taken in.  It is passed over once at the call, so that what could be in no pair is refused.

        Raises
        ------
        ColumnError, CoordinateError, DuplicateIdError
            As `update` does.
        """
        options, far = self.options, self._far(eps)
        own = replace(self._now(), library=library(example_of(frame)))  # pairs lie where the table does
        foreign_rows(frame, options)
        return joins.pairs_with(lazy_frame(frame), own.rows, far, options.return_distance)

    def _far(self, eps: float | str | None) -> float:
        """A distance that pairs are asked for within."""
        options = self.options
        metric, _ = check_metric(options.metric, options.p)
        return options.eps if eps is None else check_eps(without_unit(eps, metric, "eps"), "eps")

    def plan(self, new: Frame) -> UpdatePlan:
        """Tell what an update with these rows would read and give; nothing is changed."""
        rows = incoming_rows(new, self.options)
        return joins.plan_of(coordinates_of(rows), self._now().rows)

    def history(self) -> pd.DataFrame:
        """The versions that there are: what made each, when, and how many rows it has."""
        return history_of(self._root, self._now().manifest)

    def restore(self, version: int) -> IndexChanges:
        """Make a new version of the rows of an old one.

        Rows that came since go, and those that went come back, with the numbers that they had.  Batches that
        were taken in stay known: what is to be taken in again needs another name.

        If the manifest of the last version is damaged, ``open_index(path, version=N).restore(N)`` goes on
        from version N, the newest that is whole, by a version after the damaged one.
        """
        wanted = check_version(version, "version")

        def work(now: Version, base: int, own: Transaction) -> Made | None:
            change, report = restored(own, now, wanted, base + 1)
            return self._commit(own, now, base, change, report)

        made = attempted(self._root, self._to_restore, work)
        return IndexChanges(self._changed, made.since, made.manifest.version, made.report)

    def optimize(self, how: str = "auto") -> UpkeepReport:
        """Put rows in order on disk, as a version that changes no row and no pair.

        Parameters
        ----------
        how : {"auto", "all", "small"}
            Rewrite what the index's policy (`recluster`) finds worth it now, all files, or those that updates
            wrote.

        Returns
        -------
        UpkeepReport
            What was written; of `auto` it may be nothing.
        """
        check_choice("how", how, HOW)
        return optimize(self._root, lambda: self._latest("optimize"), how)

    def components(self) -> Frame:
        """Tell which rows pairs connect, directly or by way of others.

        It is computed at once, and kept in the folder: the groups of the next version are told from it, by
        the pairs that came, and by looking again through the groups that lost some.

        Returns
        -------
        DataFrame
            Lazily, a row for each row of the index: its ``id``, and its ``component``: the id of the row of
            the group that came first. So a group keeps its name as long as that row stays in it; of two that
            unite it is the older one's. Groups of the last two versions that were asked about are kept:
            compute a frame of them before.
        """
        return components(self._now())

    def quality(self) -> QualityReport:
        """Tell how well rows lie on disk, from the boxes of row groups: pairs do not depend on it."""
        return quality_of(self._now(), FILE_ROWS)

    def check(self) -> CheckReport:
        """Read all files of all versions, and tell which are damaged; see `CheckReport`.

        What is read is verified each time that it is read; this reads the rest, too.

        Examples
        --------
        >>> import tempfile
        >>> import pandas as pd
        >>> import dask_simjoin
        >>> idx = pd.DataFrame({"x": [0.0, 1.0]}).simjoin.index(1.0, tempfile.mkdtemp())
        >>> idx.check().damaged
        0
        """
        return check_index(self._root)

    def vacuum(self, keep: int = 10) -> int:
        """Remove all but the last `keep` versions, and files that no version has; tells the bytes.

        Files that no version ever had are removed when they are a day old, as they may be those of an update
        that is at work.
        """
        self._latest("vacuum")
        return vacuumed(self._root, check_whole("keep", keep, 1))

    def _commit(self, own: Transaction, now: Version, base: int, change: Change,
                report: UpdateReport) -> Made | None:  # fmt: skip
        """Make the version after `base`; None: another writer was faster."""
        done = commit(own, now.manifest, base, change, self._library, now.held)
        if done is None:
            return None
        manifest, size = done
        return Made(now.number, manifest, replace(report, bytes_written=report.bytes_written + size))

    def _made(self, made: Made) -> Version:
        """A version that was just made; others may have made newer ones, and removed it."""
        now = self._now()
        return now if now.number == made.manifest.version else replace(now, manifest=made.manifest)

    def _known_batch(self, manifest: Manifest, version: int) -> IndexChanges:
        since = version - 1  # if it was vacuumed, which is told once its pairs are asked for
        with contextlib.suppress(VersionGoneError):
            made = manifest if manifest.version == version else read_manifest(self._root, version)
            since = made.parent or since
        return IndexChanges(self._changed, since, version, UpdateReport(known=True))
