"""How well the rows of an index lie on disk: pairs do not depend on it, only what is read for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dask_simjoin.incremental.blocks import boxes_of
from dask_simjoin.incremental.report import Told
from dask_simjoin.incremental.scans import POINTS, drawn, fresh, scanned
from dask_simjoin.incremental.snapshots import Version
from dask_simjoin.incremental.types import Groups, Manifest

CLUSTERS = 20
"""Clusters of the thesis in whose centroids drift is told."""

SMALL_PART = 8
"""A file of fewer rows than one eighth of a full one is small: it came by an update."""


@dataclass(frozen=True, repr=False)
class Quality(Told):
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

    title: ClassVar[str] = "Quality of an index"

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


EXCESS, SMALL_EXCESS, BASIS = "excess", "small_excess", "basis"
"""Counters of manifests: rows read too many, those of small files that one of them all would have saved, and
the version as which files were last put in order."""


def small_files(manifest: Manifest, full: int) -> list[str]:
    """List the files that updates wrote."""
    return [one.name for one in manifest.files if SMALL_PART * one.rows < full]


def quality_of(version: Version, full: int) -> Quality:
    """Tell how the rows of a version lie; `full`: rows of a full file."""
    rows, manifest, options = version.rows, version.manifest, version.manifest.options
    ratio = scan = 1.0
    if len(rows.groups):
        x = drawn(rows.groups, options, POINTS)
        scan = scanned(x, boxes_of(rows), rows.groups.rows, options)
        ratio = scan / max(1.0, scanned(x, *fresh(rows), options))
    small = set(small_files(manifest, full))
    size = sum(one.rows for one in manifest.files)
    few = sum(one.rows for one in manifest.files if one.name in small)
    drift = centroid_drift(rows.groups, int(manifest.counters.get(BASIS, 1)))
    return Quality(
        manifest.rows, len(manifest.files), len(rows.groups), len(small), few / max(1, size),
        (size - manifest.rows) / max(1, size), scan, max(1.0, ratio), drift,
        drift / options.eps if options.eps > 0 else float("inf") if drift else 0.0,
        float(manifest.counters.get(EXCESS, 0.0)),
    )  # fmt: skip


@np.errstate(over="ignore", invalid="ignore")  # of the largest numbers it is infinite, or not known
def centroid_drift(groups: Groups, basis: int) -> float:
    """Sum up how far the centroids of clusters moved by row groups that came after a version.

    Clusters are of row groups that follow each other, as they lie near each other; those that came are
    counted to the nearest old centroid.
    """
    old = groups.newest <= basis
    if not old.any() or old.all():
        return 0.0
    middle = groups.low / 2 + groups.high / 2
    parts = np.array_split(np.flatnonzero(old), min(CLUSTERS, int(old.sum())))
    weight = groups.rows.astype(np.float64)
    centres = np.array([np.average(middle[part], axis=0, weights=weight[part]) for part in parts])
    new = np.flatnonzero(~old)
    away = np.stack([np.square(middle[new] - centre).sum(axis=1) for centre in centres])
    nearest = away.argmin(axis=0)
    total = 0.0
    for number, part in enumerate(parts):
        own = np.concatenate([part, new[nearest == number]])
        moved = np.average(middle[own], axis=0, weights=weight[own]) - centres[number]
        total += float(np.sqrt(np.square(moved).sum()))
    return total
