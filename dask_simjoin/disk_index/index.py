"""The `Index` class: rows on disk whose pairs are updated as rows are added and
deleted.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import dask.dataframe as dd
import numpy as np
import pandas as pd

from dask_simjoin.catalog import library
from dask_simjoin.disk_index import changes as joins
from dask_simjoin.disk_index.cache import IndexReader, changes_to
from dask_simjoin.disk_index.changes import PairChanges
from dask_simjoin.disk_index.components import components
from dask_simjoin.disk_index.graph import stored_rows
from dask_simjoin.disk_index.maintenance import (
    HOW,
    counters_after_update,
    keep_up,
    optimize,
    quality_of,
)
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
from dask_simjoin.disk_index.snapshots import Version
from dask_simjoin.disk_index.types import Manifest
from dask_simjoin.disk_index.updates import (
    IF_EXISTS,
    Update,
    changed_by,
    check_batch,
    check_content,
    check_version,
    foreign_rows,
    incoming_rows,
    lazy_frame,
    restored,
)
from dask_simjoin.disk_index.versions import (
    Change,
    attempted,
    check_index,
    commit,
    history_of,
    vacuumed,
)
from dask_simjoin.disk_index.writing import coordinates_of
from dask_simjoin.errors import VersionGoneError
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.options import check_whole
from dask_simjoin.request.units import (
    check_choice,
    check_distance,
    check_metric,
)
from dask_simjoin.sizes import PARTITION

__all__ = ["Index", "IndexChanges"]

DIFF = "diff"
"""Name of the column in `Index.changes` that is 1 for added pairs, and -1 for removed
pairs.
"""


class IndexChanges:
    """Changes between two versions of an index: pairs that were added and pairs that
    were removed.

    Attributes
    ----------
    since, version : int
        The two versions: `version` has the pairs of `since` without `removed`, plus
        `added`.
    report : UpdateReport
        Numbers of rows and bytes of the update.
    upkeep : UpkeepReport or None
        The compaction after the update, by the index's policy; None for a restore, or
        for a batch that was committed before.
    """

    def __init__(
        self,
        find: Callable[[int, int], PairChanges],
        since: int,
        version: int,
        report: UpdateReport,
        upkeep: UpkeepReport | None = None,
    ) -> None:
        self._find = find
        self.since, self.version, self.report, self.upkeep = (
            since,
            version,
            report,
            upkeep,
        )

    @functools.cached_property
    def _pairs(self) -> PairChanges:
        return self._find(self.since, self.version)

    @property
    def added(self) -> Frame:
        """Added pairs, lazily, with the columns of `Index.pairs`."""
        return self._pairs.added

    @property
    def removed(self) -> Frame:
        """Removed pairs, lazily."""
        return self._pairs.removed

    @property
    def work(self) -> ChangeReport:
        """The work to find the changed pairs, such as the number of row groups to read."""
        return self._pairs.report

    def __repr__(self) -> str:
        return f"Changes from version {self.since} to {self.version}: {self.report}"


class Made(NamedTuple):
    """The result of an attempt to make a version."""

    # the version before the new one; if the batch was committed before, the version
    # that the batch made
    since: int
    manifest: Manifest
    report: UpdateReport


class Index(IndexReader):
    """Rows on disk, and their pairs within a distance: see `frame.simjoin.index` and
    `open_index`.

    Every update makes a version. Versions never change: the changes between two
    versions are the same at any time and for all readers. Frames that methods return
    are lazy.
    """

    def __len__(self) -> int:
        return self._now().manifest.rows

    def update(
        self,
        new: Frame | None = None,
        *,
        delete: Any = None,
        if_exists: str = "fail",
        batch: str | None = None,
    ) -> IndexChanges:
        """Add and delete rows, as one version.

        Parameters
        ----------
        new : DataFrame, optional
            A Dask, pandas or cuDF frame with the columns of the index.
        delete : list, array, Index or Series of ids, optional
            Rows to delete.  If an id is in `new` too, its row is replaced.
        if_exists : {"fail", "replace", "ignore"}
            What to do with new rows whose ids are in the index already.
        batch : str, optional
            A name for this update. If an update with this name was committed before,
            nothing is written, and its changes are returned. So an update can be
            retried after a crash. If you pass other rows under this name, an error is
            raised.

        Returns
        -------
        IndexChanges

        Raises
        ------
        DuplicateIdError
            Ids repeat in `new`; or `if_exists` is "fail", and the index has some of the
            ids.
        OptionError
            `delete` has ids that no row of the index has; or a batch of the same name
            had other rows.
        ColumnError, CoordinateError
            Rows of `new` have other columns, types or dimensions than the rows of the
            index.
        IndexConflictError
            Other writers repeatedly made versions meanwhile, or the update took more
            than a day, and `vacuum` removed its files.
        IndexWriteError
            The disk is full, or writing fails for another reason.  The files of the
            update are removed.
        IndexStoreError
            An object store cannot be reached.  The update may be committed: repeat it
            with its `batch`.
        VersionGoneError
            `new` reads rows of another index at a version that was removed meanwhile.
        """
        check_choice("if_exists", if_exists, IF_EXISTS)
        request = Update(new, delete, if_exists, check_batch(batch))
        if new is not None:
            example_of(new)

        def work(now: Version, base: int, own: Transaction) -> Made | None:
            known = made_by(self._root, now.manifest, batch)
            if known is not None:
                check_content(request, self._root, now.manifest.options, known)
                return Made(known.version, now.manifest, UpdateReport(known=True))
            change, report = changed_by(own, request, now, base + 1)
            change = replace(
                change,
                counters=counters_after_update(
                    now, [one.groups for one in change.written], PARTITION
                ),
            )
            return self._commit(own, now, base, change, report)

        made = attempted(self._root, lambda: self._latest("update"), work)
        if made.report.known:
            return self._committed_batch(made.manifest, made.since)
        # cached rows belong to this version, so the changes must refer to it, and not
        # to a compaction after it
        now = self._made(made)
        return IndexChanges(
            changes_to(now), made.since, now.number, made.report, keep_up(now)
        )

    def delete(self, ids: Any, *, batch: str | None = None) -> IndexChanges:
        """Delete the rows with these ids: `update(delete=ids)`."""
        return self.update(delete=ids, batch=batch)

    def pairs(self, eps: float | str | None = None) -> Frame:
        """Return all pairs of rows within `eps`, by default the `eps` of the index,
        lazily.

        If the index stores pairs (`store_pairs`), they are read from files. They are
        computed if it does not store pairs, or if `eps` is larger than the `eps` of the
        index.

        Returns
        -------
        DataFrame
            Columns ``left``, ``right`` (ids), ``distance`` if requested, and the kept
            columns. `left` is the row that was added first; a replaced row keeps its
            place in this order. Distances have the unit that was chosen for the index,
            even if `eps` has another unit.
        """
        far = self._far(eps)
        return self._reading(lambda now: all_pairs(now, far))

    def changes(self, since: int, until: int | None = None) -> Frame:
        """Return the pairs that changed from version `since` to `until` (default: the
        last version), lazily.

        Parameters
        ----------
        since : int
            A version number. 0 stands for the empty index before the first version, so
            all pairs count as added.
        until : int, optional

        Returns
        -------
        DataFrame
            The columns of `pairs`, and ``diff`` (int8): 1 for an added pair, -1 for a
            removed pair.
        """
        first, to = (
            check_whole("since", since, 0),
            None if until is None else check_version(until, "until"),
        )
        if to is not None:
            return self._differences(first, self._at(to))
        return self._reading(functools.partial(self._differences, first))

    def _differences(self, since: int, to: Version) -> Frame:
        if not since:
            return all_pairs(to).assign(**{DIFF: np.int8(1)})
        found = changes_to(to)(since, to.number)
        sides = (found.removed, -1), (found.added, 1)
        return dd.concat([side.assign(**{DIFF: np.int8(sign)}) for side, sign in sides])

    def rows(self) -> Frame:
        """Return all rows of the index, lazily: ids, coordinates and kept columns, in
        any order.
        """
        return self._reading(lambda now: stored_rows(now.rows))

    def join(self, frame: Frame, eps: float | str | None = None) -> Frame:
        """Return pairs of rows of another table (left) with rows of the index (right),
        lazily.

        The table needs the coordinate and id columns of the index.  It is not added to
        the index.  The call reads it once, to refuse invalid rows.

        Raises
        ------
        ColumnError, CoordinateError, DuplicateIdError
            As for `update`.
        """
        options, far = self.options, self._far(eps)
        # the pairs are a frame of the same library as the table
        kind = library(example_of(frame))
        foreign_rows(frame, options)
        left = lazy_frame(frame)

        def found(now: Version) -> Frame:
            rows = replace(now, library=kind).rows
            return joins.pairs_with(left, rows, far, options.return_distance)

        return self._reading(found)

    def _far(self, eps: float | str | None) -> float:
        """Return `eps` in the unit of the metric. None stands for the `eps` that the
        index was made with.
        """
        options = self.options
        metric, _ = check_metric(options.metric, options.p)
        return options.eps if eps is None else check_distance(eps, metric, "eps")

    def plan(self, new: Frame) -> UpdatePlan:
        """Estimate how much an update with these rows would read and return, without
        changing the index.
        """
        x = coordinates_of(incoming_rows(new, self.options))
        return self._reading(lambda now: joins.plan_of(x, now.rows))

    def history(self) -> pd.DataFrame:
        """Return a row for each version: kind, batch, time, and the numbers of rows and
        files.
        """
        return history_of(self._root, self._now().manifest)

    def restore(self, version: int) -> IndexChanges:
        """Make a new version with the rows of an old one.

        Rows added since then are deleted, and rows deleted since then return with their
        row numbers.  Batches since then still count as committed, so repeat such a
        batch under another name.

        If the manifest of the last version is damaged, use the newest intact version N.
        ``open_index(path, version=N).restore(N)`` makes a version after the damaged
        one.
        """
        wanted = check_version(version, "version")

        def work(now: Version, base: int, own: Transaction) -> Made | None:
            change, report = restored(own, now, wanted, base + 1)
            return self._commit(own, now, base, change, report)

        made = attempted(self._root, self._to_restore, work)
        return IndexChanges(
            self._changed, made.since, made.manifest.version, made.report
        )

    def optimize(self, how: str = "auto") -> UpkeepReport:
        """Compact the files on disk, and commit a version with the same rows and pairs.

        Parameters
        ----------
        how : {"auto", "all", "small"}
            "auto" rewrites the files that the index's policy (`recluster`) recommends
            now, "all" all files, "small" only small files of updates.

        Returns
        -------
        UpkeepReport
            Files and rows written; for "auto" they may be 0.
        """
        check_choice("how", how, HOW)
        return optimize(self._root, lambda: self._latest("optimize"), how)

    def components(self) -> Frame:
        """Return the connected components of the rows, by their pairs.

        They are computed by this call, and stored in the folder. The components of the
        next version are computed from them: added pairs merge components, and only
        components that lost pairs are rebuilt.

        Returns
        -------
        DataFrame
            A lazy frame with one row per row of the index. Its columns are ``id`` and
            ``component``, the id of the oldest row of the component. So a component
            keeps its name as long as that row stays in it. Merged components take the
            name of the component with the oldest row. The folder stores the components
            of two versions: compute the frame before you request a third version.
        """
        return self._reading(components)

    def quality(self) -> QualityReport:
        """Measure how well rows are ordered on disk. This affects the speed of updates,
        but no pairs.
        """
        return self._reading(lambda now: quality_of(now, PARTITION))

    def check(self) -> CheckReport:
        """Read all files of all versions and list damaged files; see `CheckReport`.

        Other methods verify only the bytes that they read; this method reads and
        verifies all bytes.

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
        """Remove all but the last `keep` versions, and files that no version needs;
        return the bytes freed.

        Files that no version ever used are removed only when they are a day old:
        younger files may belong to a running update. Before that, a version without
        changes is committed, and running updates start again.
        """
        self._latest("vacuum")
        return vacuumed(self._root, check_whole("keep", keep, 1))

    def _commit(
        self,
        own: Transaction,
        now: Version,
        base: int,
        change: Change,
        report: UpdateReport,
    ) -> Made | None:
        """Publish a version as the one after `base`. Return None if another writer has
        published that number first.
        """
        done = commit(own, now.manifest, base, change, self._library, now.cached)
        if done is None:
            return None
        manifest, size = done
        return Made(
            now.number,
            manifest,
            replace(report, bytes_written=report.bytes_written + size),
        )

    def _made(self, made: Made) -> Version:
        """Return the version that this call has made, even if another writer has made a
        newer one since.
        """
        now = self._now()
        return (
            now
            if now.number == made.manifest.version
            else replace(now, manifest=made.manifest)
        )

    def _committed_batch(self, manifest: Manifest, version: int) -> IndexChanges:
        """Return the changes of a batch that was committed before, as version number
        `version`.
        """
        # used if the manifest is gone after a vacuum; reading the pairs then raises an
        # error
        since = version - 1
        with contextlib.suppress(VersionGoneError):
            made = (
                manifest
                if manifest.version == version
                else read_manifest(self._root, version)
            )
            since = made.parent or since
        return IndexChanges(self._changed, since, version, UpdateReport(known=True))


def left_out_of(made: Index) -> int:
    """Return the number of rows that `dropna` left out of an index that was just made."""
    # rows that are left out have sequence numbers, too
    return made._now().manifest.next_seq - len(made)
