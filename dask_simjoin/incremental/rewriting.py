"""Put rows of some files in order anew, in regions of space, as a version that changes no row.

A task makes a file of a region: it reads the row groups whose boxes meet the region's, and takes the rows
that lie in it.  So rows are not sent between tasks; those of row groups at borders are read more than once.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dask_simjoin.engine.base import frames_of_library, joiner_for
from dask_simjoin.engine.index.regions import Regions, make_regions
from dask_simjoin.expressions.dask_private import Task, TaskRef
from dask_simjoin.expressions.source import gather, itself
from dask_simjoin.expressions.worker_memory import on_worker
from dask_simjoin.incremental.blocks import boxes_of
from dask_simjoin.incremental.commits import Change
from dask_simjoin.incremental.quality import BASIS
from dask_simjoin.incremental.rows import Written, example_table, read_part, write_rows
from dask_simjoin.incremental.scans import MOST, PER_GROUP, drawn
from dask_simjoin.incremental.snapshots import Version
from dask_simjoin.incremental.transactions import Transaction
from dask_simjoin.incremental.types import Part, Snapshot
from dask_simjoin.metrics.norms import reach
from dask_simjoin.planning.chunking.regions import NO_HALO
from dask_simjoin.planning.tables import MAX_REGIONS


@dataclass(frozen=True, eq=False)
class Target:
    """Where rows are written: the tree of regions, of the dimensions `dims`, and the schema of files."""

    regions: Regions
    dims: np.ndarray
    schema: pa.Schema


def rewritten(own: Transaction, version: Version, files: frozenset[str], number: int, full: int) -> Change:
    """Write the rows of some files anew, in files of about `full` rows; `number`: of the version to be."""
    every = version.rows
    chosen = np.isin(np.asarray(every.files, object)[every.groups.file], list(files))
    rows = every.only(chosen)
    size = int(rows.groups.rows.sum())
    dims = boxes_of(rows).dims
    regions = _regions_of(rows, size, full)
    target = Target(regions, dims, example_table(version.root, rows.options).schema)
    token = uuid.uuid4().hex  # files get new names each time
    shared = f"simjoin_target-{token}"
    graph: dict[Any, Any] = {shared: Task(shared, itself, target)}
    keys: list[Any] = []
    for region, groups in enumerate(_meeting(rows.groups.low, rows.groups.high, target, rows.options.cut)):
        key = f"simjoin_rewrite-{token}", region
        graph[key] = Task(key, on_worker, write_region, rows.part(groups), TaskRef(shared), region, own)
        keys.append(key)
    found: list[Written | None] = gather(graph, keys)
    whole = len(files) == len(version.manifest.files)
    counters = {BASIS: float(number)} if whole else {}
    written = [one for one in found if one is not None]
    return Change("rewrite", written, dropped=files, counters=counters)


def _regions_of(rows: Snapshot, size: int, full: int) -> Regions:
    """Cut space into regions of about `full` rows, by points drawn in the boxes of row groups."""
    options, dims = rows.options, boxes_of(rows).dims
    number = max(1, min(MOST, PER_GROUP * len(rows.groups)))
    x = np.ascontiguousarray(drawn(rows.groups, options, number, seed=2)[:, dims])
    measure = options.spec(rows.library).measure
    away = reach(measure.norm, measure.threshold(options.eps))
    wide = np.full(len(dims), np.inf)
    return make_regions(x, np.full(number, size / number), -wide, wide, away, full, MAX_REGIONS)


def _meeting(low: np.ndarray, high: np.ndarray, target: Target, cut: tuple[int, ...]) -> list[np.ndarray]:
    """List the row groups that may have rows in each region."""
    order = np.argsort(np.asarray(cut), kind="stable")
    low, high = low[:, order], high[:, order]
    regions = target.regions
    return [
        np.flatnonzero(((low <= upper) & (high >= lower)).all(axis=1))
        for lower, upper in zip(regions.lower, regions.upper, strict=True)
    ]


def write_region(part: Part, target: Target, region: int, own: Transaction) -> Written | None:
    """Write the rows of a region as a file; None: there are none."""
    rows = read_part(part)
    if len(target.regions) > 1 and len(rows):
        frames = frames_of_library(part.library)
        columns = frames.coordinates(rows, part.options.on)
        x = part.options.spec(part.library).measure.embed(columns, frames.xp)
        x = frames.xp.asfortranarray(x[:, frames.xp.asarray(target.dims)])
        where = joiner_for(rows).regions(x, target.regions, **NO_HALO)[0]
        rows = rows[where == region]
    return write_rows(rows, part.options, own, target.schema, part.library)
