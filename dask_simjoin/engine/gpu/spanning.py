"""Minimum spanning trees on the GPU: of the points of one index, or those edges of two that join both.

The same trees as the CPU's, edge by edge: see there for the order of edges, and for which components search
in a round.

What is best known beside: Prokopenko, Sao & Lebrun-Grandie (2023), "A single-tree algorithm to compute the
Euclidean minimum spanning tree on GPUs", which is the same on a tree of single points; and Nolet et al.
(2023), "cuSLINK", which joins the components of a graph of neighbours, and is exact only where that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cupy
import numpy as np

from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.gpu import boruvka, dendrogram
from dask_simjoin.engine.gpu.arrays import full, take
from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.engine.gpu.rounds import Nearest, Rounds, program, search_some
from dask_simjoin.engine.index.gpu_nearest import NearestDeviceLayout
from dask_simjoin.engine.spanner import Edges, Found, Part, Progress
from dask_simjoin.metrics.types import Array, Index


def in_order(names: Array, weight: Array, start: Array, end: Array) -> Edges:
    """Name ends of edges, the smaller one first, and give all on the host in order, the lightest first."""
    low, high, both = boruvka.name_ends(names, start, end)
    order = cupy.argsort(both)
    order = take(order, cupy.argsort(take(weight, order), kind="stable"))
    return to_host(take(weight, order)), to_host(take(low, order)), to_host(take(high, order))


def join_some() -> None:
    """Join a few components, which takes all that is done to join many."""
    node = cupy.asarray(np.arange(4, dtype=np.int32))
    edge = boruvka.ITSELF, cupy.asarray(np.arange(4, dtype=np.int32)[::-1].copy()), full(4, 1.0)
    sizes, bounds = full(4, 1.0), full(4, boruvka.UNKNOWN, cupy.uint64)
    boruvka.offer_edges(node, [edge], bounds)
    ends = boruvka.least_edges(node, node, [edge], bounds)
    taken, _, _ = boruvka.join_components(node, boruvka.who_asks(sizes, 4), *ends, sizes)
    in_order(node, take(bounds.view(cupy.float64), taken), *(take(some, taken) for some in ends))


class GpuSpanner:
    """See `Spanner`."""

    @staticmethod
    def prepare(layout: NearestDeviceLayout, *more: Callable[[], object]) -> None:
        """Begin to compile what follows searches: see `Spanner`."""
        load.begin(program("search_others", layout))
        load.rehearse(*more, dendrogram.condense_some, search_some, join_some)

    @staticmethod
    def tree_of(index: Index, layout: NearestDeviceLayout, core: Array, nearest: Nearest,
                progress: Progress | None = None) -> Edges:  # fmt: skip
        """Find the tree of the points of an index; `core`: of its places."""
        rounds = Rounds([index], layout, [core], nearest, progress)
        found, names = rounds.run(), rounds.names
        del rounds  # what it took is free for what follows
        return in_order(names, *found)

    @staticmethod
    def begin(index: Index, layout: NearestDeviceLayout, core: Array, nearest: Nearest,
              parts: int) -> Progress:  # fmt: skip
        """Tell what is known before the first round that is shared: see `Spanner`."""
        return Rounds([index], layout, [core], nearest).go_on(parts)

    @staticmethod
    def share(index: Index, layout: NearestDeviceLayout, core: Array, nearest: Nearest,
              progress: Progress, part: Part) -> Found:  # fmt: skip
        """Do one part of a round's searches: see `Spanner`."""
        return Rounds([index], layout, [core], nearest, progress).share(part)

    @staticmethod
    def join(index: Index, layout: NearestDeviceLayout, core: Array, nearest: Nearest,
             progress: Progress, parts: Sequence[Found]) -> Progress:  # fmt: skip
        """Finish a round, all parts of which are done: see `Spanner`."""
        rounds = Rounds([index], layout, [core], nearest, progress)
        rounds.join(parts)
        return rounds.go_on(len(parts))

    @staticmethod
    def edges_between(sides: Sequence[Index], layout: NearestDeviceLayout, cores: Sequence[Array],
                      trees: Sequence[Edges]) -> Edges:  # fmt: skip
        """Find the edges between two indexes that are in the tree of both; `trees`: of each of them."""
        rounds = Rounds(sides, layout, cores)
        across = rounds.sides[1].first
        nodes = cupy.argsort(rounds.names).astype(cupy.int32)
        names = rounds.names[nodes]
        weight, *ends = (cupy.asarray(np.concatenate(column)) for column in zip(*trees, strict=True))
        found = rounds.run((weight, *(nodes[cupy.searchsorted(names, some)] for some in ends)))
        between = (found[1] < across) != (found[2] < across)
        return in_order(rounds.names, *(column[between] for column in found))

    @staticmethod
    def merge(rows: int, *parts: Edges) -> Edges:
        """Find the forest of the edges of several forests: see `Spanner`; by Boruvka's rounds."""
        if len(parts) == 1:
            return parts[0]
        weight, low, high = (cupy.asarray(np.concatenate(column)) for column in zip(*parts, strict=True))
        names = component = cupy.arange(rows, dtype=cupy.int32)
        sizes, found = cupy.ones(rows), [(weight[:0], low[:0], high[:0])]
        while True:
            apart = component[low] != component[high]
            weight, low, high = weight[apart], low[apart], high[apart]
            if not len(low):
                return in_order(names, *(cupy.concatenate(column) for column in zip(*found, strict=True)))
            bounds = cupy.full(len(sizes), boruvka.UNKNOWN, cupy.uint64)
            edges: list[boruvka.ListedEdges] = [(low, high, weight), (high, low, weight)]
            boruvka.offer_edges(component, edges, bounds)
            starts, ends = boruvka.least_edges(component, names, edges, bounds)
            asked = cupy.ones(len(sizes), cupy.bool_)
            taken, component, sizes = boruvka.join_components(component, asked, starts, ends, sizes)
            found.append((bounds.view(cupy.float64)[taken], starts[taken], ends[taken]))

    condense = staticmethod(dendrogram.condense)


SPANNER = GpuSpanner()
