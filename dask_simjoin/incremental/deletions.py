"""Which rows of files are deleted: files of their places, of which each version names some."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from dask_simjoin.incremental.entries import DeletedFile
from dask_simjoin.incremental.files import read_whole, write_named, write_table

FILE, POSITION = "file", "position"

KNOWN = 2
"""Versions whose places a process keeps: tasks of one version, and of what went with it, share them."""


def write_deleted(root: Path, places: dict[str, np.ndarray], version: int) -> tuple[DeletedFile, int]:
    """Write which rows of files are deleted; tells the bytes too."""
    names = np.repeat(np.array(list(places), object), [len(some) for some in places.values()])
    at = np.concatenate([np.zeros(0, np.int64), *places.values()])
    table = pa.table({FILE: pa.array(names, pa.string()).dictionary_encode(), POSITION: at})
    name, size = write_named(root / "deleted", lambda file: write_table(table, file))
    return DeletedFile(name, len(at), version), size


def places_in(root: Path, name: str) -> dict[str, np.ndarray]:
    """The places that a file tells, by the names of row files."""
    table = read_whole(root / "deleted" / name)
    at, files = table[POSITION].to_numpy(), table[FILE].to_pandas().cat
    codes = files.codes.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(files.categories) + 1))
    parts = zip(files.categories, ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    return {name: at[order[a:b]] for name, a, b in parts if a < b}


@functools.lru_cache(KNOWN)
def read_deleted(root: Path, deleted: tuple[str, ...]) -> Mapping[str, np.ndarray]:
    """The places of deleted rows of files, ascending, by their names; `deleted`: the files that tell them.

    Files never change: each process reads them once for all of its tasks.
    """
    found: dict[str, list[np.ndarray]] = {}
    for one in deleted:
        for name, at in places_in(root, one).items():
            found.setdefault(name, []).append(at)
    places = {name: np.unique(np.concatenate(parts)) for name, parts in found.items()}
    for at in places.values():
        at.flags.writeable = False
    return MappingProxyType(places)
