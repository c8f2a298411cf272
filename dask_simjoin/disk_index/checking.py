"""Read all files for damage, and measure the order of rows.

The order of rows is estimated from the boxes of row groups alone.  Random points in the boxes replace the
rows, in proportion to the number of rows in each box.  The same points, sorted in kd order and cut into
groups, show the boxes that row groups would have after a rewrite.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from dask_simjoin.disk_index.blocks import boxes_of
from dask_simjoin.disk_index.cell_filter import CellBoxes, Tiled, near_tiles, tiled, touched
from dask_simjoin.disk_index.checksums import REMEDY, CheckedFile, is_checked, reading
from dask_simjoin.disk_index.components import grouping_files
from dask_simjoin.disk_index.files import FOLDERS, call_on_workers, parquet, read_groups
from dask_simjoin.disk_index.manifests import damage_of, manifest_path, versions, whole
from dask_simjoin.disk_index.reports import CheckReport, Damage, QualityReport
from dask_simjoin.disk_index.snapshots import Version
from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.disk_index.types import Manifest, Options, RowGroups, Snapshot
from dask_simjoin.disk_index.versions import files_of
from dask_simjoin.engine.index.kdorder import dims_to_cut, kd_order
from dask_simjoin.errors import IndexFormatError, IndexStoreError, SimJoinError, VersionGoneError


def check_index(root: AnyPath) -> CheckReport:
    """Read all files of all versions of the index in a folder, and report damage.

    Refuses a folder without an index.
    """
    known = versions(root)
    if not known:
        raise IndexFormatError(f"{str(root)!r} holds no index; name the folder of an index.")
    needed: dict[tuple[str, str], list[int]] = {}
    broken = [(version, what) for version in known if (what := damage_of(root, version))]
    for one in whole(root, set(known) - {version for version, _ in broken}):
        for name in files_of([one]):
            needed.setdefault(name, []).append(one.version)
    for number, path in grouping_files(root):
        needed[path.parent.name, path.name] = [number]
    found = [Damage(f"{FOLDERS[0]}/{manifest_path(root, one).name}", what, (one,)) for one, what in broken]
    paths = [root.joinpath(*name) for name in needed]
    some = ((paths[start : start + AT_ONCE],) for start in range(0, len(paths), AT_ONCE))
    wrong = [what for found in call_on_workers("simjoin_check", _damages, some) for what in found]
    for (name, numbers), what in zip(needed.items(), wrong, strict=True):
        if what:
            found.append(Damage("/".join(name), what, tuple(sorted(numbers))))
    every = [*paths, *(manifest_path(root, version) for version in known)]
    plain = sum(not is_checked(path) for path in paths)
    return CheckReport(len(known), len(every), sum(map(_size, every)), plain, len(found), tuple(found))


AT_ONCE = 64
"""Maximum number of files per task: an index has many small files."""


def _damages(paths: Sequence[AnyPath]) -> list[str]:
    return [_damage(path) for path in paths]


def _damage(path: AnyPath) -> str:
    """Describe the damage of a file; "" if it is intact, or was removed meanwhile with its versions."""
    try:
        if is_checked(path):
            with reading(path, True), contextlib.closing(CheckedFile(path)) as file:
                file.verify()
        with parquet(path) as read:
            for group in () if is_checked(path) else range(read.num_row_groups):
                read_groups(read, [group])
    except VersionGoneError:
        return ""
    except IndexStoreError:
        raise
    except SimJoinError as error:
        text = str(error).removeprefix(f"{str(path)!r} is ")  # without the file's name and the remedy
        return text.removeprefix("damaged: ").removesuffix(f". {REMEDY}")
    return ""


def _size(path: AnyPath) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


POINTS = 4096
"""Maximum number of random points that replace the new rows of an update."""

OPENED = 4096
"""Measured cost of opening a file, in rows that could be read instead."""

PER_GROUP, MOST = 32, 1 << 16
"""Random points that replace the rows of a row group, and the maximum number of points in all."""

FAN_OUT = 4


def sample_points(groups: RowGroups, options: Options, number: int, seed: int = 0) -> np.ndarray:
    """Draw `number` points (number, d) in the boxes of row groups, in proportion to their rows.

    Coordinates are 0 in dimensions that boxes do not cover.
    """
    random = np.random.default_rng(seed)
    rows = groups.rows / max(1, groups.rows.sum())
    of = np.searchsorted(np.cumsum(rows), random.uniform(size=number) * rows.sum(), side="right")
    of = np.minimum(of, len(rows) - 1)
    x = np.zeros((number, options.dims))
    low, high = groups.low[of], groups.high[of]
    share = random.uniform(size=low.shape)
    # the difference of high and low could overflow
    x[:, list(options.cut)] = (1 - share) * low + share * high
    return x


def ideal_layout(rows: Snapshot) -> tuple[CellBoxes, np.ndarray]:
    """Estimate boxes and row counts (groups,) of row groups after a rewrite of all rows in order."""
    every, size = int(rows.groups.rows.sum()), rows.options.group
    number = max(1, min(MOST, PER_GROUP * -(-every // size)))
    x = sample_points(rows.groups, rows.options, number, seed=1)[:, boxes_of(rows).dims]
    each = every / number
    points = max(1, 1 << round(np.log2(max(1.0, min(size, every) / each))))
    with np.errstate(over="ignore", invalid="ignore"):
        cuts = dims_to_cut(np.nan_to_num(x.var(axis=0)), x)
    order = kd_order(x, cuts, points, FAN_OUT)
    starts = np.arange(0, number, points)
    low, high = np.minimum.reduceat(x[order], starts), np.maximum.reduceat(x[order], starts)
    return CellBoxes(boxes_of(rows).dims, low, high), np.diff([*starts, number]) * each


def reached(x: np.ndarray, boxes: CellBoxes, options: Options) -> np.ndarray:
    """Return which row groups have a box within reach of at least one row of `x` (n, d): (groups,), bool."""
    measure = options.spec("pandas").measure
    tiles, threshold = tiled(x, boxes.dims), measure.threshold(options.eps)
    near = near_tiles(tiles, boxes, measure.norm, threshold)
    return touched(tiles, near, boxes, measure.norm, threshold)


def scanned(x: np.ndarray, boxes: CellBoxes, rows: np.ndarray, options: Options) -> float:
    """Return the average number of rows in the row groups within reach of a row of `x` (n, d)."""
    measure, sides = options.spec("pandas").measure, x[:, boxes.dims]
    points = Tiled(sides, np.arange(len(x)), 1, sides, sides)
    near = near_tiles(points, boxes, measure.norm, measure.threshold(options.eps))
    return float((near @ rows).sum()) / max(1, len(x))


def excess(rows: Snapshot, new: RowGroups) -> float:
    """Estimate how many rows an update reads needlessly because the rows on disk are not in order.

    `new`: the row groups with the new rows.  Opening a further file counts as `OPENED` rows.
    """
    number = int(new.rows.sum())
    if not len(rows.groups) or not number:
        return 0.0
    x, options = sample_points(new, rows.options, min(number, POINTS)), rows.options
    now = reached(x, boxes_of(rows), options)
    boxes, sizes = ideal_layout(rows)
    more = rows.groups.rows[now].sum() - sizes[reached(x, boxes, options)].sum()
    files = len(np.unique(rows.groups.file[now])) - 1
    return max(0.0, float(more) + OPENED * files)


CLUSTERS = 20
"""Number of clusters whose centroids are compared, as in Korkmaz (2012), which defines the drift."""

SMALL_PART = 8
"""A file with less than one eighth of a full file's rows is small: an update wrote it."""

