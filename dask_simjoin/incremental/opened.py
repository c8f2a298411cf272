"""An index that was opened: which version is asked about, and what of it is held in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self

from dask_simjoin.errors import OptionError, VersionGoneError
from dask_simjoin.expressions.worker_memory import end_without_workers
from dask_simjoin.incremental import joins
from dask_simjoin.incremental.changes import Changes
from dask_simjoin.incremental.held import Holder, Memory, memory_of
from dask_simjoin.incremental.manifests import versions, whole
from dask_simjoin.incremental.parts import NOTHING
from dask_simjoin.incremental.snapshots import Version, last_version, version_of
from dask_simjoin.incremental.types import Options
from dask_simjoin.options.settings import current_client


class Opened:
    """The versions of an index in a folder."""

    def __init__(self, root: Path, library: str, version: int | None = None) -> None:
        self._root, self._library, self._pinned = root, library, version
        self._last = last_version(root, library) if version is None else version_of(root, library, version)
        self._holder: Holder | None = None

    def __repr__(self) -> str:
        manifest = self._now().manifest
        on = ", ".join(map(repr, manifest.options.on[:3])) + ", ..." * (len(manifest.options.on) > 3)
        return (
            f"<Index of {manifest.rows:,} rows on {on}, {manifest.options.metric}, "
            f"eps={manifest.options.eps!r}, version {manifest.version}, at {str(self._root)!r}>"
        )

    @property
    def path(self) -> Path:
        """The folder."""
        return self._root

    @property
    def version(self) -> int:
        """The number of the last version, or of the one that the index was opened at."""
        return self._now().number

    @property
    def options(self) -> Options:
        """What the index was made for."""
        return self._last.manifest.options

    def persist(self) -> Self:
        """Hold rows in memory, of the cluster's workers or of this process, so that updates do not read them.

        What holds them is this object, as long as it lives or until `release`. Coordinates, ids and kept
        columns are read once and indexed; updates and `changes` find pairs by them, and read new files only,
        also those of other writers.  Nothing else changes: each update writes its version as before.

        Up to half of the memory is filled: of files for which there is no room rows are read each time,
        as `memory` tells.  Workers spill what they hold as Dask's configuration says, and what a worker that
        dies has held is read again.

        Returns
        -------
        Index
            This one.
        """
        self._holder = self._holder or Holder()
        self._now()
        return self

    def release(self) -> None:
        """Hold nothing in memory any more."""
        self._holder, self._last = None, replace(self._last, held=NOTHING)

    @property
    def memory(self) -> Memory:
        """What is held in memory, of how much, in numbers."""
        now = self._now()
        return memory_of(now, now.held)

    def _now(self) -> Version:
        """The version that is asked about: the last one, if none was named when the index was opened."""
        end_without_workers(current_client())
        found = self._last if self._pinned is not None else last_version(self._root, self._library)
        if found.number != self._last.number:
            self._last = replace(found, held=self._last.held)
        if self._holder is not None:
            held = self._holder.follow(self._last)
            if held is not self._last.held:
                self._last = replace(self._last, held=held)
        return self._last

    def _at(self, version: int) -> Version:
        now = self._now()
        if version == now.number:
            return now
        return replace(version_of(self._root, self._library, version), held=now.held)

    def _latest(self, what: str) -> Version:
        if self._pinned is not None:
            raise OptionError(
                f"The index was opened at version {self._pinned}, which never changes; open it without "
                f"version= to {what}."
            )
        return self._now()

    def _to_restore(self) -> Version:
        """The version that a restored one is made of: the last one, or this one, if all later are damaged."""
        later = [] if self._pinned is None else [n for n in versions(self._root) if n > self._pinned]
        return self._now() if later and not whole(self._root, later) else self._latest("restore")

    def _changed(self, since: int, until: int) -> Changes:
        return changes_to(self._at(until))(since, until)


def changes_to(version: Version) -> Callable[[int, int], Changes]:
    """Give what tells the changes to a version, from one that is named first."""

    def found(since: int, until: int) -> Changes:
        if until < since:
            raise VersionGoneError(f"since={since} is after until={until}; name the older version first.")
        return joins.changes(version.since(since), version.manifest.options.return_distance, version.held)

    return found
