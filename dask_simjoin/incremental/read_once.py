"""Rows that went, and those that stayed beside them in the same row groups: read at once, and held.

The row groups that rows go from are compared with those rows: read for each of both, they are read twice.
"""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np

from dask_simjoin.expressions.dask_private import Task
from dask_simjoin.expressions.source import gather
from dask_simjoin.expressions.worker_memory import on_worker
from dask_simjoin.incremental.blocks import Side, Sizes, boxes_of, even_parts, read_side, row_bytes
from dask_simjoin.incremental.loaded import Loaded, joined_rows, load_both, moved
from dask_simjoin.incremental.parts import Beside, Held
from dask_simjoin.incremental.types import Snapshot
from dask_simjoin.options.spec import JoinSpec


def read_gone(gone: Snapshot, rest: Snapshot, spec: JoinSpec, size: Sizes, ordered: bool, marked: bool,
              held: Held) -> tuple[Side, list[Beside]]:  # fmt: skip
    """Read rows that went, and those beside them, if they are few and none of them is in memory."""
    few = int(gone.groups.rows.sum()) * row_bytes(spec) <= size.held
    both = _in_both(gone, rest) if few and not held.slabs.keys() & set(gone.files) else None
    if both is None or not len(both):
        return read_side(gone, spec, size, ordered, marked, held), []
    parts = [both[part] for part in even_parts(rest.groups.rows[both[:, 1]], size)]
    graph: dict[Any, Any] = {}
    name = f"simjoin_beside-{uuid.uuid4().hex}"
    for n, part in enumerate(parts):
        key, two = (name, n), (rest.part(part[:, 1]), gone.part(part[:, 0]))
        graph[key] = Task(key, on_worker, load_both, *two, spec)
    found: list[tuple[Loaded, Loaded]] = gather(graph, list(graph))
    beside = [Beside(stayed, part[:, 1]) for (stayed, _), part in zip(found, parts, strict=True)]
    read = moved(
        joined_rows([went for _, went in found]), boxes_of(rest).dims.tolist(), spec, ordered, marked
    )
    if not len(read["seq"]):
        return Side([], [], [], 0), beside
    return Side([read], [read["tiles"]], [read["seq"]], len(read["seq"])), beside


def _in_both(gone: Snapshot, rest: Snapshot) -> np.ndarray | None:
    """Number the row groups (n, 2) that rows went from, here and among those that stayed, in whose order.

    None: some were written anew.
    """
    places = zip(rest.groups.file.tolist(), rest.groups.group.tolist(), strict=True)
    known = {(rest.files[file], group): number for number, (file, group) in enumerate(places)}
    found = [
        known.get((gone.files[file], group), -1)
        for file, group in zip(gone.groups.file.tolist(), gone.groups.group.tolist(), strict=True)
    ]
    if -1 in found:
        return None
    order = np.argsort(found, kind="stable")
    return np.stack([order, np.asarray(found, np.int64)[order]], axis=1)
