"""Find pairs of near boxes, without comparing all pairs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dask_simjoin.metrics.norms import Norm, box_gap

GROUP = 64
"""Number of consecutive boxes that are compared together."""

Bounds = tuple[np.ndarray, np.ndarray]
"""Lower and upper corners of boxes, each (n, d)."""


def near_boxes(
    norm: Norm,
    boxes: Bounds,
    others: Bounds,
    limits: np.ndarray,
    is_self_join: bool = False,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each box, yield the numbers of the other boxes with a gap up to its limit,
    ascending, and these gaps. NaN gaps count as near.

    Consecutive boxes form groups with an outer box. Regions that follow each other in a
    kd tree are near each other. So most groups are far from each other, and their boxes
    are not compared. A gap between outer boxes is at most the gaps between their boxes,
    also as computed: see `box_gap`.

    `limits` (n,): a limit for each box. `is_self_join`: whether both sides are the same
    boxes. Then only the box itself and later boxes are compared with it.
    """
    (lower, upper), starts = others, np.arange(0, len(others[0]), GROUP)
    # without boxes there is nothing to reduce
    outer = [
        reduce.reduceat(side, starts) if len(starts) else side
        for reduce, side in ((np.minimum, lower), (np.maximum, upper))
    ]
    for start in range(0, len(limits), GROUP):
        some = slice(start, start + GROUP)
        low, high, limit = boxes[0][some], boxes[1][some], limits[some]
        away = box_gap(norm, low.min(0), high.max(0), *outer)
        groups = np.flatnonzero(~(away > limit.max()))
        if is_self_join:
            groups = groups[groups >= start // GROUP]
        numbers = (GROUP * groups[:, None] + np.arange(GROUP)).reshape(-1)
        numbers = numbers[numbers < len(lower)]
        gap = box_gap(norm, low[:, None], high[:, None], lower[numbers], upper[numbers])
        near = ~(gap > limit[:, None])
        if is_self_join:
            near &= numbers >= start + np.arange(len(low))[:, None]
        of, found = np.nonzero(near)
        ends = np.searchsorted(of, np.arange(len(low) + 1)).tolist()
        numbers, gaps = numbers[found], gap[near]
        for k in range(len(low)):
            yield numbers[ends[k] : ends[k + 1]], gaps[ends[k] : ends[k + 1]]
