"""Bring the rows of an old version back, as a change of the last one."""

from __future__ import annotations

import dask
import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.incremental.commits import Change
from dask_simjoin.incremental.rows import Written, example_table, read_part, read_places, write_rows
from dask_simjoin.incremental.snapshots import Version
from dask_simjoin.incremental.stored import parts_of
from dask_simjoin.incremental.transactions import Transaction
from dask_simjoin.incremental.types import SEQ, VERSION, Part
from dask_simjoin.incremental.updating import Report


def restored(own: Transaction, now: Version, wanted: int, version: int) -> tuple[Change, Report]:
    """Find out what brings back the rows of a version, and write those of them that went."""
    delta = now.since(wanted)
    schema = example_table(now.root, now.manifest.options).schema
    back = [dask.delayed(_again)(part, own, version, schema) for part in parts_of(delta.deleted)]
    away = [dask.delayed(_places)(part) for part in parts_of(delta.inserted)]
    done, found = dask.compute(back, away)
    written: list[Written] = [one for one in done if one is not None]
    places: dict[str, list[np.ndarray]] = {}
    numbers = [np.zeros(0, np.int64)]
    for name, at, seq in (one for some in found for one in some):
        places.setdefault(name, []).append(at)
        numbers.append(seq)
    gone = {name: np.sort(np.concatenate(parts)) for name, parts in places.items()}
    came, went = sum(one.rows for one in written), sum(map(len, gone.values()))
    size = sum(one.size + one.keys_size for one in written)
    places_of = {name: at for name, at in gone.items() if len(at)}
    change = Change("restore", written, places_of, gone=np.concatenate(numbers))
    return change, Report(came, 0, 0, went, len(written), size)


def _again(part: Part, own: Transaction, version: int, schema: object) -> Written | None:
    """Write rows anew, as rows that come in with a version, under the numbers that they had."""
    rows = read_part(part)
    rows[VERSION] = frames_for(rows).xp.full(len(rows), version, np.int64)
    return write_rows(rows, part.options, own, schema, part.library)


def _places(part: Part) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Where rows are, and their numbers."""
    return [(name, places, table[SEQ].to_numpy()) for name, places, table in read_places(part, [SEQ])]
