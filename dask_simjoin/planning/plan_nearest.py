"""The plan of a search for nearest neighbours: in which chunks the neighbours of each chunk's rows may be."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from dask.tokenize import normalize_token

from dask_simjoin.engine.base import searcher_of_library
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.norms import Norm, add, box_gap
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.checks import check_blocks
from dask_simjoin.planning.chunking.entity import EntityChunks, serpentine
from dask_simjoin.planning.chunking.regions import Chunking
from dask_simjoin.planning.doubts import doubts_of_data
from dask_simjoin.planning.plan import Plan, make_plan
from dask_simjoin.planning.plan_two import TwoPlan, make_two_plan, summarise_two
from dask_simjoin.planning.statistics.partition import PartitionSummary
from dask_simjoin.planning.statistics.sample_pairs import SamplePoints
from dask_simjoin.planning.table import moments_of, summarise_table

GUESSED = 1024
"""Points of the sample whose neighbours are looked at for a first guess of distances."""

MAX_WORK = 1 << 27
"""Distances of points of the sample to boxes that are computed at most."""

FEWEST = 1024
"""Points of the sample that are used for that at least."""


@dataclass(frozen=True, eq=False, repr=False)
class NearestPlan(Plan):
    """See `Plan`; there is no `eps`, and `blocks` are the chunks that meet, in one direction at least.

    Attributes
    ----------
    searches : tuple of array, int64
        For each chunk those in which neighbours of its rows may be: itself first, then the nearest first.
    """

    searches: tuple[np.ndarray, ...]

    def __dask_tokenize__(self) -> Any:
        return (super().__dask_tokenize__(), normalize_token(self.searches))


@dataclass(frozen=True, eq=False, repr=False)
class TwoNearestPlan(TwoPlan):
    """The same of two tables: `searches` are of the left chunks."""

    searches: tuple[np.ndarray, ...]

    def __dask_tokenize__(self) -> Any:
        return (super().__dask_tokenize__(), normalize_token(self.searches))


def known_bytes(neighbors: int) -> int:
    """Bytes that a search finds out of each row: what is known before and after a task."""
    return 40 + 32 * neighbors


def rows_found(plan: Plan, neighbors: int) -> int:
    """The most rows of a join with so many neighbours; as many, where no distance is too large."""
    queries, data = plan.rows, plan.rows - 1
    if isinstance(plan, TwoPlan):
        queries, data = plan.left_rows, plan.rows - plan.left_rows
    return queries * min(neighbors, max(data, 0))


def make_nearest_plan(summaries: list[PartitionSummary], spec: JoinSpec, neighbors: int,
                      resources: Resources | None = None, method: str = "tasks", room: bool = False,
                      others: list[PartitionSummary] | None = None,
                      bound: float = math.inf) -> Any:  # fmt: skip
    """Plan the search for so many neighbours of each row; other parameters as of `make_plan`.

    `room`: whether chunks leave room for what is found.  `others`: of the right table's partitions, if
    neighbours are rows of that.  `bound`: largest total of one.
    """
    if others is None:
        side = data = summarise_table(summaries, spec)
    else:
        side, data = summarise_two(summaries, others, spec)
    neighbors = min(neighbors, max(1, data.every.rows - (others is None)))  # no row has more
    known = known_bytes(neighbors) if room else 0
    guessed = replace(spec, eps=_guess(data.points, neighbors, spec.measure))
    plan: Plan
    if others is None:
        plan = make_plan(summaries, guessed, resources, method, counting=True, known=known)
        queries, chunks, first = plan.chunks, plan.chunks, 0
    else:
        guessed = replace(guessed, other=replace(spec.other, eps=guessed.eps))  # type: ignore[type-var]
        plan = make_two_plan(summaries, others, guessed, resources, method, counting=True, known=known)
        queries, chunks, first = plan.chunks.left, plan.chunks.right, len(plan.chunks.left)
    searches = _searches(queries, chunks, data.points, spec, neighbors, first, bound)
    check_blocks(sum(map(len, searches)), len(plan.chunks), plan.budget)
    moments = moments_of([side] if others is None else [side, data])
    layout = searcher_of_library(spec.library).layout(*moments, data.points.x, spec.norm)
    pairs = np.array([(min(i, j), max(i, j)) for i, found in enumerate(searches) for j in found.tolist()])
    blocks = serpentine(np.unique(pairs.reshape(-1, 2), axis=0)).astype(np.int32)
    known_of = {f.name: getattr(plan, f.name) for f in fields(plan)}
    known_of |= {"layout": layout, "blocks": blocks, "slices": np.ones(len(blocks), np.int64)}
    known_of["doubts"] = doubts_of_data(*([side] if others is None else [side, data]))
    kind = NearestPlan if others is None else TwoNearestPlan
    return kind(**known_of, searches=searches)


def _guess(points: SamplePoints, neighbors: int, metric: Metric) -> float:
    """About how far the neighbours of a row are; only how rows are cut into regions goes by it."""
    m = len(points.x)
    if m < 2:
        return 0.0
    random = np.random.default_rng(m)
    some = points.x[random.choice(m, min(m, GUESSED), replace=False)]
    share = len(some) / max(1, points.rows)
    place = min(len(some) - 1, max(1, math.ceil(neighbors * share)))
    far = np.empty(len(some))
    with np.errstate(over="ignore"):
        for n, x in enumerate(some):
            total = np.zeros(len(some))
            for k in range(some.shape[1]):
                total = add(total, np.abs(some[:, k] - x[k]), metric.norm)
            far[n] = np.partition(total, place)[place]
        typical = float(np.median(metric.distance(far, np)))
    return typical if math.isfinite(typical) else 0.0


def _searches(queries: Chunking, data: Chunking, points: SamplePoints, spec: JoinSpec, neighbors: int,
              first: int, bound: float) -> tuple[np.ndarray, ...]:  # fmt: skip
    """For each chunk of queries those of the data that may hold neighbours of its rows, the nearest first.

    `first`: the number of the data's first chunk; 0: they are the queries' chunks.  `bound`: largest total.
    """
    lower, upper, filled = _boxes(queries)
    others = _boxes(data)
    found: list[np.ndarray] = [np.zeros(0, np.int64)] * len(queries)
    limits = np.minimum(_limits(points.x, lower, upper, neighbors, spec.norm), bound)
    for at, (c, limit) in enumerate(zip(filled.tolist(), limits, strict=True)):
        away = box_gap(spec.norm, lower[at], upper[at], others[0], others[1])
        if not first:
            away[at] = -1.0
        near = np.flatnonzero(~(away > limit))  # so also where gaps are no numbers
        found[c] = others[2][near[np.argsort(away[near], kind="stable")]] + first
    return tuple(found)


def _boxes(chunks: Chunking) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes of the chunks that may have points, and which chunks those are."""
    if isinstance(chunks, EntityChunks):
        filled = np.flatnonzero(chunks.rows)
        return chunks.lower[filled], chunks.upper[filled], filled
    assert not hasattr(chunks, "halo")  # each row is in one chunk
    region = np.repeat(np.arange(len(chunks.own)), chunks.own)
    return chunks.regions.lower[region], chunks.regions.upper[region], np.arange(len(chunks))


def _limits(x: np.ndarray, lower: np.ndarray, upper: np.ndarray, neighbors: int,
            norm: Norm = 2) -> np.ndarray:  # fmt: skip
    """For each box the largest total that a point in it can have with one of its neighbours.

    Points of the sample are rows: so many, and one more as one may be the point itself, within that total
    of the whole box are as many neighbours, or nearer ones.  Totals with the box's far ends are computed
    with the operations of all totals in their order, and rounding is monotone: no point in the box has
    a larger one as computed.
    """
    limits = np.full(len(lower), np.inf)
    if len(x) <= neighbors:
        return limits
    most = max(FEWEST, neighbors + 1, MAX_WORK // max(1, lower.size))
    if len(x) > most:
        x = x[np.sort(np.random.default_rng(len(x)).choice(len(x), most, replace=False))]
    with np.errstate(over="ignore", invalid="ignore"):
        for c in range(len(lower)):
            total = np.zeros(len(x))
            for k in range(x.shape[1]):
                far = np.maximum(np.abs(x[:, k] - lower[c, k]), np.abs(upper[c, k] - x[:, k]))
                total = add(total, far, norm)
            limits[c] = np.partition(total, neighbors)[neighbors]
    return limits
