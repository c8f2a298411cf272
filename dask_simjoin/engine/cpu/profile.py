"""Count the work of a method on the CPU, and pairs within several limits over one index.

If rows have many neighbors, tiles often decide at once that 64 points are all near.  In that case, one pass
for each limit takes less time than finding each pair once and comparing it with all limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dask_simjoin.catalog import HOME
from dask_simjoin.engine.base import Counters, Numbers, compared_ratio, method_module
from dask_simjoin.engine.cpu.kernels import totals as finish
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.sinks import CpuMethod, Shown, Sink
from dask_simjoin.engine.index.cpu_tiles import TILE, TilesLayout
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.metrics.norms import Index

WARM = 100
"""Points of an untimed first join, which compiles or loads the kernels."""


class CpuProfiler:
    """See `Profiler`."""

    def profile(self, x: np.ndarray, layout: Layout) -> Counters:
        module: CpuMethod = method_module(layout.method, HOME)
        if not len(x):
            return Counters({"pairs": 0.0}, {})
        self._run(module, x[:WARM], layout)
        numbers, seconds, index = self._run(module, x, layout)
        numbers |= module.layout_stats(index, layout)
        return Counters(numbers | compared_ratio(numbers, len(x)), seconds)

    def _run(self, module: CpuMethod, x: np.ndarray,
             layout: Layout) -> tuple[Numbers, dict[str, float], Index]:  # fmt: skip
        """Join once; return counters, seconds, and the index."""
        found = np.zeros(1, np.int64)

        def add(left: np.ndarray, right: np.ndarray) -> None:
            found[0] += len(left)

        begin = time.perf_counter()
        index = module.build(x, layout)
        built = time.perf_counter()
        names = [np.arange(len(index["order"]), dtype=np.int32)] * 2
        decided, refused = module.pairs(index, index, layout, True, names, Shown(add), False)
        seconds = {"index": built - begin, "join": time.perf_counter() - built}
        numbers: Numbers = {"decided": decided, "refused": refused, "pairs": int(found[0])}
        numbers["selectivity"] = 2 * numbers["pairs"] / len(x)
        return numbers, seconds, index


PROFILER = CpuProfiler()


SAMPLED = 8
"""Number of sampled tiles.  The neighbors of their points show how many neighbors a row has."""

MANY = 24
"""From this number of neighbors per row and limit on, one pass per limit is faster (4 to 16 dimensions)."""

QUANTIZED = ("queries", "tiles", "take", "first", "marked")
"""Arrays of an index for the 8-bit filter, which hold for one threshold only."""


class PairCount(Protocol):
    """The type of `CpuMethod.counts` for tiles."""

    def __call__(self, q: Index, d: Index, layout: TilesLayout, is_self_join: bool, q_counts: np.ndarray,
                 d_counts: np.ndarray) -> None: ...  # fmt: skip


@dataclass(frozen=True)
class CpuWork:
    """The functions of the tile method that are used here."""

    part: Callable[[Index, int, int], Index]
    counts: PairCount
    pairs: Callable[[Index, Index, TilesLayout, bool, list[np.ndarray], Sink, bool], object]


def worthwhile(engine: CpuWork, q: Index, d: Index, layout: TilesLayout, limits: np.ndarray) -> bool:
    """Return whether one pass for each limit takes less time than finding each pair."""
    if not len(q["z"]) or not len(d["z"]):
        return False
    rows = pairs = 0
    for tile in np.unique(np.linspace(0, len(q["z"]) - 1, SAMPLED).astype(np.int64)).tolist():
        some = engine.part(q, tile * TILE, min((tile + 1) * TILE, len(q["y"])))
        found = np.zeros(len(some["y"]), np.int64)
        engine.counts(some, d, layout, False, found, np.zeros(len(d["y"]), np.int64))
        rows, pairs = rows + len(found), pairs + int(found.sum())
    return pairs > MANY * len(limits) * rows


def tally(engine: CpuWork, q: Index, d: Index, layout: TilesLayout, limits: np.ndarray, is_self_join: bool,
          by_row: bool, q_found: np.ndarray, d_found: np.ndarray) -> None:  # fmt: skip
    """See `Tallying.tally`."""
    passes = [layout.narrowed(limit) for limit in limits.tolist()]
    norms = _norms(q) if layout.filter is not None else np.empty(0)
    few = sum(each is None for each in passes)  # limits that are too small for a filter
    for k, each in enumerate(passes):
        if each is None:
            continue
        one = _narrowed(q, each, norms)
        other = one if is_self_join else d
        if k == few and few:
            _tally_few(engine, one, other, each, limits[: few + 1], is_self_join, by_row, q_found, d_found)
        counts = np.zeros(len(q["y"]), np.int64)
        others = counts if is_self_join and by_row else np.zeros(len(d["y"]), np.int64)
        engine.counts(one, other, each, is_self_join, counts, others)
        if by_row:
            q_found[:, k] += counts
            if not is_self_join:
                d_found[:, k] += others
        else:
            q_found[0, k] += counts.sum()


def _tally_few(engine: CpuWork, q: Index, d: Index, layout: TilesLayout, limits: np.ndarray,
               is_self_join: bool, by_row: bool, q_found: np.ndarray,
               d_found: np.ndarray) -> None:  # fmt: skip
    """Count pairs within the smallest limits, which no filter serves, by finding each pair."""
    few = len(limits) - 1
    some = [np.zeros((len(found), len(limits)), np.int64) for found in (q_found, d_found)[: 2 - is_self_join]]

    def add(left: np.ndarray, right: np.ndarray) -> None:
        totals = np.empty(len(left))
        finish.measure(q["y"], d["y"], left, right, kind_of(layout.norm), totals)
        finish.tally(left, right, totals, limits, by_row, some[0], some[-1])

    places = [np.arange(len(side["order"]), dtype=np.int32) for side in (q, d)]
    engine.pairs(q, d, layout, is_self_join, places, Shown(add), False)
    for found, numbers in zip((q_found, d_found), some, strict=False):
        found[:, :few] += np.cumsum(numbers, axis=1)[:, :few]


def _norms(index: Index) -> np.ndarray:
    """Return the squared norms of the filtered points, by place."""
    z = index["z"]
    norms = np.zeros((len(z), TILE))
    for k in range(z.shape[1]):
        own = z[:, k].astype(np.float64)
        norms += own * own
    return norms.ravel()[: len(index["y"])]


def _narrowed(index: Index, layout: TilesLayout, norms: np.ndarray) -> Index:
    """Give an index the limits of a narrowed layout, as `kernels.pack.pack_filter` has them.

    The sums that make a pair sure stay as they are: they are larger than necessary, which is safe.
    """
    if layout.filter is None:
        return index
    f = layout.filter
    found = {name: values for name, values in index.items() if name not in QUANTIZED}
    found["limit"] = -_above(-0.5 * (norms * (1 - f.kappa) - f.eps2))
    return found


def _above(values: np.ndarray) -> np.ndarray:
    """Round up to float32; the results are larger by less than 2**-22 * abs(values) + 2**-147."""
    return (values + np.abs(values) * 2.0**-23 + 2.0**-148).astype(np.float32)
