"""What an update gives back."""

from __future__ import annotations

import functools
from collections.abc import Callable

from dask_simjoin.incremental.changes import Changes as PairChanges
from dask_simjoin.incremental.report import ChangeReport
from dask_simjoin.incremental.updating import Report
from dask_simjoin.incremental.upkeep import Upkeep
from dask_simjoin.metrics.types import Frame


class Changes:
    """What changed between two versions of an index: pairs that came, and pairs that went.

    Attributes
    ----------
    since, version : int
        The two versions; pairs of `since`, less `removed`, with `added`, are those of `version`.
    report : Report
        What the update took in and wrote, in numbers.
    upkeep : Upkeep or None
        What putting rows in order after it did, by the index's policy; None: nothing is done after it.
    """

    def __init__(self, find: Callable[[int, int], PairChanges], since: int, version: int, report: Report,
                 upkeep: Upkeep | None = None) -> None:  # fmt: skip
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
