"""Choose which chunks a nearest-neighbor search or a spanning tree compares.

Bounds for a spanning tree come from paths over hubs. Each box has a hub: the sample row
with the smallest distance to the farthest corner of the box. The edge between the hub
and a row of the box has a bounded weight. It is at most the maximum of this distance
and both core distances. So paths over hubs connect all rows, and the weights of their
edges are bounded. A tree edge is at most as heavy as the heaviest edge of any other
path between its ends. So if the gap between two boxes exceeds the heaviest edge of the
path between them, no tree edge joins them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.norms import Norm, add, box_gap
from dask_simjoin.planning.budget import Cause
from dask_simjoin.planning.checks import check_blocks, check_outputs
from dask_simjoin.planning.chunk_limits import SHARED_DIMS
from dask_simjoin.planning.costs import Costs
from dask_simjoin.planning.entity_chunks import JoinChunks, serpentine
from dask_simjoin.planning.limits import NEED, Limits
from dask_simjoin.planning.near_boxes import near_boxes
from dask_simjoin.planning.outputs import OutputSpec, rows_found, whole_slices
from dask_simjoin.planning.resources import INDEXED
from dask_simjoin.planning.sample import FEW_ROWS
from dask_simjoin.planning.sample_pairs import SamplePoints
from dask_simjoin.planning.tables import JoinStatistics
from dask_simjoin.planning.work import ALONE, NO_PAIRS, SearchWork, Sharing
from dask_simjoin.sizes import FEW, MIN_PART, MOMENT, NUMBER_BYTES, PROBED, SAMPLED

GUESSED, ASKED = 1024, 256
"""To guess distances to neighbors, the neighbors of ASKED points among GUESSED points
are searched.
"""

MAX_WORK = 1 << 27
"""Maximum of (number of sample points) * (number of coordinates of all boxes).

