"""When to put rows in order anew: each time, never, by the scan ratio, or as one rents and buys.

Rent or buy (Karlin, Manasse, Rudolph & Sleator 1988, "Competitive snoopy caching"): each update adds the rows
that it read in vain to what was read so before; once that is as much as putting rows in order costs, they
are.  So at most twice is paid of what the best schedule, which knows the future, would pay.

Small files are made one by an account of its own: what reading them apart cost in vain.  Their rows are
written once more for each tier of files, sooner or later; what waiting saves is the price of versions.  So it
is done once that much was read in vain; if all that is not in order costs hardly more, that is.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.incremental.blocks import boxes_of
from dask_simjoin.incremental.entries import RowFile
from dask_simjoin.incremental.quality import EXCESS, SMALL_EXCESS, SMALL_PART, quality_of, small_files
from dask_simjoin.incremental.scans import excess
from dask_simjoin.incremental.snapshots import Version
from dask_simjoin.incremental.types import Groups

REWRITE = 8.0
"""Rows that are read and compared in the time in which one is put in order and written, as measured."""

COMMIT = 1 << 19
"""The same of a version that is made, with all that is synced for it."""

MOST_SMALL = 8
"""Files of about as many rows each that may be made one: the next tier of files."""

MOST_FILES = 64
"""Files of about as many rows each that are made one, whatever was read in vain: each version names them."""

NEARLY = 2.0
"""How many times the price of small files is paid for all that is not in order, at most."""

MOST_DELETED = 0.3
"""The share of a file's rows from which on those that are deleted are left out of it."""


def worn(version: Version, written: list[Groups], full: int) -> dict[str, float]:
    """Tell what an update adds to the counters, before it is made a version."""
    manifest, rows = version.manifest, version.rows
    if manifest.options.recluster != "auto":
        return {}
    small = set(small_files(manifest, full))
    of_small = rows.only(np.isin(rows.groups.file, [n for n, name in enumerate(rows.files) if name in small]))
    every = ((EXCESS, rows), (SMALL_EXCESS, of_small))
    return {
        name: float(manifest.counters.get(name, 0.0)) + sum(excess(some, new) for new in written)
        for name, some in every
    }


def paid(version: Version, files: frozenset[str], full: int) -> dict[str, float]:
    """Tell what the counters are once some files are put in order."""
    manifest = version.manifest
    if manifest.options.recluster != "auto" or near_small(version, full) <= files:
        return {EXCESS: 0.0, SMALL_EXCESS: 0.0}
    return {SMALL_EXCESS: 0.0}


def price(version: Version, files: frozenset[str]) -> float:
    """Tell what putting some files in order costs, in rows that are read."""
    return COMMIT + REWRITE * sum(one.rows for one in version.manifest.files if one.name in files)


def to_rewrite(version: Version, full: int) -> frozenset[str]:
    """Choose the files to rewrite after an update, by the index's policy; `full`: rows of a full file."""
    manifest, policy = version.manifest, version.manifest.options.recluster
    every = frozenset(one.name for one in manifest.files)
    if policy == "never" or not every:
        return frozenset()
    if policy == "always":
        return every
    if isinstance(policy, (int, float)):
        return every if quality_of(version, full).scan_ratio > policy else frozenset()
    near = near_small(version, full)
    if manifest.counters.get(EXCESS, 0.0) > price(version, near):
        return near
    small = together(version, full, MOST_SMALL)
    if small and manifest.counters.get(SMALL_EXCESS, 0.0) > COMMIT:
        return near if price(version, near) <= NEARLY * price(version, small) else small
    return together(version, full, MOST_FILES) | holed(version)


def near_small(version: Version, full: int) -> frozenset[str]:
    """List files of updates, and those whose boxes meet theirs: what is not in order."""
    rows, names = version.rows, version.rows.files
    boxes = boxes_of(rows)
    sizes = {one.name: one.rows for one in version.manifest.files}
    small = [n for n, name in enumerate(names) if SMALL_PART * sizes[name] < full]
    of_small = [rows.groups.file == n for n in small]
    found = {names[n] for n in small}
    for n, name in enumerate(names):
        own = rows.groups.file == n
        if n in small or not own.any():
            continue
        low, high = boxes.lower[own].min(axis=0), boxes.upper[own].max(axis=0)
        for other in of_small:
            apart = (boxes.lower[other] > high).any(axis=1) | (boxes.upper[other] < low).any(axis=1)
            if not apart.all():
                found.add(name)
                break
    return frozenset(found) if small else frozenset(names)


def together(version: Version, full: int, number: int) -> frozenset[str]:
    """List files of about as many rows each, if there are so many: they may become one."""
    tiers: dict[int, list[RowFile]] = {}
    for one in version.manifest.files:
        if SMALL_PART * one.rows < full:
            tiers.setdefault((one.rows.bit_length() + 1) // 3, []).append(one)
    many = (files for files in tiers.values() if len(files) >= number)
    return frozenset(one.name for files in many for one in files)


def holed(version: Version) -> frozenset[str]:
    """List files of whose rows many are deleted, and more than a row group has."""
    manifest = version.manifest
    gone = {one.name: len(version.deleted.get(one.name, ())) for one in manifest.files}
    return frozenset(
        one.name
        for one in manifest.files
        if gone[one.name] > max(MOST_DELETED * one.rows, manifest.options.group)
    )
