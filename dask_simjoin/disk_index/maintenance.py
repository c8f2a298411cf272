"""Measure how well the rows of an index are ordered. Compact and reorder its files,
after updates or on request.

The measure uses only the boxes of row groups, and reads no rows. Random points stand
for the rows: each box gets points in proportion to its rows. To estimate the boxes
after a rewrite, the same points are sorted in kd order, and cut into groups.

The schedule of rewrites is a rent-or-buy rule (Karlin, Manasse, Rudolph & Sleator 1988,
"Competitive snoopy caching"). A counter sums the rows that updates read needlessly
because rows are not in order. Once it exceeds the cost of a rewrite, rows are
rewritten. So the total cost is at most twice the cost of the best schedule.

A second counter sums those needless reads that a merge of the small files would have
saved. Small files must be rewritten later anyway, so merging them now costs only one
additional version. Once the counter exceeds that cost, small files are merged. They are
reordered instead if that costs hardly more.

Each task writes the file of one region. It reads the row groups whose boxes overlap the
region, and selects the rows in the region. So no rows are sent between tasks, but row
groups that overlap several regions are read several times.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dask_simjoin.disk_index.blocks import boxes_of
from dask_simjoin.disk_index.cell_filter import (
    CellBoxes,
    Tiled,
    near_tiles,
    tiled,
    touched,
)
from dask_simjoin.disk_index.files import call_on_workers
from dask_simjoin.disk_index.publishing import Transaction, base_of, transaction
from dask_simjoin.disk_index.reports import QualityReport, UpkeepReport
from dask_simjoin.disk_index.rows import Written, example_table, read_part, write_rows
from dask_simjoin.disk_index.schema import MAX_DELETED_SHARE
from dask_simjoin.disk_index.snapshots import Version
from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.disk_index.types import Manifest, Options, Part, RowGroups, Snapshot
from dask_simjoin.disk_index.versions import MAX_FILES, Change, attempted, commit
from dask_simjoin.engine.base import frames_of_library, joiner_for
from dask_simjoin.engine.index.cpu_tiles import FAN_OUT
from dask_simjoin.engine.index.kdtree import (
    Regions,
    dims_to_cut,
    kd_order,
    make_regions,
)
from dask_simjoin.errors import (
    IndexStoreError,
    IndexWriteError,
    UpkeepWarning,
    VersionGoneError,
)
from dask_simjoin.graph.base import itself
from dask_simjoin.graph.dask_private import Task, TaskRef
from dask_simjoin.metrics.norms import reach
from dask_simjoin.planning.spatial_chunks import NO_HALO
from dask_simjoin.planning.tables import MAX_REGIONS
from dask_simjoin.sizes import FEW, PARTITION, SAMPLED

OPEN_COST = 4096
"""Measured cost of opening a file, as the number of rows that could be read in the same
time.
"""

PER_GROUP, MAX_POINTS = 32, 1 << 16
"""Number of random points that stand for the rows of one row group, and maximum number
of points in all.
"""


def sample_points(
    groups: RowGroups, options: Options, number: int, seed: int = 0
) -> np.ndarray:
    """Draw `number` points (number, d) in the boxes of row groups. Each box gets points
    in proportion to its rows.

    In dimensions that the boxes do not cover, coordinates are 0.
    """
    random = np.random.default_rng(seed)
    rows = groups.rows / max(1, groups.rows.sum())
    of = np.searchsorted(
        np.cumsum(rows), random.uniform(size=number) * rows.sum(), side="right"
    )
    of = np.minimum(of, len(rows) - 1)
    x = np.zeros((number, options.dims))
    low, high = groups.low[of], groups.high[of]
    share = random.uniform(size=low.shape)
    # written in this way, because low + share * (high - low) could overflow
    x[:, list(options.cut)] = (1 - share) * low + share * high
    return x


def ideal_layout(rows: Snapshot) -> tuple[CellBoxes, np.ndarray]:
    """Estimate the boxes that row groups would have if all rows were rewritten, and the
    rows in each (groups,).
    """
    every, size = int(rows.groups.rows.sum()), rows.options.group
    number = max(1, min(MAX_POINTS, PER_GROUP * -(-every // size)))
    x = sample_points(rows.groups, rows.options, number, seed=1)[:, boxes_of(rows).dims]
    each = every / number
    points = max(1, 1 << round(np.log2(max(1.0, min(size, every) / each))))
    with np.errstate(over="ignore", invalid="ignore"):
        cuts = dims_to_cut(np.nan_to_num(x.var(axis=0)), x)
    order = kd_order(x, cuts, points, FAN_OUT)
    starts = np.arange(0, number, points)
    low, high = (
        np.minimum.reduceat(x[order], starts),
        np.maximum.reduceat(x[order], starts),
    )
    return CellBoxes(boxes_of(rows).dims, low, high), np.diff([*starts, number]) * each


def reached(x: np.ndarray, boxes: CellBoxes, options: Options) -> np.ndarray:
    """Return a mask (groups,) of the boxes that are within reach of at least one point
    in `x` (n, d).
    """
    measure = options.spec("pandas").measure
    tiles, threshold = tiled(x, boxes.dims), measure.threshold(options.eps)
    near = near_tiles(tiles, boxes, measure.norm, threshold)
    return touched(tiles, near, boxes, measure.norm, threshold)


def scanned(
    x: np.ndarray, boxes: CellBoxes, rows: np.ndarray, options: Options
) -> float:
    """Return how many rows must be read to search around a point of `x` (n, d), on
    average.

    A search reads all row groups whose boxes are within reach. `rows`: number of rows
    in each row group.
    """
    measure, sides = options.spec("pandas").measure, x[:, boxes.dims]
    points = Tiled(sides, np.arange(len(x)), 1, sides, sides)
    near = near_tiles(points, boxes, measure.norm, measure.threshold(options.eps))
    return float((near @ rows).sum()) / max(1, len(x))


def excess(rows: Snapshot, new: RowGroups) -> float:
    """Estimate how many rows an update reads only because the rows on disk are not in
    order.

    `new`: the row groups with the new rows. Each further file to open counts as
    `OPEN_COST` rows.
    """
    number = int(new.rows.sum())
    if not len(rows.groups) or not number:
        return 0.0
    x, options = sample_points(new, rows.options, min(number, SAMPLED)), rows.options
    now = reached(x, boxes_of(rows), options)
    boxes, sizes = ideal_layout(rows)
    more = rows.groups.rows[now].sum() - sizes[reached(x, boxes, options)].sum()
    files = len(np.unique(rows.groups.file[now])) - 1
    return max(0.0, float(more) + OPEN_COST * files)


CLUSTERS = 20
"""Number of clusters whose centroids are compared. The definition of drift, and this
number, are from Korkmaz (2012).
"""

EXCESS, SMALL_EXCESS, BASIS = "excess", "small_excess", "basis"
"""Names of counters in manifests.