It limits the time to compute distances from sample points to boxes.
"""

NEAR_SHARE = 0.55
"""If boxes are halved, each half keeps this fraction of the sample points."""


def neighbor_query(
    statistics: JoinStatistics, output: OutputSpec, is_guessed: bool = True
) -> tuple[JoinStatistics, OutputSpec]:
    """Return the statistics with a guessed distance to neighbors as `eps`, and the
    output with a valid k. `is_guessed`: whether the distance matters; else it is 0.

    A row cannot have more neighbors than there are other rows, so k is reduced to that
    number.
    """
    assert output.k is not None
    # neighbors that a row can have
    most = statistics.right.rows - (len(statistics.each) == 1)
    k = min(output.k, max(1, most))
    points, measure = statistics.right.points, statistics.spec.measure
    guess = _guess(points, k, measure) if is_guessed else 0.0
    found = output.found_bytes(k)
    return statistics.with_eps(guess), replace(
        output, k=k, result_bytes_per_row=found, others_per_row=0
    )


def _guess(points: SamplePoints, neighbors: int, metric: Metric) -> float:
    """Guess the distance from a row to its farthest neighbor.

    The guess affects only the choice of regions.
    """
    m = len(points.x)
    if m < 2:
        return 0.0
    random = np.random.default_rng(m)
    some = points.x[random.choice(m, min(m, GUESSED), replace=False)]
    nearest = neighbors * len(some) / max(1, points.rows)
    place = min(len(some) - 1, max(1, math.ceil(nearest)))
    asked = ASKED if points.rows > FEW_ROWS else PROBED
    columns, far = np.ascontiguousarray(some.T), np.empty(min(asked, len(some)))
    with np.errstate(over="ignore"):
        for start in range(0, len(far), PROBED):
            rows = slice(start, start + PROBED)
            total = np.zeros((len(far[rows]), len(some)))
            for column in columns:
                total = add(total, np.abs(column - column[rows, None]), metric.norm)
            far[rows] = np.partition(total, place, axis=1)[:, place]
        far.sort()
        typical = float(metric.distance(far[len(far) // 2 :][:1], np)[0])
    # the nearest of few points is farther than the neighbors among all rows
    typical *= min(1.0, nearest / place) ** (1 / max(1, points.x.shape[1]))
    return typical if math.isfinite(typical) else 0.0


def make_searches(
    statistics: JoinStatistics,
    output: OutputSpec,
    chunks: JoinChunks,
    costs: Costs,
    limits: Limits,
    row_bytes: float,
    is_divisible: bool,
) -> SearchWork:
    """Plan searches for nearest neighbors. Refuse too many of them.

    `row_bytes`: memory of one row of a chunk. `is_divisible`: whether a search may be
    divided into parts.
    """
    searches = find_searches(statistics, output, chunks)
    check_blocks(sum(map(len, searches)), chunks.rows, row_bytes, limits)
    joined = NO_PAIRS
    if output.spanning:
        joined = find_joined(statistics, output.k or 1, chunks)
        check_blocks(len(joined), chunks.rows, row_bytes, limits)
    rows = chunks.rows[: len(searches)]
    met = np.array([float(chunks.rows[found].sum()) for found in searches])
    seconds = costs.searches(rows, met)
    copies, sharing = 1, ALONE
    if output.spanning:
        sharing = find_sharing(statistics, chunks, seconds, costs, limits)
        if sharing[1] > 1:
            copies = costs.copies(chunks, limits.workers)
    elif is_divisible and seconds.sum() >= MOMENT:
        copies = costs.copies(chunks, limits.workers)
    if limits.gpu:  # one piece per GPU, because a search keeps a GPU busy
        parts = np.full(len(searches), 1 if output.spanning else copies)
    else:
        parts = costs.pieces(seconds, rows, None)
    # without a search there are no parts
    parts, slices = np.where(met > 0, parts, 1), np.ones_like(parts)
    if output.with_ids and is_divisible:
        most = rows * float(rows_found(statistics.rows, output.k or 1))
        most /= max(1, statistics.rows[0])
        least = whole_slices(most, statistics.pair_bytes + NUMBER_BYTES, limits)
        least = np.ceil(least / copies).astype(np.int64) * copies
        # a small result is one partition, in the order of the rows; else each part
        # makes a partition
        divided = (least > 1) & (met > 0)
        parts = np.where(divided, np.maximum(parts, least), parts)
        slices = np.where(divided, parts, 1)
        check_outputs(float(slices.sum()), limits, Cause(f"k={output.k}"))
    return SearchWork(
        compared_chunks(searches),
        parts,
        slices,
        seconds,
        copies,
        searches=searches,
        joined=joined,
        sharing=sharing,
        at_once=copies == 1 and _is_at_once(statistics, output, searches, limits),
        together=_searched_together(statistics, output, chunks, limits, searches, met),
    )


def _searched_together(
    statistics: JoinStatistics,
    output: OutputSpec,
    chunks: JoinChunks,
    limits: Limits,
    searches: tuple[np.ndarray, ...],
    met: np.ndarray,
) -> np.ndarray:
    """For each chunk of queries, return the number of searched chunks that fit in the
    memory of a task (n,), int64.

    One task searches this number, so there are few tasks even if many chunks are near.
    `met`: for each chunk of queries, the rows of all chunks that are searched.
    """
    rows = chunks.rows[: len(searches)]
    if limits.gpu or chunks.method is None:
        return np.ones(len(rows), np.int64)
    points = statistics.row_bytes(output.without_results(), shuffled=True)
    results = statistics.row_bytes(output, shuffled=True) - points
    # a search copies the results of the search before
    spare = NEED * limits.chunk - (INDEXED * points + 2 * results) * rows
    found = spare / (INDEXED * points * float(chunks.rows.max(initial=1)))
    every = np.array([len(some) for some in searches])
    fitting = np.where(INDEXED * points * met <= spare, every, np.minimum(found, every))
    return fitting.clip(1).astype(np.int64)


def _is_at_once(
    statistics: JoinStatistics,
    output: OutputSpec,
    searches: tuple[np.ndarray, ...],
    limits: Limits,
) -> bool:
    """Return whether one task makes all rows of the result: threads of this process
    search a single chunk, and the rows fit in memory.
    """
    on_threads = limits.shared is not None and not (limits.cluster or limits.gpu)
    single = len(searches) == 1 and len(searches[0]) == 1
    rows = rows_found(statistics.rows, output.k or 1)
    size = rows * (NUMBER_BYTES + statistics.pair_bytes)
    wanted = output.with_ids and not output.ties
    return on_threads and single and wanted and size <= limits.whole


def compared_chunks(searches: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the pairs of chunks of searches, each pair once (n, 2), int32."""
    pairs = {
        (min(i, j), max(i, j))
        for i, found in enumerate(searches)
        for j in found.tolist()
    }
    return serpentine(np.array(sorted(pairs), np.int64).reshape(-1, 2)).astype(np.int32)


