"""Distances to nearest rows on the sphere, which show that kilometers or degrees were meant, not meters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from dask_simjoin.metrics.distances import Haversine
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.planning.estimate import Estimate
from dask_simjoin.planning.sample_pairs import SamplePoints
from dask_simjoin.request.spec import JoinSpec

FAR = 300
"""`eps` may be in kilometers instead of meters if neighbors are at least this multiple of `eps` away."""

PROBED = 64
"""Number of sample points whose nearest point is computed; smaller samples give no warnings."""

COPY_DIGITS = 12
"""Decimals of coordinates on the unit sphere, about 6 micrometers: rows that are equal in them are copies."""


def far_from_eps(
    spec: JoinSpec, found: Estimate, left: SamplePoints, right: SamplePoints, copies_count: bool
) -> str:
    """Return a warning if the nearest rows are much farther apart than `eps`, or ""; copies are ignored.

    `copies_count`: whether the verb looks for copies.
    """
    if spec.metric != Haversine.name or spec.radius is not None or not spec.eps:
        return ""
    if min(len(left.x), len(right.x)) < PROBED:
        return ""
    if found.total and (copies_count or not _only_copies(found, left, right)):
        return ""
    away = _typical(left.x, right.x, spec) * math.sqrt(len(right.x) / right.rows)
    if away < FAR * spec.eps:
        return ""
    return (
        f"No pair is likely within eps={spec.eps!r} meters, except between equal rows: in a sample, the "
        f"nearest rows are about {away:,.0f} meters apart. With metric={spec.metric!r}, eps= is in meters; "
        f"if you mean kilometers, use eps={1000 * spec.eps:g}."
    )


def far_from_max_distance(left: Array, right: Array, spec: JoinSpec, far: float) -> str:
    """Return a warning if all nearest rows are much farther apart than `far`, or ""; copies are ignored.

    `left`, `right`: all points of two tables, or of one.  `far`: the largest distance, in meters.
    """
    if len(left) < PROBED:
        return ""
    away = _typical(left, right, spec)
    if not FAR * far <= away < math.inf:
        return ""
    return (
        f"No row has a neighbor within max_distance={far!r} meters: in a sample, the nearest rows are about "
        f"{away:,.0f} meters away. With metric={spec.metric!r}, max_distance= is in meters; if you mean "
        f"kilometers, use max_distance={1000 * far:g}, and for degrees max_distance='{far:g} deg'."
    )


def count_copies(frames: Sequence[Frame], spec: JoinSpec) -> int:
    """Return the number of pairs of rows with equal coordinates; 0 for frames of other libraries."""
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
    """Return the number of points at each place."""
    places, sizes = np.unique(np.round(x, COPY_DIGITS), axis=0, return_counts=True)
    return dict(zip(map(tuple, places.tolist()), sizes.tolist(), strict=True))


def _typical(left: Array, right: Array, spec: JoinSpec) -> float:
    """Return the median distance from some left points to their nearest right points that are not copies."""
    some = left[np.random.default_rng(len(left)).choice(len(left), PROBED, replace=False)]
    nearest = np.empty(PROBED)
    for n, x in enumerate(some):
        total = ((right - x) ** 2).sum(axis=1)
        nearest[n] = total[total > 10.0 ** (-2 * COPY_DIGITS)].min(initial=math.inf)
    if not np.isfinite(np.median(nearest)):
        return math.inf
    return float(np.median(spec.measure.distance(np.minimum(nearest, 4.0), np)))
