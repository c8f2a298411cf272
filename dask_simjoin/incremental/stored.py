"""The rows of an index as a lazy frame."""

from __future__ import annotations

from collections.abc import Iterator

import dask.dataframe as dd
import numpy as np

from dask_simjoin.incremental.rows import read_part
from dask_simjoin.incremental.types import ID, Part, Snapshot
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.settings import texts_as_given

ROWS = 1 << 20
"""Rows of a partition, about."""


def parts_of(rows: Snapshot, most: int = ROWS) -> Iterator[Part]:
    """Go through row groups that follow each other, as many as have about `most` rows; one at least."""
    number = (np.cumsum(rows.groups.rows) - rows.groups.rows) // most
    for n in np.unique(number).tolist() or [0]:
        yield rows.part(np.flatnonzero(number == n))


def stored_rows(rows: Snapshot) -> Frame:
    """All rows, lazily, as they were given."""
    parts = list(parts_of(rows))
    meta = _rows(rows.part(np.zeros(0, np.int64)))
    with texts_as_given():
        return dd.from_map(_rows, parts, meta=meta, label="simjoin_rows", enforce_metadata=False)


def _rows(part: Part) -> Frame:
    found = read_part(part, part.options.columns)
    if part.options.id is not None:
        return found
    named = found.set_index(ID)
    named.index = named.index.rename(None)
    return named