The first sums the rows that updates read needlessly because rows are not in order. The
second sums only the reads that a merge of all small files would have saved. The third
is not a sum: it is the version that last rewrote all files.
"""


def small_files(manifest: Manifest, full: int) -> list[str]:
    """List the small files of a version. Updates write such files. `full`: number of
    rows in a full file.
    """
    return [one.name for one in manifest.files if FEW * one.rows < full]


def quality_of(version: Version, full: int) -> QualityReport:
    """Measure how well the rows of a version are ordered. `full`: number of rows in a
    full file.
    """
    rows, manifest, options = version.rows, version.manifest, version.manifest.options
    ratio = scan = 1.0
    if len(rows.groups):
        x = sample_points(rows.groups, options, SAMPLED)
        scan = scanned(x, boxes_of(rows), rows.groups.rows, options)
        ratio = scan / max(1.0, scanned(x, *ideal_layout(rows), options))
    small = set(small_files(manifest, full))
    size = sum(one.rows for one in manifest.files)
    few = sum(one.rows for one in manifest.files if one.name in small)
    drift = centroid_drift(rows.groups, int(manifest.counters.get(BASIS, 1)))
    return QualityReport(
        manifest.rows,
        len(manifest.files),
        len(rows.groups),
        len(small),
        few / max(1, size),
        (size - manifest.rows) / max(1, size),
        scan,
        max(1.0, ratio),
        drift,
        drift / options.eps if options.eps > 0 else float("inf") if drift else 0.0,
        float(manifest.counters.get(EXCESS, 0.0)),
    )


# for huge numbers, the drift becomes infinite or NaN
@np.errstate(over="ignore", invalid="ignore")
def centroid_drift(groups: RowGroups, basis: int) -> float:
    """Sum the distances that the centroids of clusters have moved, due to row groups
    newer than `basis`.

    A cluster is a run of consecutive older row groups, which are near each other. A
    newer row group joins the cluster with the nearest centroid.
    """
    old = groups.newest <= basis
    if not old.any() or old.all():
        return 0.0
    middle = groups.low / 2 + groups.high / 2
    parts = np.array_split(np.flatnonzero(old), min(CLUSTERS, int(old.sum())))
    weight = groups.rows.astype(np.float64)
    centers = np.array(
        [np.average(middle[part], axis=0, weights=weight[part]) for part in parts]
    )
    new = np.flatnonzero(~old)
    away = np.stack([np.square(middle[new] - center).sum(axis=1) for center in centers])
    nearest = away.argmin(axis=0)
    total = 0.0
    for number, part in enumerate(parts):
        own = np.concatenate([part, new[nearest == number]])
        moved = np.average(middle[own], axis=0, weights=weight[own]) - centers[number]
        total += float(np.sqrt(np.square(moved).sum()))
    return total


REWRITE = 8.0
"""Measured cost of reordering and writing a row, as the number of rows that could be
read and compared meanwhile.
"""

COMMIT = 1 << 19
"""Cost of making a version, with all syncs, as the number of rows that could be
compared meanwhile.
"""


def counters_after_update(
    version: Version, written: list[RowGroups], full: int
) -> dict[str, float]:
    """Return the counters that the version of an update will have. The update is not
    published yet.
    """
    manifest, rows = version.manifest, version.rows
    if manifest.options.recluster != "auto":
        return {}
    small = set(small_files(manifest, full))
    of_small = rows.only(
        np.isin(
            rows.groups.file, [n for n, name in enumerate(rows.files) if name in small]
        )
    )
    every = ((EXCESS, rows), (SMALL_EXCESS, of_small))
    return {
        name: float(manifest.counters.get(name, 0.0))
        + sum(excess(some, new) for new in written)
        for name, some in every
    }


def counters_after_rewrite(
    version: Version, files: frozenset[str], full: int
) -> dict[str, float]:
    manifest = version.manifest
    if manifest.options.recluster != "auto" or unordered_files(version, full) <= files:
        return {EXCESS: 0.0, SMALL_EXCESS: 0.0}
    return {SMALL_EXCESS: 0.0}


def price(version: Version, files: frozenset[str]) -> float:
    """Return the cost of rewriting some files, as the number of rows that could be read
    and compared meanwhile.
    """
    return COMMIT + REWRITE * sum(
        one.rows for one in version.manifest.files if one.name in files
    )


def to_rewrite(version: Version, full: int) -> frozenset[str]:
    """By the policy of the index, choose the files to rewrite after an update. `full`:
    number of rows in a full file.
    """
    manifest, policy = version.manifest, version.manifest.options.recluster
    every = frozenset(one.name for one in manifest.files)
    if policy == "never" or not every:
        return frozenset()
    if policy == "always":
        return every
    if isinstance(policy, (int, float)):
        return every if quality_of(version, full).scan_ratio > policy else frozenset()
    near = unordered_files(version, full)
    if manifest.counters.get(EXCESS, 0.0) > price(version, near):
        return near
    small = similar_files(version, full, FEW)
    if small and manifest.counters.get(SMALL_EXCESS, 0.0) > COMMIT:
        return small
    return similar_files(version, full, MAX_FILES) | degraded_files(version)


def unordered_files(version: Version, full: int) -> frozenset[str]:
    """List files that are not in order: small files, and files whose boxes overlap the
    boxes of small files.

    If there are no small files, return all files.
    """
    rows, names = version.rows, version.rows.files
    found = set(small_files(version.manifest, full))
    if not found:
        return frozenset(names)
    boxes, small = boxes_of(rows), [n for n, name in enumerate(names) if name in found]
    of_small = np.isin(rows.groups.file, small)
    for n, name in enumerate(names):
        own = rows.groups.file == n
        if name in found or not own.any():
            continue
        low, high = boxes.lower[own].min(axis=0), boxes.upper[own].max(axis=0)
        apart = (boxes.lower[of_small] > high).any(axis=1) | (
            boxes.upper[of_small] < low
        ).any(axis=1)
        if not apart.all():
            found.add(name)
    return frozenset(found)


def similar_files(version: Version, full: int, number: int) -> frozenset[str]:
    """List small files to merge: those in a tier that has at least `number` files of
    similar size.
    """
    small, tiers = set(small_files(version.manifest, full)), dict[int, list[str]]()
    for one in version.manifest.files:
        if one.name in small:
            tiers.setdefault((one.rows.bit_length() + 1) // 3, []).append(one.name)
    return frozenset(
        name for names in tiers.values() if len(names) >= number for name in names
    )


def degraded_files(version: Version) -> frozenset[str]:
    """List files where deleted rows are a large share of all rows, and more than a row
    group holds.
    """
    manifest = version.manifest
    return frozenset(
        one.name
        for one in manifest.files
        if len(version.deleted.get(one.name, ()))
        > max(MAX_DELETED_SHARE * one.rows, manifest.options.group)
    )


@dataclass(frozen=True, eq=False)
class Target:
    """The files that a rewrite makes: one file for each region of space."""

    regions: Regions
    dims: np.ndarray  # the dimensions that the regions cut
    schema: pa.Schema  # schema of the files with rows


def rewritten(
    own: Transaction, version: Version, files: frozenset[str], number: int, full: int
) -> Change:
    """Rewrite the rows of some files, as files of about `full` rows. `number`: number
    of the new version.
    """
    every = version.rows
    chosen = np.isin(np.asarray(every.files, object)[every.groups.file], list(files))
    rows = every.only(chosen)
    regions = _regions_of(rows, full)
    target = Target(
        regions, boxes_of(rows).dims, example_table(version.root, rows.options).schema
    )
    shared = f"simjoin_target-{own.token}"
    found: list[Written | None] = call_on_workers(
        "simjoin_rewrite",
        write_region,
        (
            (rows.part(groups), TaskRef(shared), region, own)
            for region, groups in enumerate(_groups_of_regions(boxes_of(rows), regions))
        ),
        {shared: Task(shared, itself, target)},
    )
    whole = len(files) == len(version.manifest.files)
    counters = {BASIS: float(number)} if whole else {}
    written = [one for one in found if one is not None]
    return Change("rewrite", written, dropped=files, counters=counters)


def _regions_of(rows: Snapshot, full: int) -> Regions:
    """Cut space into regions of about `full` rows. Random points in the boxes of row
    groups stand for the rows.
    """
    options, dims, size = rows.options, boxes_of(rows).dims, int(rows.groups.rows.sum())
    number = max(1, min(MAX_POINTS, PER_GROUP * len(rows.groups)))
    x = np.ascontiguousarray(
        sample_points(rows.groups, options, number, seed=2)[:, dims]
    )
    measure = options.spec(rows.library).measure
    away = reach(measure.norm, measure.threshold(options.eps))
    wide = np.full(len(dims), np.inf)
    return make_regions(
        x, np.full(number, size / number), -wide, wide, away, full, MAX_REGIONS
    )


def _groups_of_regions(boxes: CellBoxes, regions: Regions) -> list[np.ndarray]:
    """For each region, return the row groups that may have rows in the region."""
    return [
        np.flatnonzero(((boxes.lower <= upper) & (boxes.upper >= lower)).all(axis=1))
        for lower, upper in zip(regions.lower, regions.upper, strict=True)
    ]


def write_region(
    part: Part, target: Target, region: int, own: Transaction
) -> Written | None:
    """Write the rows in a region to a file. Return None if there are none."""
    rows = read_part(part)
    if len(target.regions) > 1 and len(rows):
        frames = frames_of_library(part.library)
        columns = frames.coordinates(rows, part.options.on)
        x = part.options.spec(part.library).measure.embed(columns, frames.xp)
        x = frames.xp.asfortranarray(x[:, frames.xp.asarray(target.dims)])
        where = joiner_for(rows).regions(x, target.regions, **NO_HALO)[0]
        rows = rows[where == region]
    return write_rows(rows, part.options, own, target.schema, part.library)


HOW = ("auto", "all", "small")
"""Choices of `optimize`: the files that the policy recommends, all files, or only small
files.
"""


def keep_up(version: Version) -> UpkeepReport:
    """Compact after an update if the policy of the index says so. If another writer has
    made a version since, do nothing.

    The update is committed already, so a failure of the compaction is reported as a
    warning only.
    """
    nothing = UpkeepReport(version.number, 0, 0, 0, 0)
    try:
        files = to_rewrite(version, PARTITION)
        if not files or base_of(version.root, version.manifest) != version.number:
            return nothing
        with transaction(version.root) as own:
            done = _rewrite(own, version, version.number, files)
    except VersionGoneError:  # a vacuum by another writer has removed a file
        return nothing
    except (IndexWriteError, IndexStoreError) as error:
        warnings.warn(
            f"Version {version.number} of the index at {str(version.root)!r} is "
            "committed, but its files "
            f"could not be compacted: {error}. A later update, or optimize(), compacts "
            "them.",
            UpkeepWarning,
            stacklevel=3,
        )
        return nothing
    return done or nothing


def optimize(root: AnyPath, last: Callable[[], Version], how: str) -> UpkeepReport:
    def work(now: Version, base: int, own: Transaction) -> UpkeepReport | None:
        if how == "auto":
            return _rewrite(own, now, base, to_rewrite(now, PARTITION))
        small = small_files(now.manifest, PARTITION)
        every = [one.name for one in now.manifest.files]
        return _rewrite(own, now, base, frozenset(small if how == "small" else every))

    return attempted(root, last, work)


def _rewrite(
    own: Transaction, version: Version, base: int, files: frozenset[str]
) -> UpkeepReport | None:
    """Rewrite some files, as the version after `base`. Return None if another writer
    has made that version first.
    """
    if not files:
        return UpkeepReport(version.number, 0, 0, 0, 0)
    change = rewritten(own, version, files, base + 1, PARTITION)
    change = replace(
        change,
        counters=change.counters | counters_after_rewrite(version, files, PARTITION),
    )
    done = commit(own, version.manifest, base, change, version.library)
    if done is None:
        return None
    size = sum(one.size + one.keys_size for one in change.written) + done[1]
    rows = sum(one.rows for one in change.written)
    return UpkeepReport(base + 1, len(files), len(change.written), rows, size)
