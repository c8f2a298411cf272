"""Dendrograms of spanning trees on the GPU, and the clusters of enough rows in them; needs CuPy, but no cuDF.

Sao, Prokopenko & Lebrun-Grandie (2024), "PANDORA: a parallel dendrogram construction algorithm for single
linkage clustering on GPU": an edge that is the first (the lightest) at either of its ends merges a single
vertex.  So those by which vertices are contracted to one follow each other in the dendrogram: a chain.  What
other edges are left make a smaller tree, of at most half as many.  An edge is in the chain of the vertex that
it was contracted into; or, if the first edge of that vertex comes before it, of the one that this was
contracted into, and so on; and a chain ends below the first edge of its vertex.

Edges are numbered in their order, and so are merges.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.compat import all_of, count_of, to_host
from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.engine.spanner import Clusters
from dask_simjoin.metrics.types import Array

THREADS = 256


def _run(name: str, items: int, *arguments: Any) -> None:
    if items:
        function = load.kernel("dendrogram", name, DIMS=1, EXACT=True)
        function((min(-(-items // THREADS), 1 << 16),), (THREADS,), (np.int32(items), *arguments))


def followed(to: Array) -> Array:
    """Follow from each place where it leads, and on, to where that leads to itself."""
    while True:
        further = to[to]
        if all_of(further == to):
            return to
        to = further


def contract(a: Array, b: Array, first: Array) -> tuple[Array, int]:
    """Contract each vertex with the other end of its first edge: what it is then, and how many are left."""
    own = cupy.arange(len(first), dtype=cupy.int32)
    to = cupy.where(a[first] == own, b[first], a[first])
    # two whose first edge is one lead to each other
    root = followed(cupy.where((to[to] == own) & (own < to), own, to))
    kept = root == own
    number = cupy.cumsum(kept.astype(cupy.int32), dtype=cupy.int32) - 1
    return number[root], count_of(kept)


class Dendrogram:
    """Hold what rows are merged.

    Parameters
    ----------
    a, b : array (n - 1,), int32
        Rows that edges join, those of the smallest distance first.

    Attributes
    ----------
    first : array (n,), int32
        The first merge of each row.
    parent, size : array (n - 1,), int32
        The merge that each is merged by, the last one by itself, and how many rows it has.
    """

    def __init__(self, a: Array, b: Array) -> None:
        edges = len(a)
        self._joined = cupy.zeros(edges + 1, cupy.int32)
        self.parent, self.size = cupy.empty(edges, cupy.int32), cupy.empty(edges, cupy.int32)
        place, vertices = cupy.arange(edges, dtype=cupy.int32), edges + 1
        # edges that were contracted and are in no chain yet, and the vertices that they are in
        own, inside = (cupy.empty(0, cupy.int32) for _ in range(2))
        while len(place):
            first = cupy.full(vertices, len(place), cupy.int32)
            _run("first_edges", len(place), a, b, first)
            if len(place) == edges:
                self.first = first
                ones = cupy.ones(vertices, cupy.int32)
                _run("add_at", vertices, first, ones, self._joined)
            ends = place[first]
            before = own < ends[inside]
            self._add_chains(own[before], inside[before], ends)
            own, inside = own[~before], inside[~before]
            up, vertices = contract(a, b, first)
            number = cupy.arange(len(place), dtype=cupy.int32)
            inner = (first[a] == number) | (first[b] == number)
            own = cupy.concatenate([own, place[inner]])
            inside = cupy.concatenate([up[inside], up[a[inner]]])
            a, b, place = up[a[~inner]], up[b[~inner]], place[~inner]
        self._add_chains(own, inside, cupy.full(1, edges, cupy.int32))
        self.parent[-1:] = edges - 1
        del self._joined

    def _add_chains(self, own: Array, inside: Array, ends: Array) -> None:
        """Put edges in the chains of their vertices, which end below the edges `ends`.

        What is merged by them besides is known: chains of vertices that came before.
        """
        if not len(own):
            return
        key = inside.astype(cupy.int64) << 32 | own
        key.sort()
        own, inside = (key & 0xFFFFFFFF).astype(cupy.int32), (key >> 32).astype(cupy.int32)
        last = cupy.ones(len(own), cupy.bool_)
        last[:-1] = inside[1:] != inside[:-1]
        above = cupy.empty(len(own), cupy.int32)
        above[:-1] = own[1:]
        top = ends[inside[last]]
        above[last] = top
        self.parent[own] = above
        rows = cupy.cumsum(self._joined[own], dtype=cupy.int64)
        until = rows[last]
        before = cupy.concatenate([cupy.zeros(1, cupy.int64), until[:-1]])
        chain = cupy.cumsum(last.astype(cupy.int32), dtype=cupy.int32) - last
        self.size[own] = (rows - before[chain]).astype(cupy.int32)
        _run("add_at", len(top), top, (until - before).astype(cupy.int32), self._joined)


def condense(start: np.ndarray, end: np.ndarray, away: np.ndarray, least: int) -> Clusters:
    """Find the clusters of at least `least` rows of a tree; see `Spanner`.

    A row falls out at the distance from which on enough rows are merged with it.  Merges of one distance that
    are of each other are one; where that has two parts or more that are large enough, these are clusters.
    """
    rows = len(start) + 1
    tree = Dendrogram(cupy.asarray(start, cupy.int32), cupy.asarray(end, cupy.int32))
    far, parent, size = cupy.asarray(away), tree.parent, tree.size
    own = cupy.arange(rows - 1, dtype=cupy.int32)
    large = size >= least
    enough = cupy.where(large, own, parent)
    for _ in range(int(least).bit_length()):  # fewer than `least` merges are not large, one above the other
        enough = enough[enough]
    falls = enough[tree.first]
    whole = followed(cupy.where(far[parent] == far, parent, own))  # the last merge of its distance
    of = whole[parent]
    part = large & (far[parent] > far)
    parts = cupy.zeros(rows - 1, cupy.int32)
    which = of[part]
    _run("add_at", len(which), which, cupy.ones(len(which), cupy.int32), parts)
    top = part & (parts[of] > 1)
    top[-1:] = True
    cluster = followed(cupy.where(top, own, parent))
    tops = cupy.flatnonzero(top)[::-1]
    number = cupy.full(rows - 1, -1, cupy.int32)
    number[tops] = cupy.arange(len(tops), dtype=cupy.int32)
    from_, split = number[cluster[of[tops]]], far[of[tops]]
    density = cupy.where(split > 0, 1.0 / cupy.where(split > 0, split, 1.0), np.inf)
    from_[0], density[0] = -1, 0.0
    sizes = size[tops]
    apart = far[falls]
    found = cupy.where(apart > 0, 1.0 / cupy.where(apart > 0, apart, 1.0), np.inf)
    return (
        to_host(number[cluster[falls]]), to_host(found), to_host(from_), to_host(density), to_host(sizes)
    )  # fmt: skip


def condense_some() -> None:
    """Find the clusters of a few rows, which takes all that those of many take."""
    ends = np.arange(64, dtype=np.int32)
    condense(ends // 3, ends + 1, np.sort(ends * 7 % 16).astype(np.float64), 3)