EXCESS, SMALL_EXCESS, BASIS = "excess", "small_excess", "basis"
"""Counters in manifests.

The first sums the rows that updates read needlessly because rows are not in order.  The second sums the part
of these rows that a merge of all small files would have saved.  The third is the version that last rewrote
all files.
"""


def small_files(manifest: Manifest, full: int) -> list[str]:
    """List files with few rows, as updates write them; `full`: rows of a full file."""
    return [one.name for one in manifest.files if SMALL_PART * one.rows < full]


def quality_of(version: Version, full: int) -> QualityReport:
    """Measure the order of a version's rows; `full`: rows of a full file."""
    rows, manifest, options = version.rows, version.manifest, version.manifest.options
    ratio = scan = 1.0
    if len(rows.groups):
        x = sample_points(rows.groups, options, POINTS)
        scan = scanned(x, boxes_of(rows), rows.groups.rows, options)
        ratio = scan / max(1.0, scanned(x, *ideal_layout(rows), options))
    small = set(small_files(manifest, full))
    size = sum(one.rows for one in manifest.files)
    few = sum(one.rows for one in manifest.files if one.name in small)
    drift = centroid_drift(rows.groups, int(manifest.counters.get(BASIS, 1)))
    return QualityReport(
        manifest.rows, len(manifest.files), len(rows.groups), len(small), few / max(1, size),
        (size - manifest.rows) / max(1, size), scan, max(1.0, ratio), drift,
        drift / options.eps if options.eps > 0 else float("inf") if drift else 0.0,
        float(manifest.counters.get(EXCESS, 0.0)),
    )  # fmt: skip


@np.errstate(over="ignore", invalid="ignore")  # huge numbers make the drift infinite or nan
def centroid_drift(groups: RowGroups, basis: int) -> float:
    """Sum the distances by which row groups newer than version `basis` moved the centroids of clusters.

    Each cluster is a run of consecutive older row groups, which lie near each other.  A newer row group joins
    the cluster with the nearest centroid.
    """
    old = groups.newest <= basis
    if not old.any() or old.all():
        return 0.0
    middle = groups.low / 2 + groups.high / 2
    parts = np.array_split(np.flatnonzero(old), min(CLUSTERS, int(old.sum())))
    weight = groups.rows.astype(np.float64)
    centers = np.array([np.average(middle[part], axis=0, weights=weight[part]) for part in parts])
    new = np.flatnonzero(~old)
    away = np.stack([np.square(middle[new] - center).sum(axis=1) for center in centers])
    nearest = away.argmin(axis=0)
    total = 0.0
    for number, part in enumerate(parts):
        own = np.concatenate([part, new[nearest == number]])
        moved = np.average(middle[own], axis=0, weights=weight[own]) - centers[number]
        total += float(np.sqrt(np.square(moved).sum()))
    return total
