"""Which version each named update made: the last ones are in the manifest, and earlier ones in files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.incremental.files import FOLDERS, read_whole, sync_folder, write_named, write_table
from dask_simjoin.incremental.types import Manifest

MOST = 512
"""Names in a manifest, at most: then they go into a file that all later versions share."""

BATCH, MADE = "batch", "version"


class Batches(NamedTuple):
    """What a manifest tells of named updates: see `Manifest`; and the bytes that were written for it."""

    last: dict[str, int]
    earlier: tuple[str, ...]
    size: int


def made_by(root: Path, manifest: Manifest, batch: str | None) -> int | None:
    """Tell the version that the update of a name made; None: there was none."""
    if batch is None or batch in manifest.batches:
        return None if batch is None else manifest.batches[batch]
    for name in reversed(manifest.earlier):
        table = read_whole(root / FOLDERS[0] / name)
        row = pc.index(table[BATCH], batch).as_py()
        if row >= 0:
            return int(table[MADE][row].as_py())
    return None


def with_batch(root: Path, parent: Manifest, batch: str | None, version: int) -> Batches:
    """Add the name of an update to those that a manifest has, all of which become a file if they are many."""
    last, earlier, size = dict(parent.batches), parent.earlier, 0
    if batch is not None:
        if len(last) >= MOST:
            table = pa.table({BATCH: list(last), MADE: list(last.values())})
            name, size = write_named(root / FOLDERS[0], lambda file: write_table(table, file))
            sync_folder(root / FOLDERS[0])
            last, earlier = {}, (*earlier, name)
        last[batch] = version
    return Batches(last, earlier, size)
