"""Minimum spanning trees on the CPU: of the points of one index, or those edges of two that join both.

The weight of an edge is the largest of the total of its rows and their core distances; edges are ordered by
(weight, smaller name, larger name), so that there is one tree.  It is found by Boruvka's rounds (1926, "O
jistem problemu minimalnim"): each component finds the least edge that leaves it, and all are joined along
those.  A component need not find it in every round: the largest ones, which have most rows to ask, wait
until there are few others, and so rows mostly search while their component is small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dask_simjoin.engine.cpu import between
from dask_simjoin.engine.cpu.kernels import hierarchy, optics
from dask_simjoin.engine.cpu.kernels import trees as forests
from dask_simjoin.engine.cpu.rounds import Nearest, Rounds
from dask_simjoin.engine.index.cpu_nearest import NearestLayout
from dask_simjoin.engine.spanner import Clusters, Edges, Found, Part, Progress
from dask_simjoin.metrics.types import Index


def in_order(names: np.ndarray, found: list[tuple[np.ndarray, ...]], core: np.ndarray) -> Edges:
    """Name the ends of edges, the smaller one first, and put them in order, the lightest first.

    `found`: weights and both nodes, in parts, without weights where these are the larger core distances of
    nodes; it is emptied.  What is not needed any more is let go of.
    """
    if not found:
        return np.empty(0), np.empty(0, np.int32), np.empty(0, np.int32)
    low, high = (np.concatenate([part[column] for part in found]) for column in (1, 2))
    weight = np.empty(len(low))
    number = 0
    for own, start, end in found:
        some = weight[number : number + len(start)]
        if len(own) == len(start):
            some[:] = own
        else:
            np.maximum(core[start], core[end], out=some)
        number += len(start)
    found.clear()
    low, high = names[low], names[high]
    low, high = np.minimum(low, high), np.maximum(low, high, out=high)
    key = low.astype(np.int64)
    key <<= 32
    key |= high
    order = np.argsort(weight)
    optics.sort_ties(order, weight, key)
    del key
    weight = weight[order]
    low = low[order]
    return weight, low, high[order]


class CpuSpanner:
    """See `Spanner`."""

    @staticmethod
    def prepare(layout: NearestLayout, *more: Callable[[], object]) -> None:
        """Leave it: Numba compiles one thing at a time."""

    @staticmethod
    def tree_of(index: Index, layout: NearestLayout, core: np.ndarray, nearest: Nearest,
                progress: Progress | None = None) -> Edges:  # fmt: skip
        """Find the tree of the points of an index; `core`: of its places."""
        rounds = Rounds([index], layout, [core], nearest, progress)
        del index, core, nearest, progress  # what nobody else holds is let go of once it is not needed
        found, names, core = rounds.run(), rounds.names, rounds.core
        del rounds
        return in_order(names, found, core)

    @staticmethod
    def begin(index: Index, layout: NearestLayout, core: np.ndarray, nearest: Nearest,
              parts: int) -> Progress:  # fmt: skip
        """Tell what is known before the first round that is shared: see `Spanner`."""
        return Rounds([index], layout, [core], nearest).go_on(parts)

    @staticmethod
    def share(index: Index, layout: NearestLayout, core: np.ndarray, nearest: Nearest,
              progress: Progress, part: Part) -> Found:  # fmt: skip
        """Do one part of a round's searches: see `Spanner`."""
        rounds = Rounds([index], layout, [core], nearest, progress, looks=True)
        return rounds.share(progress["offered"], part)

    @staticmethod
    def join(index: Index, layout: NearestLayout, core: np.ndarray, nearest: Nearest,
             progress: Progress, parts: Sequence[Found]) -> Progress:  # fmt: skip
        """Finish a round, all parts of which are done: see `Spanner`."""
        rounds = Rounds([index], layout, [core], nearest, progress)
        rounds.join(progress["offered"], parts)
        return rounds.go_on(len(parts))

    @staticmethod
    def edges_between(sides: Sequence[Index], layout: NearestLayout, cores: Sequence[np.ndarray],
                      trees: Sequence[Edges]) -> Edges:  # fmt: skip
        """Find the edges between two indexes that are in the tree of both; `trees`: of each of them."""
        rounds = Rounds(sides, layout, cores)
        across = rounds.sides[1].first
        first = [(index, side.first) for index, side in zip(sides, rounds.sides, strict=True)]
        least, sizes, rounds.components, known = between.contracted(
            first, rounds.component, rounds.core, trees, layout.norm
        )
        rounds.least, rounds.to = least, np.full(len(least), -1, np.int32)
        rounds.sizes = sizes[: rounds.components]
        found: list[tuple[np.ndarray, ...]] = []
        for weight, start, end in rounds.run(known):
            kept = (start < across) != (end < across)
            found.append((weight[kept], start[kept], end[kept]))
        return in_order(rounds.names, found, rounds.core)

    @staticmethod
    def merge(rows: int, *parts: Edges) -> Edges:
        """Find the forest of the edges of several forests; see `Spanner`."""
        forest = parts[0]
        for part in parts[1:]:
            most = min(len(forest[0]) + len(part[0]), max(0, rows - 1))
            merged = np.empty(most), np.empty(most, np.int32), np.empty(most, np.int32)
            number = forests.merge(*forest, *part, np.zeros(rows, np.int32), *merged)
            forest = merged[0][:number], merged[1][:number], merged[2][:number]
        return forest

    @staticmethod
    def condense(start: np.ndarray, end: np.ndarray, away: np.ndarray, least: int) -> Clusters:
        """Find the clusters of at least `least` rows of a tree; see `Spanner`."""
        n = len(start) + 1
        left, right = np.array(start, np.int32), np.array(end, np.int32)
        size, *room = np.empty(n - 1, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
        hierarchy.merge_rows(left, right, *room, size)
        most = 2 * (n // least) + 1
        parent, birth, rows = np.empty(most, np.int32), np.empty(most), np.empty(most, np.int32)
        row_parent, row_lambda = np.zeros(n, np.int32), np.zeros(n)
        # owners of merges take the place of what merging needed
        number = hierarchy.condense(
            left, right, size, away, least, room[0][:-1], room[1], row_parent, row_lambda, parent, birth, rows
        )
        return row_parent, row_lambda, parent[:number].copy(), birth[:number].copy(), rows[:number].copy()


SPANNER = CpuSpanner()
