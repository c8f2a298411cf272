"""Warnings of distances in kilometers on the sphere, where meters are meant."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from dask_simjoin.metrics.distances import Haversine, make_metric
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.planning.estimate import Estimate
from dask_simjoin.planning.sample_pairs import SamplePoints
from dask_simjoin.planning.table import TableSummary
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import PROBED


def has_unit(spec: JoinSpec) -> bool:
    """Return whether `eps` was passed with a unit, as in "0.5 m"."""
    return spec.limit.text is not None and spec.limit.text[0] == spec.eps


def small_eps(spec: JoinSpec, sides: Sequence[TableSummary]) -> str:
    """Return a warning if `eps` is probably in kilometers, else ""."""
    if has_unit(spec) or spec.several or spec.radius is not None:
        return ""
    lower = np.min([side.every.lower for side in sides], axis=0)
    upper = np.max([side.every.upper for side in sides], axis=0)
    return small_distance("eps", spec.eps, spec, lower, upper)


def small_distance(
    name: str, distance: float, spec: JoinSpec, lower: np.ndarray, upper: np.ndarray
) -> str:
    """Return a warning if a distance on the sphere is probably in kilometers, else "".

    This is not a question of pairs: some rows may well be so near, such as the
    positions of a ship at anchor. `name`: the option. `lower`, `upper`: the box of the
    embedded points.
    """
    low, high = KILOMETERS
    if spec.metric.name != Haversine.name or not low <= distance < high:
        return ""
    # x, y and z on the unit sphere; by= adds a coordinate
    total = np.minimum([((upper - lower)[:3] ** 2).sum()], 4.0)
    extent = float(make_metric(*spec.metric).distance(total, np)[0])
    if extent < EXTENT:
        return ""
    return (
        f"{name}={distance:g} is in meters with metric={spec.metric.name!r}, and the "
        f"points span {extent / 1000:,.0f} km. If you mean kilometers, use "
        f"{name}='{distance:g} km'. {_with_unit(name, distance)}"
    )


FAR = 50
"""If nearest neighbors are at least `eps` times this apart, `eps` may be in kilometers
instead of meters.
"""


KILOMETERS = (0.01, 1.0)
"""On the sphere, a distance without a unit in this range may be in kilometers. In
meters it is rare, because positions are seldom so exact.
"""


EXTENT = 10_000
"""Rows that extend over fewer meters may well be compared by parts of a meter."""


COPY_DIGITS = 12
"""Rows are copies if their coordinates on the unit sphere are equal in this many
decimals (6 micrometers).
"""


def far_from_eps(
    spec: JoinSpec,
    found: Estimate,
    left: SamplePoints,
    right: SamplePoints,
    copies_count: bool,
) -> str:
    """Return a warning if nearest rows are much farther apart than `eps`, else "".
    Copies are ignored.

    `copies_count`: whether the verb looks for copies.
    """
    if spec.metric.name != Haversine.name or spec.radius is not None or not spec.eps:
        return ""
    if has_unit(spec):
        return ""
    if min(len(left.x), len(right.x)) < PROBED:
        return ""
    if found.total and (copies_count or not _only_copies(found, left, right)):
        return ""
    away = _typical(left.x, right.x, spec) * math.sqrt(len(right.x) / right.rows)
    if away < FAR * spec.eps:
        return ""
    return (
        f"In a sample, no two different points are within eps={spec.eps!r} meters of "
        f"each other, and nearest points are about {away:,.0f} meters apart. With "
        f"metric={spec.metric.name!r}, eps= is in meters. If you mean kilometers, use "
        f"eps='{spec.eps:g} km'. {_with_unit('eps', spec.eps)}"
    )


def _with_unit(name: str, distance: float) -> str:
    """Return a sentence about how to end a warning about meters."""
    return f"If you mean meters, {name}='{distance:g} m' ends this warning."


def far_from_max_distance(left: Array, right: Array, spec: JoinSpec, far: float) -> str:
    """Return a warning if nearest rows are much farther apart than `far`, else "".
    Copies are ignored.

    `left`, `right`: all points of two tables, or of one.  `far`: the largest distance,
    in meters.
    """
    if len(left) < PROBED:
        return ""
    away = _typical(left, right, spec)
    if not FAR * far <= away < math.inf:
        return ""
    return (
        f"No row has a neighbor within max_distance={far!r} meters: in a sample, the "
        "nearest rows are about "
        f"{away:,.0f} meters away. With metric={spec.metric.name!r}, max_distance= is in "
        f"meters. If you mean kilometers, use max_distance='{far:g} km'; for degrees, "
        f"max_distance='{far:g} deg'."
    )


def count_copies(frames: Sequence[Frame], spec: JoinSpec) -> int:
    """Return the number of pairs of rows with equal coordinates; 0 for frames of other
    libraries.
    """
    if not all(isinstance(frame, pd.DataFrame) for frame in frames):
        return 0
    specs = [spec] if len(frames) == 1 else [spec, spec.right]
    sizes = [
        frame.groupby(list(own.on)).size().rename_axis(range(len(own.on)))
        for frame, own in zip(frames, specs, strict=True)
    ]
    if len(sizes) == 1:
        return int((sizes[0] * (sizes[0] - 1) // 2).sum())
    return int(sizes[0].mul(sizes[1], fill_value=0).sum())


def _only_copies(found: Estimate, left: SamplePoints, right: SamplePoints) -> bool:
    """Return whether all pairs of the samples are copies."""
    same = left is right
    pairs = int((found.degrees * found.points).sum()) // (2 if same else 1)
    sizes = [_sizes(points.x) for points in ((left,) if same else (left, right))]
    if same:
        copies = sum(size * (size - 1) // 2 for size in sizes[0].values())
    else:
        copies = sum(size * sizes[1].get(place, 0) for place, size in sizes[0].items())
    return 0 < pairs <= copies


def _sizes(x: np.ndarray) -> dict[tuple[float, ...], int]:
    """Return a dict: coordinates -> number of points with these coordinates."""
    places, sizes = np.unique(np.round(x, COPY_DIGITS), axis=0, return_counts=True)
    return dict(zip(map(tuple, places.tolist()), sizes.tolist(), strict=True))


def _typical(left: Array, right: Array, spec: JoinSpec) -> float:
    """Return the median distance from some left points to their nearest right points
    that are not copies.
    """
    some = left[
        np.random.default_rng(len(left)).choice(len(left), PROBED, replace=False)
    ]
    nearest = np.empty(PROBED)
    for n, x in enumerate(some):
        total = ((right - x) ** 2).sum(axis=1)
        nearest[n] = total[total > 10.0 ** (-2 * COPY_DIGITS)].min(initial=math.inf)
    if not np.isfinite(np.median(nearest)):
        return math.inf
    return float(np.median(spec.measure.distance(np.minimum(nearest, 4.0), np)))
