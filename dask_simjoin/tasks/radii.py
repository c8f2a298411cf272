"""Visit pairs of two chunks whose rows have radii of their own.

Where all radii are alike chunks are joined by the largest one, and each pair is met once and decided in both
directions.  Where a few are much larger than the others, that would cost as if all were: then left rows are
joined in classes, each by its own largest radius, with all rows of the other chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import numpy as np

from dask_simjoin.engine.compat import tally, to_host
from dask_simjoin.engine.protocols import Layout, Rows
from dask_simjoin.metrics.norms import Norm, box_gap
from dask_simjoin.metrics.types import Array, ArrayModule, Index
from dask_simjoin.planning.statistics.moments import merge_moments, moments
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.meeting import Meeting

RATIO = 4.0
"""How much larger radii of one class may be than each other."""

CLASSES = 8
"""Most classes: the last holds all that are small, 0 among them."""

GAIN = 4.0
"""How many times fewer candidates classes must give, as they meet pairs in both directions and index anew."""

Show = Callable[[int, Array, Array, Array], None]
"""Takes pairs that the left rows' radii make: which of both chunks those are of, positions there and in the
other one, and totals."""


def visit_radii(meeting: Meeting, show: Show, rows: Rows | None = None) -> None:
    """Show all pairs within the left row's radius; of one table in both directions."""
    both = meeting.spec.other is None
    sides = (0, 1) if both and not meeting.same else (0,)
    chunks = meeting.q, meeting.d
    classes = [_classes(chunks[side], meeting.layout.norm, meeting.xp) for side in sides]
    if all(some is None for some in classes):
        _at_once(meeting, show, rows, both)
        return
    for side, some in zip(sides, classes, strict=True):
        _in_classes(meeting, show, rows, side, some)


def _at_once(meeting: Meeting, show: Show, rows: Rows | None, both: bool) -> None:
    xp = meeting.xp
    limits = [by_position(chunk, chunk["own_limit"], xp) for chunk in (meeting.q, meeting.d)[: 1 + both]]

    def visitor(left: Array, right: Array, totals: Array) -> None:
        found = totals <= limits[0][left]
        show(0, left[found], right[found], totals[found])
        if both:
            found = totals <= limits[1][right]
            show(0 if meeting.same else 1, right[found], left[found], totals[found])

    meeting.joiner.visit(*meeting.operands, visitor, same=meeting.same, rows=rows)


def _classes(chunk: Chunk, norm: Norm, xp: ArrayModule) -> Array | None:
    """Number the class of each place's radius, 0 that of the largest; None: they are not worth it."""
    limit = chunk["own_limit"]
    largest = float(limit.max()) if len(limit) else 0.0
    if not 0 < largest < math.inf:
        return None
    radius = (limit / largest) ** (1.0 if norm in (1, math.inf) else 1 / norm)
    steps = -xp.log(xp.maximum(radius, RATIO**-CLASSES)) / math.log(RATIO)
    number = xp.minimum(steps.astype(xp.int64), CLASSES - 1)
    rows = to_host(tally(number, CLASSES))
    # as in a plane: in more dimensions classes save more
    candidates = float(rows @ RATIO ** (-2.0 * np.arange(CLASSES)))
    return number if candidates * GAIN < len(limit) else None


def _in_classes(meeting: Meeting, show: Show, rows: Rows | None, side: int, classes: Array | None) -> None:
    joiner, xp, layout = meeting.joiner, meeting.xp, meeting.layout
    own, other = (meeting.q, meeting.d) if side == 0 else (meeting.d, meeting.q)
    limits = own["own_limit"]
    positions = [chunk["order"][: len(chunk["ids"])] for chunk in (own, other)]
    x, y = (joiner.points(cast(Index, chunk), layout) for chunk in (own, other))
    lefts = xp.arange(len(limits))
    if rows is not None and side == 0:
        lefts = lefts[rows[0] : rows[1]]
    elif rows is not None:
        y, positions[1] = y[rows[0] : rows[1]], positions[1][rows[0] : rows[1]]
    if not len(y):
        return
    lower, upper = y.min(axis=0), y.max(axis=0)
    for number in range(CLASSES) if classes is not None else (None,):
        some = lefts if classes is None or number is None else lefts[classes[lefts] == number]
        if not len(some):
            continue
        threshold = float(limits[some].max())
        # what is computed as a gap is at most what is computed as a total
        some = some[box_gap(layout.norm, x[some], x[some], lower, upper) <= threshold]
        if not len(some):
            continue
        _join(meeting, show, side, threshold, x[some], y, (positions[0][some], positions[1], limits[some]))


def _join(meeting: Meeting, show: Show, side: int, threshold: float, x: Array, y: Array,
          told: tuple[Array, Array, Array]) -> None:  # fmt: skip
    """Join some left points with points; `told`: positions of both, and the left ones' limits."""
    joiner, same = meeting.joiner, meeting.same
    layout = _layout(meeting, threshold, x, y)
    lefts, rights, limits = told

    def visitor(left: Array, right: Array, totals: Array) -> None:
        found = totals <= limits[left]
        if same:  # no row is its own neighbour
            found &= lefts[left] != rights[right]
        show(side, lefts[left][found], rights[right][found], totals[found])

    joiner.visit(joiner.build(x, layout), joiner.build(y, layout), layout, visitor, same=False)


def _layout(meeting: Meeting, threshold: float, x: Array, y: Array) -> Layout:
    every, given = merge_moments([moments(x), moments(y)]), meeting.layout
    return meeting.joiner.layout(
        given.method, every.lower, every.upper, every.mean, every.variance, threshold, given.norm
    )


def by_position(chunk: Chunk, values: Array, xp: ArrayModule) -> Array:
    """Put values that are in the order of the index into the order of the rows."""
    out = xp.empty_like(values)
    out[chunk["order"][: len(values)]] = values
    return out
