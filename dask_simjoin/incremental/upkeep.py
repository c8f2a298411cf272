"""Keep the rows of an index in order: after updates, by its policy, and when it is asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from dask_simjoin.errors import IndexWriteError, UpkeepWarning, VersionGoneError
from dask_simjoin.incremental.attempts import attempted
from dask_simjoin.incremental.commits import commit
from dask_simjoin.incremental.loading import FILE_ROWS
from dask_simjoin.incremental.publishing import base_of
from dask_simjoin.incremental.quality import small_files
from dask_simjoin.incremental.reclustering import paid, to_rewrite
from dask_simjoin.incremental.report import Told
from dask_simjoin.incremental.rewriting import rewritten
from dask_simjoin.incremental.snapshots import Version
from dask_simjoin.incremental.transactions import Transaction, transaction

HOW = ("auto", "all", "small")
"""What `optimize` rewrites: what the policy finds worth it, all files, or those that updates wrote."""


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
    """Put rows in order after an update, if the policy says so; leave it if another writer was faster.

    The update has made its version, and so nothing that fails here is an error of it.
    """
    nothing = Upkeep(version.number, 0, 0, 0, 0)
    if base_of(version.root, version.manifest) != version.number:
        return nothing
    try:
        with transaction(version.root) as own:
            done = _rewrite(own, version, version.number, to_rewrite(version, FILE_ROWS))
    except VersionGoneError:  # of another writer's vacuum
        return nothing
    except IndexWriteError as error:
        warnings.warn(
            f"Version {version.number} of the index at {str(version.root)!r} is made, and its rows could not "
            f"be put in order after it: {error}. A later update, or optimize(), does so.",
            UpkeepWarning, stacklevel=3,
        )  # fmt: skip
        return nothing
    return done or nothing


def optimize(root: Path, last: Callable[[], Version], how: str) -> Upkeep:
    """Put the rows of the last version in order."""

    def work(now: Version, base: int, own: Transaction) -> Upkeep | None:
        if how == "auto":
            return _rewrite(own, now, base, to_rewrite(now, FILE_ROWS))
        small = small_files(now.manifest, FILE_ROWS)
        every = [one.name for one in now.manifest.files]
        return _rewrite(own, now, base, frozenset(small if how == "small" else every))

    return attempted(root, last, work)


def _rewrite(own: Transaction, version: Version, base: int, files: frozenset[str]) -> Upkeep | None:
    """Write some files anew as the version after `base`; None: another writer was faster."""
    if not files:
        return Upkeep(version.number, 0, 0, 0, 0)
    change = rewritten(own, version, files, base + 1, FILE_ROWS)
    change = replace(change, counters=change.counters | paid(version, files, FILE_ROWS))
    done = commit(own, version.manifest, base, change, version.library)
    if done is None:
        return None
    size = sum(one.size + one.keys_size for one in change.written) + done[1]
    rows = sum(one.rows for one in change.written)
    return Upkeep(base + 1, len(files), len(change.written), rows, size)
