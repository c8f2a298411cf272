"""Make a version of the last one: again, of the new last one, as often as other writers are faster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dask_simjoin.errors import IndexConflictError, VersionGoneError
from dask_simjoin.incremental.publishing import base_of
from dask_simjoin.incremental.snapshots import Version
from dask_simjoin.incremental.transactions import Transaction, transaction

T = TypeVar("T")

TRIES = 3
"""Versions of other writers that one gives way to."""


def attempted(root: Path, last: Callable[[], Version],
              work: Callable[[Version, int, Transaction], T | None]) -> T:  # fmt: skip
    """Return what `work` gives, which makes the version after a number of the last one.

    Where that is None, as another writer was faster, or a file went that a vacuum removed, it works again.
    """
    gone = None
    for _ in range(TRIES):
        now = last()
        base = base_of(root, now.manifest)
        if base is None:
            continue
        try:
            with transaction(root) as own:
                done = work(now, base, own)
        except VersionGoneError as error:
            if base_of(root, now.manifest) is not None:
                raise  # nobody made a version meanwhile: it is not there at all
            gone = error
            continue
        if done is not None:
            return done
    raise IndexConflictError(
        f"Other writers made versions of the index at {str(root)!r} {TRIES} times while this one worked; "
        "nothing was changed. Let one process update it, or try again."
    ) from gone