def find_searches(
    statistics: JoinStatistics, output: OutputSpec, chunks: JoinChunks
) -> tuple[np.ndarray, ...]:
    """For each chunk of queries, return the data chunks that may have their neighbors,
    nearest first.
    """
    assert output.k is not None
    queries, first, norm = chunks.sides[0], chunks.first_data, statistics.spec.norm
    lower, upper, filled = queries.boxes()
    others = chunks.sides[-1].boxes()
    found: list[np.ndarray] = [np.zeros(0, np.int64)] * len(queries)
    # a single chunk must be searched, so no bounds are needed
    if not first and len(filled) == 1:
        found[filled[0]] = filled.astype(np.int64)
        return tuple(found)
    furthest = _furthest(statistics, output, lower, upper)
    near = near_boxes(norm, (lower, upper), others[:2], furthest)
    for at, (c, (numbers, away)) in enumerate(zip(filled.tolist(), near, strict=True)):
        if not first:
            away[numbers == at] = -1.0
        found[c] = others[2][numbers[np.argsort(away, kind="stable")]] + first
    return tuple(found)


def _furthest(
    statistics: JoinStatistics, output: OutputSpec, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """For each box, return an upper bound of the totals from a point in it to its
    neighbors.
    """
    spec, x, least = statistics.spec, statistics.right.points.x, output.min_total
    assert output.k is not None
    if spec.gated:  # the nearest rows in the sample may not be allowed
        return np.full(len(lower), spec.measure.widened(output.max_total))
    furthest = largest_totals(x, lower, upper, output.k, spec.norm, least)
    if output.ties:
        with np.errstate(over="ignore"):
            furthest = spec.limits_of_ties(furthest, np)
    return np.minimum(furthest, output.max_total)


def largest_totals(
    x: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    neighbors: int,
    norm: Norm = 2,
    least: float = 0.0,
) -> np.ndarray:
    """For each box, return an upper bound of the totals from a point in it to its
    `neighbors` nearest rows.

    If `neighbors` + 1 sample points are within a total of every corner of the box, no
    neighbor is farther. At most one of these points is the point itself. Totals to
    corners are computed like all totals, with the same operations in the same order.
    Rounding is monotone, so no computed total in the box is larger.

    Boxes are cut into quarters, and the largest of their bounds is taken: points that
    are near a quarter are nearer to its corners than to those of the box.

    `least`: the smallest total that a neighbor may have. Only sample points with at
    least this total to the box are used, because these are far enough from every point
    in it.
    """
    if not len(lower) or len(x) <= neighbors:
        return np.full(len(lower), np.inf)
    number = len(lower)
    for _ in range(0 if np.array_equal(lower, upper) else 2):
        lower, upper = _halved(lower, upper)
    limits = np.full(len(lower), np.inf)
    if least > 0:  # the nearest points are too near
        x = used_points(x, lower.size, neighbors + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        for boxes, some in near_points(x, lower, upper, norm, neighbors + 1):
            low, high = lower[boxes][:, None], upper[boxes][:, None]
            far = farthest_totals(some, low, high, norm)
            if least > 0:
                far[~(box_gap(norm, some, some, low, high) >= least)] = np.inf
            limits[boxes] = np.partition(far, neighbors, axis=1)[:, neighbors]
    return limits.reshape(-1, number).max(axis=0)


def _halved(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut boxes at the middle of their longest sides: return all first halves, and then
    all second halves.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        middle = lower / 2 + upper / 2
        longest = np.argmax(upper - lower, axis=1)
    # a half without size and the whole box, if it has no middle
    cut = np.where(np.isfinite(middle), middle, lower)
    at = np.arange(lower.shape[1]) == longest[:, None]
    return (
        np.concatenate([lower, np.where(at, cut, lower)]),
        np.concatenate([np.where(at, cut, upper), upper]),
    )


def near_points(
    x: np.ndarray, lower: np.ndarray, upper: np.ndarray, norm: Norm, needed: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the numbers of some boxes, with at least `needed` sample points: all points,
    or the nearest ones if there are too many. Each box is yielded once.

    Boxes are halved again and again, and each half keeps the points that are nearest to
    it. So the time grows little faster than the number of points and boxes.
    """
    few = max(SAMPLED // FEW, FEW * needed)
    # more points per box give hardly tighter bounds
    enough = max(few, FEW * needed * len(lower), MAX_WORK // max(1, lower.size))
    halves = [(np.arange(len(lower)), x[:: max(1, len(x) // enough)])]
    while halves:
        boxes, points = halves.pop()
        if len(points) <= few or len(boxes) == 1:
            yield boxes, points
            continue
        middle = lower[boxes] / 2 + upper[boxes] / 2
        order = np.argsort(middle[:, np.argmax(np.ptp(middle, axis=0))], kind="stable")
        number = max(few, int(NEAR_SHARE * len(points)))
        for half in np.array_split(boxes[order], 2):
            first, last = lower[half].min(0), upper[half].max(0)
            gap = box_gap(norm, points, points, first, last)
            near = np.sort(np.argpartition(gap, number - 1)[:number])
            halves.append((half, points[near]))


def used_points(x: np.ndarray, numbers: int, min_points: int = 0) -> np.ndarray:
    """Return the sample points, or only some of them if there are too many.

    `numbers`: number of coordinates of all boxes.
    """
    number = max(SAMPLED, min_points, MAX_WORK // max(1, numbers))
    if len(x) <= number:
        return x
    return x[
        np.sort(np.random.default_rng(len(x)).choice(len(x), number, replace=False))
    ]


def farthest_totals(
    x: np.ndarray, lower: np.ndarray, upper: np.ndarray, norm: Norm
) -> np.ndarray:
    """Return the largest total from each point to any point in a box (n,). For several
    boxes, whose corners are (m, 1, d), the totals are (m, n).
    """
    total = np.zeros((*lower.shape[:-2], len(x)))
    for k in range(x.shape[1]):
        low, high = lower[..., k], upper[..., k]
        far = np.maximum(np.abs(x[:, k] - low), np.abs(high - x[:, k]))
        total = add(total, far, norm)
    return total


def find_sharing(
    statistics: JoinStatistics,
    chunks: JoinChunks,
    seconds: np.ndarray,
    costs: Costs,
    limits: Limits,
) -> Sharing:
    """Choose how many threads and workers make the tree.

    `seconds`: expected time of the neighbor searches.
    """
    rows = int(chunks.rows.sum())
    if len(chunks) > 1 or (statistics.dims or 0) < SHARED_DIMS or rows < MIN_PART:
        return ALONE
    if limits.gpu:
        copies = costs.copies(chunks, limits.workers)
        return copies, copies
    if not limits.cluster or limits.for_tree >= limits.threads:
        return ALONE  # one task uses all threads
    if limits.workers > 1 and seconds.sum() < MOMENT:
        return ALONE
    parts = max(1, min(limits.threads, rows // SAMPLED))
    return parts, min(limits.workers, parts)


def find_joined(
    statistics: JoinStatistics, neighbors: int, chunks: JoinChunks
) -> np.ndarray:
    """Find pairs of chunks (n, 2), int32, that may have edges of the tree between them.

    `neighbors`: k; the core distance of a row is the distance to its k-th nearest
    neighbor.
    """
    norm, x = statistics.spec.norm, statistics.right.points.x
    lower, upper, filled = chunks.sides[0].boxes()
    number = len(filled)
    if number < 2:
        return np.zeros((0, 2), np.int32)
    ends = largest_totals(x, lower, upper, neighbors, norm)
    place, heaviest = np.zeros(number, np.int64), np.full(number, np.inf)
    if len(x):
        hubs, far = _hubs(x, lower, upper, norm)
        ends = np.maximum(ends, far)
        place, heaviest = _hub_order(
            hubs, largest_totals(x, hubs, hubs, neighbors, norm), norm
        )
    by_place = np.empty(number, np.int64)
    by_place[place] = np.arange(number)
    found = []
    for c in range(number):
        away = box_gap(norm, lower[c], upper[c], lower, upper)
        bound, at = np.full(number, np.inf), int(place[c])
        if len(x):
            # the heaviest edge on the path between two hubs is the heaviest that Prim's
            # algorithm adds after the first hub, up to the second
            before = np.maximum.accumulate(heaviest[1 : at + 1][::-1])[::-1]
            after = np.maximum.accumulate(heaviest[at + 1 :])
            bound[by_place[:at]], bound[by_place[at + 1 :]] = before, after
        bound = np.maximum(bound, np.maximum(ends, ends[c]))
        # not `<=`, so that NaN gaps count as near
        near = np.flatnonzero(~(away > bound))
        near = near[near > c]
        found.append(np.stack([np.full(len(near), c), near], axis=1))
    pairs = np.sort(filled[np.concatenate(found)], axis=1)
    return serpentine(pairs).astype(np.int32)


def _hubs(
    x: np.ndarray, lower: np.ndarray, upper: np.ndarray, norm: Norm
) -> tuple[np.ndarray, np.ndarray]:
    """Return the hub of each box (n, d), and the largest total from the hub to any
    point in the box (n,).
    """
    chosen, far = np.empty(lower.shape), np.empty(len(lower))
    with np.errstate(over="ignore", invalid="ignore"):
        for boxes, some in near_points(x, lower, upper, norm):
            low, high = lower[boxes][:, None], upper[boxes][:, None]
            total = farthest_totals(some, low, high, norm)
            chosen[boxes] = some[np.argmin(total, axis=1)]
            far[boxes] = total.min(axis=1)
    return chosen, far


def _hub_order(
    hubs: np.ndarray, core: np.ndarray, norm: Norm
) -> tuple[np.ndarray, np.ndarray]:
    """Order hubs by Prim's algorithm.

    Return the position of each hub in this order (n,), and the weight of the edge added
    at each position (n,).
    """
    n = len(hubs)
    place, heaviest = np.zeros(n, np.int64), np.zeros(n)
    weight, left = np.full(n, np.inf), np.ones(n, np.bool_)
    at = 0
    for number in range(n):
        if number:
            rest = np.flatnonzero(left)
            at = int(rest[np.argmin(weight[rest])])
            heaviest[number] = weight[at]
        place[at], left[at] = number, False
        with np.errstate(over="ignore", invalid="ignore"):
            total = farthest_totals(hubs, hubs[at], hubs[at], norm)
            weight = np.fmin(weight, np.maximum(total, np.maximum(core, core[at])))
    return place, heaviest
