"""Keep the rows of an index in order: after updates, by its policy, and when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from dask_simjoin.errors import IndexConflictError
from dask_simjoin.incremental.commits import commit, next_version
from dask_simjoin.incremental.loading import FILE_ROWS
from dask_simjoin.incremental.quality import small_files
from dask_simjoin.incremental.reclustering import paid, to_rewrite
from dask_simjoin.incremental.report import Told
from dask_simjoin.incremental.rewriting import rewritten
from dask_simjoin.incremental.snapshots import Version, last_version

HOW = ("auto", "all", "small")
"""What `optimize` rewrites: what the policy finds worth it, all files, or those that updates wrote."""

TRIES = 3


@dataclass(frozen=True, repr=False)
class Upkeep(Told):
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

    title: ClassVar[str] = "Upkeep of an index"

    version: int
    files_dropped: int
    files_written: int
    rows: int
    bytes_written: int


def keep_up(version: Version) -> Upkeep:
    """Put rows in order after an update, if the policy says so; leave it if another writer was faster."""
    done = _rewrite(version, to_rewrite(version, FILE_ROWS))
    return done or Upkeep(version.number, 0, 0, 0, 0)


def optimize(root: Path, library: str, version: Version, how: str) -> Upkeep:
    """Put the rows of a version, the last one, in order."""
    for _ in range(TRIES):
        names = [one.name for one in version.manifest.files]
        files = to_rewrite(version, FILE_ROWS) if how == "auto" else frozenset(names)
        if how == "small":
            files = frozenset(small_files(version.manifest, FILE_ROWS))
        done = _rewrite(version, files)
        if done is not None:
            return done
        version = last_version(root, library)
    raise IndexConflictError(
        f"Other writers made versions of the index at {str(root)!r} {TRIES} times while its rows were put in "
        "order; nothing was changed. Let one process do so at a time, or try again."
    )


def _rewrite(version: Version, files: frozenset[str]) -> Upkeep | None:
    """Write some files anew as a version; None: another writer made one meanwhile."""
    if not files:
        return Upkeep(version.number, 0, 0, 0, 0)
    number = next_version(version.root, version.manifest)
    change = rewritten(version, files, number, FILE_ROWS)
    change = replace(change, counters=change.counters | paid(version, files, FILE_ROWS))
    done = commit(version.root, version.manifest, number, change, version.library)
    if done is None:
        return None
    size = sum(one.size + one.keys_size for one in change.written) + done[1]
    rows = sum(one.rows for one in change.written)
    return Upkeep(number, len(files), len(change.written), rows, size)
