"""Minimum spanning trees on a GPU, and their dendrograms; needs CuPy but no cuDF.

Dendrograms follow Sao, Prokopenko & Lebrun-Grandie (2024), "PANDORA: a parallel
dendrogram construction algorithm for single linkage clustering on GPU". The algorithm
contracts the tree again and again. Edges are sorted by weight. If an edge is the first
(lightest) edge of one of its vertices, it merges this single vertex with others. All
such edges are contracted. The other edges form a smaller tree, with at most half as
many edges.

Consider the edges that were contracted into the same new vertex. Those before the first
edge of the new vertex are consecutive in the dendrogram: they form a chain. All others
belong to a chain of a further contraction. The merge after a chain is the first edge of
the chain's vertex. Merges have the same numbers as their edges.

The trees have the same edges as the trees of the CPU. `engine.cpu.spanning` documents
the order of edges, and which components search in a round.

Related work: Prokopenko, Sao & Lebrun-Grandie (2023), "A single-tree algorithm to
compute the Euclidean minimum spanning tree on GPUs". The leaves of their search tree
are single points; ours have eight points, or are tiles. Nolet et al. (2023), "cuSLINK", join the
components of a nearest-neighbor graph, so their tree is exact only if that graph is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.engine.gpu import boruvka, load
from dask_simjoin.engine.gpu.arrays import (
    copied,
    fill,
    full,
    numbers,
    places_of,
    take,
    upto,
)
from dask_simjoin.engine.gpu.rounds import (
    GpuBoruvkaRounds,
    Nearest,
    search_some,
)
from dask_simjoin.engine.gpu.sides import program
from dask_simjoin.engine.index.gpu import NearestDeviceLayout
from dask_simjoin.engine.protocols import (
    Chosen,
    Clusters,
    Edges,
    Found,
    Part,
    Progress,
    RowMeasures,
)
from dask_simjoin.metrics.norms import Array, Index
from dask_simjoin.sizes import RUN


def _run(name: str, items: int, *arguments: Any) -> None:
    if items:
        function = load.kernel("dendrogram", name, DIMS=1, EXACT=True)
        function(*load.shape_of(items), (np.int32(items), *arguments))


def followed(to: Array) -> Array:
    """Return the root of each node (n,). `to` (n,): the parent of each node; a root is
    its own parent.
    """
    while True:
        further, moved = cupy.empty_like(to), cupy.zeros(1, cupy.int32)
        _run("follow", len(to), to, further, moved)
        if not int(moved[0]):
            return to
        to = further


def contract(a: Array, b: Array, first: Array) -> tuple[Array, int]:
    """Contract each vertex along its first edge. Return each vertex's new vertex, and
    the number of new vertices.

    `a`, `b`: the vertices of each edge; `first`: the first edge of each vertex.
    """
    vertices = len(first)
    to, up, kept, found = (cupy.empty(vertices, cupy.int32) for _ in range(4))
    _run("other_ends", vertices, a, b, first, to)
    _run("open_pairs", vertices, to, up)
    root = followed(up)
    _run("mark_roots", vertices, root, kept)
    number = cupy.cumsum(kept, dtype=cupy.int32)
    _run("number_of", vertices, root, number, found)
    return found, int(number[-1])


def _either(name: str, items: int, *arguments: Array) -> tuple[Array, Array]:
    """Run a kernel that writes two masks. Return the positions that each mask selects."""
    yes, no = (cupy.empty(items, cupy.bool_) for _ in range(2))
    _run(name, items, *arguments, yes, no)
    return places_of(yes), places_of(no)


class Dendrogram:
    """The merges of rows into clusters, one merge per edge of the spanning tree.

    Parameters
    ----------
    a, b : array (n - 1,), int32
        The two rows of each edge, by ascending distance.

    Attributes
    ----------
    first : array (n,), int32
        For each row, the first merge that contains it.
    parent, size : array (n - 1,), int32
        For each merge, the next merge that contains it (itself for the last merge), and
        its number of rows.
    """

    def __init__(self, a: Array, b: Array) -> None:
        edges = len(a)
        self._joined = cupy.zeros(edges + 1, cupy.int32)
        self.parent, self.size = (
            cupy.empty(edges, cupy.int32),
            cupy.empty(edges, cupy.int32),
        )
        place, vertices = numbers(0, edges), edges + 1
        # `own`: contracted edges that are not in a chain yet; `inside`: the vertices
        # that they were contracted into
        own, inside = (cupy.empty(0, cupy.int32) for _ in range(2))
        while len(place):
            first = full(vertices, len(place), cupy.int32)
            _run("first_edges", len(place), a, b, first)
            if len(place) == edges:
                self.first = first
                _run("count_at", vertices, first, self._joined)
            ends = take(place, first)
            before, after = _either("ended_edges", len(own), own, inside, ends)
            self._add_chains(take(own, before), take(inside, before), ends)
            up, vertices = contract(a, b, first)
            inner, outer = _either("inner_edges", len(place), a, b, first)
            own = copied([take(own, after), take(place, inner)])
            inside = take(up, copied([take(inside, after), take(a, inner)]))
            a, b, place = (
                take(up, take(a, outer)),
                take(up, take(b, outer)),
                take(place, outer),
            )
        self._add_chains(own, inside, full(1, edges, cupy.int32))
        fill(self.parent[-1:], edges - 1)
        del self._joined

    def _add_chains(self, own: Array, inside: Array, ends: Array) -> None:
        """Add each of the edges `own` to the chain of the vertex that it was contracted
        into.

        `inside`: these vertices. `ends`: for each vertex, its first edge, which is the
        merge after the chain. An edge connects the chains of earlier contractions that
        end at it to its own chain.
        """
        n = len(own)
        if not n:
            return
        key, rows, last = (
            cupy.empty(n, cupy.int64),
            cupy.empty(n, cupy.int64),
            cupy.empty(n, cupy.bool_),
        )
        _run("chain_keys", n, own, inside, key)
        key.sort()
        _run("link_chains", n, key, ends, self._joined, self.parent, last, rows)
        rows = cupy.cumsum(rows, dtype=cupy.int64)
        chain = upto(last)
        tops = places_of(last, chain)
        _run("size_chains", n, key, last, chain, rows, tops, self.size)
        _run("join_chains", len(tops), key, rows, tops, ends, self._joined)


def condense(
    start: Array,
    end: Array,
    away: Array,
    min_rows: int,
    threads: int = 1,
) -> Clusters:
    """Find the clusters of at least `min_rows` rows of a spanning tree; see
    `Spanner.condense`.

    A row leaves its cluster at the smallest distance that merges enough rows with it.
    Nested merges at the same distance count as one merge.  If a merge joins at least
    two parts that are large enough, these parts are clusters. `threads`: not used.
    """
    rows = len(start) + 1
    tree = Dendrogram(cupy.asarray(start, cupy.int32), cupy.asarray(end, cupy.int32))
    far, parent, size, merges = cupy.asarray(away), tree.parent, tree.size, rows - 1
    fewest = np.int32(min_rows)
    enough, whole, to = (cupy.empty(merges, cupy.int32) for _ in range(3))
    part, top = (cupy.empty(merges, cupy.bool_) for _ in range(2))
    parts, number = cupy.zeros(merges, cupy.int32), cupy.empty(merges, cupy.int32)
    _run("large_ones", merges, size, fewest, parent, enough)
    # pointer jumping: at most `min_rows` - 1 small merges are nested, so this many
    # steps suffice
    for _ in range(int(min_rows).bit_length()):
        enough = take(enough, enough)
    falls = take(enough, tree.first)
    _run("same_distance", merges, far, parent, whole)
    # the last of the nested merges with the parent's distance
    of = take(followed(whole), parent)
    _run("count_parts", merges, far, parent, of, size, fewest, part, parts)
    _run("find_tops", merges, part, parts, of, parent, top, to)
    cluster, tops = followed(to), places_of(top)
    found = len(tops)
    _run("number_tops", found, tops, number)
    from_, density, sizes = (
        cupy.empty(found, cupy.int32),
        cupy.empty(found),
        cupy.empty(found, cupy.int32),
    )
    _run(
        "tell_tops", found, tops, of, cluster, number, far, size, from_, density, sizes
    )
    own, apart = cupy.empty(rows, cupy.int32), cupy.empty(rows)
    _run("tell_rows", rows, falls, cluster, number, far, own, apart)
    if module_of(start) is np:
        own, apart = to_host(own), to_host(apart)
    return own, apart, to_host(from_), to_host(density), to_host(sizes)


def measure_rows(
    row_parent: Array, row_lambda: Array, birth: np.ndarray
) -> RowMeasures:
    """Measure the rows that leave each cluster: see `Spanner`."""
    rows, number = len(row_parent), len(birth)
    key, begin = cupy.empty(rows, cupy.int64), cupy.empty(number + 1, cupy.int32)
    _run("leaving_keys", rows, row_parent, key)
    key.sort()
    _run("find_leaving", number + 1, key, np.int32(rows), begin)
    runs = rows // RUN + number  # at most so many: see `run_of`
    sums, most = cupy.empty(runs), cupy.empty(runs)
    born, of = cupy.asarray(birth), np.int32(RUN)
    _run(
        "sum_runs", runs, key, begin, np.int32(number), of, row_lambda, born, sums, most
    )
    first = cupy.empty(number, cupy.int64)
    stability, death = cupy.empty(number), cupy.empty(number)
    _run("sum_clusters", number, key, begin, of, sums, most, first, stability, death)
    return to_host(first), to_host(stability), to_host(death)


def label_rows(
    row_parent: Array,
    row_lambda: Array,
    chosen: Chosen,
    threads: int = 1,
) -> tuple[Array, Array, Array]:
    """Label rows on the GPU: see `Spanner`. `threads`: not used."""
    n = len(row_parent)
    label, probability, score = cupy.empty(n, cupy.int64), cupy.empty(n), cupy.empty(n)
    *clusters, enough = chosen
    _run(
        "label_rows",
        n,
        row_parent,
        row_lambda,
        *map(cupy.asarray, clusters),
        np.float64(enough),
        label,
        probability,
        score,
    )
    return label, probability, score


def condense_some() -> None:
    """Find the clusters of a few rows, so that all kernels of `condense` are loaded in
    advance.
    """
    ends = np.arange(64, dtype=np.int32)
    far = np.sort(ends * 7 % 16).astype(np.float64)
    own, apart, *clusters = condense(ends // 3, ends + 1, far, 3)
    values = np.zeros(len(clusters[0]))
    names = values.astype(np.int32), values.astype(np.int64)
    rows = cupy.asarray(own), cupy.asarray(apart)
    measure_rows(*rows, clusters[1])
    label_rows(*rows, (*names, values, values, 0.0))


def sorted_edges(names: Array, weight: Array, start: Array, end: Array) -> Edges:
    """Return edges on the GPU, the lightest first.

    Nodes are replaced by ids, and the smaller id comes first.
    """
    low, high, both = boruvka.name_ends(names, start, end)
    order = cupy.argsort(both)
    order = take(order, cupy.argsort(take(weight, order), kind="stable"))
    return take(weight, order), take(low, order), take(high, order)


def on_host(edges: Edges) -> Edges:
    """Return edges on the host."""
    weight, low, high = map(to_host, edges)
    return weight, low, high


def join_some() -> None:
    """Join a few components, so that all kernels for joining are loaded in advance."""
    node = cupy.asarray(np.arange(4, dtype=np.int32))
    edge = (
        boruvka.ITSELF,
        cupy.asarray(np.arange(4, dtype=np.int32)[::-1].copy()),
        full(4, 1.0),
    )
    sizes, bounds = full(4, 1.0), full(4, boruvka.UNKNOWN, cupy.uint64)
    boruvka.offer_edges(node, [edge], bounds)
    ends = boruvka.least_edges(node, node, [edge], bounds)
    taken, _, _ = boruvka.join_components(
        node, boruvka.who_asks(sizes, 4), *ends, sizes
    )
    _, start, end = sorted_edges(
        node,
        take(bounds.view(cupy.float64), taken),
        *(take(some, taken) for some in ends),
    )
    boruvka.is_ordered(start, end, full(len(start), 1.0))


class GpuSpanner:
    """See `Spanner`."""

    @staticmethod
    def prepare(layout: NearestDeviceLayout, *more: Callable[[], object]) -> None:
        """Start to compile the search, and to load the kernels of the steps after it:
        see `Spanner`.
        """
        load.begin(program("search_others", layout))
        load.rehearse(*more, condense_some, search_some, join_some)

    @staticmethod
    def tree_of(
        index: Index,
        layout: NearestDeviceLayout,
        core: Array,
        nearest: Nearest,
        progress: Progress | None = None,
        threads: int = 1,
    ) -> Edges:
        """Find the tree of an index's points. `core`: core distances of the points as
        totals, in kd order. `threads`: not used.
        """
        rounds = GpuBoruvkaRounds([index], layout, [core], nearest, progress)
        found, names = rounds.run(), rounds.names
        del rounds  # frees memory before edges are sorted
        return sorted_edges(names, *found)

    @staticmethod
    def begin(
        index: Index,
        layout: NearestDeviceLayout,
        core: Array,
        nearest: Nearest,
        parts: int,
    ) -> Progress:
        """Return the state before the first shared round: see `Spanner`."""
        return GpuBoruvkaRounds([index], layout, [core], nearest).go_on(parts)

    @staticmethod
    def share(
        index: Index,
        layout: NearestDeviceLayout,
        core: Array,
        nearest: Nearest,
        progress: Progress,
        part: Part,
    ) -> Found:
        """Do one part of a round's searches: see `Spanner`."""
        return GpuBoruvkaRounds([index], layout, [core], nearest, progress).share(part)

    @staticmethod
    def join(
        index: Index,
        layout: NearestDeviceLayout,
        core: Array,
        nearest: Nearest,
        progress: Progress,
        parts: Sequence[Found],
    ) -> Progress:
        """Finish a round with the results of all parts: see `Spanner`."""
        rounds = GpuBoruvkaRounds([index], layout, [core], nearest, progress)
        rounds.join(parts)
        return rounds.go_on(len(parts))

    @staticmethod
    def edges_between(
        sides: Sequence[Index],
        layout: NearestDeviceLayout,
        cores: Sequence[Array],
        trees: Sequence[Edges],
    ) -> Edges:
        """Find the edges between two indexes in their common tree. `trees`: the tree of
        each index.
        """
        rounds = GpuBoruvkaRounds(sides, layout, cores)
        across = rounds.sides[1].first
        nodes = cupy.argsort(rounds.names).astype(cupy.int32)
        names = rounds.names[nodes]
        weight, *ends = (
            cupy.asarray(np.concatenate(column)) for column in zip(*trees, strict=True)
        )
        found = rounds.run(
            (weight, *(nodes[cupy.searchsorted(names, some)] for some in ends))
        )
        between = (found[1] < across) != (found[2] < across)
        edges = (column[between] for column in found)
        return on_host(sorted_edges(rounds.names, *edges))

    @staticmethod
    def merge(rows: int, *parts: Edges) -> Edges:
        """Merge several forests into one minimum spanning forest by Boruvka's rounds:
        see `Spanner`.
        """
        if len(parts) == 1:
            return parts[0]
        weight, low, high = (
            cupy.asarray(np.concatenate(column)) for column in zip(*parts, strict=True)
        )
        names = component = cupy.arange(rows, dtype=cupy.int32)
        sizes, found = cupy.ones(rows), [(weight[:0], low[:0], high[:0])]
        while True:
            apart = component[low] != component[high]
            weight, low, high = weight[apart], low[apart], high[apart]
            if not len(low):
                every = (
                    cupy.concatenate(column) for column in zip(*found, strict=True)
                )
                return on_host(sorted_edges(names, *every))
            bounds = cupy.full(len(sizes), boruvka.UNKNOWN, cupy.uint64)
            edges: list[boruvka.ListedEdges] = [
                (low, high, weight),
                (high, low, weight),
            ]
            boruvka.offer_edges(component, edges, bounds)
            starts, ends = boruvka.least_edges(component, names, edges, bounds)
            asked = cupy.ones(len(sizes), cupy.bool_)
            taken, component, sizes = boruvka.join_components(
                component, asked, starts, ends, sizes
            )
            found.append((bounds.view(cupy.float64)[taken], starts[taken], ends[taken]))

    @staticmethod
    def is_ordered(start: Array, end: Array, away: Array) -> bool:
        """Return whether edges on the GPU are sorted: see `Spanner`."""
        return boruvka.is_ordered(start, end, away)

    condense = staticmethod(condense)
    measure_rows = staticmethod(measure_rows)
    label_rows = staticmethod(label_rows)


SPANNER = GpuSpanner()
