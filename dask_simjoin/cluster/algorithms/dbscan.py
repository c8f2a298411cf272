"""Cluster chunks by DBSCAN, step by step (Ester, Kriegel, Sander & Xu 1996, "A density-based algorithm for
discovering clusters in large spatial databases with noise").

No list of neighbours is made.  Counts of neighbours give the core rows; the core rows of each chunk
are connected within it, and then only its components, of which there are few, across chunks.  The edges
that do so are merged in a tree, where chunks lie; none of its tasks sees components that stay in one chunk.
Clusters are numbered by their first core row: each chunk counts those that begin in it, and what it is told
are the numbers of those that begin elsewhere.  A border row takes the lowest number among its core
neighbours: so labels are those of scikit-learn, whatever the chunks.

Rows of all chunks have numbers in the order of the frame: their positions in it, or, of chunks of rows that
follow each other, their chunk and their place in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.base import joiner_of_library
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.types import Array
from dask_simjoin.tasks.components import Edges, new_nodes, no_edges, spanning_forest
from dask_simjoin.tasks.meeting import Meeting
from dask_simjoin.tasks.row_numbers import CHUNK, RowNumbers, row_numbers

NOWHERE = np.iinfo(np.int64).max


Border = tuple[Array, Array]
"""Some rows of a chunk, and the lowest labels that they are near."""


class Begun(NamedTuple):
    """Tell of the clusters that begin in a chunk.

    Attributes
    ----------
    number : int
    ranks, firsts : array (k,), int64
        Which of them are in other chunks as well, ascending, and their first rows; where rows are numbered by
        positions, of all of them.
    """

    number: int
    ranks: Array
    firsts: Array


class Numbering(NamedTuple):
    """Tell the numbers of clusters.

    Attributes
    ----------
    starts : list of int
        The number of the first cluster that begins in each chunk, and how many there are; none where rows
        are numbered by positions.
    firsts, numbers : array (k,), int64
        First rows of clusters, ascending, and the numbers of those: of all, or with `starts` of those that
        are in several chunks.
    """

    starts: list[int]
    firsts: Array
    numbers: Array


def components_within(meeting: Meeting, counts: Array | int, min_samples: int) -> Array:
    """Find for each core row of a chunk the first row of its component there (n,); -1 for others.

    `counts`: of each row's neighbours; 0 if the chunk meets none, not even itself.  Of a part of the work
    they are the components that it finds: see `join_components`.
    """
    joiner = meeting.joiner
    core = joiner.xp.zeros(len(meeting.q["ids"]), np.int64) + counts + 1 >= min_samples
    parent = new_nodes(len(core), joiner.xp)
    joiner.connect(*meeting.operands, parent, (core, core), 0, same=True, rows=meeting.rows)
    joiner.roots(parent)
    parent[~core] = -1
    return parent


def join_components(library: str, *parts: Array) -> Array:
    """Join the components that parts of the work found in one chunk."""
    joiner = joiner_of_library(library)
    core, alone = parts[0] >= 0, new_nodes(len(parts[0]), joiner.xp)
    parent = joiner.xp.where(core, parts[0], alone)  # components are trees that can be gone on with
    for part in parts[1:]:
        rows = joiner.xp.flatnonzero(core & (part != alone))
        free = parent[rows] == rows  # most are in one part only: such a root is tied to a smaller one at once
        tied, rest = rows[free], rows[~free]
        parent[tied] = part[tied]
        joiner.link(parent, rest, part[rest])
    if len(parts) > 1:
        joiner.roots(parent)
    parent[~core] = -1
    return parent


def standing(within: Array, own: RowNumbers, forest: Edges) -> tuple[Array, Array, Array]:
    """Tell rows that stand for clusters in a chunk: the first ones, and others with the first ones' numbers.

    Rows (n,) bool that come first in their clusters, rows that stand for a component whose cluster begins
    elsewhere, and where.
    """
    xp = module_of(within)
    left, right = forest
    first = within == xp.arange(len(within), dtype=within.dtype)
    if isinstance(own, int):
        start, stop = xp.searchsorted(left, xp.asarray([own * CHUNK, (own + 1) * CHUNK])).tolist()
        rows, elsewhere = left[start:stop] - own * CHUNK, right[start:stop]
    else:
        rows = xp.searchsorted(own, left).clip(0, max(len(own) - 1, 0))
        found = own[rows] == left if len(own) else xp.zeros(len(left), bool)
        rows, elsewhere = rows[found], right[found]
    first[rows] = False
    return first, rows, elsewhere


def edges_across(meeting: Meeting, within: Sequence[Array], numbers: Sequence[RowNumbers]) -> Edges:
    """Connect the components of two chunks by as few edges as do, between rows that stand for them."""
    joiner = meeting.joiner
    xp = joiner.xp
    core = within[0] >= 0, within[1] >= 0
    offset = len(within[0])
    nodes = new_nodes(offset + len(within[1]), xp)
    parent = nodes.copy()
    for side, taking, start in zip(within, core, (0, offset), strict=True):
        rows = xp.flatnonzero(taking)
        parent[start + rows] = side[rows] + start
    first = (parent == nodes) & xp.concatenate(core)
    joiner.connect(*meeting.operands, parent, core, offset, same=False, rows=meeting.rows)
    joiner.roots(parent)
    tied = xp.flatnonzero(first & (parent != nodes))

    def named(some: Array) -> Array:
        found = xp.empty(len(some), np.int64)
        left = some < offset
        found[left] = row_numbers(some[left], numbers[0])
        found[~left] = row_numbers(some[~left] - offset, numbers[1])
        return found

    return named(tied), named(parent[tied])


def merge_edges(library: str, *parts: Edges) -> Edges:
    """Connect by as few edges as do what all of these connect: see `spanning_forest`."""
    joiner = joiner_of_library(library)
    return spanning_forest(parts, joiner) if parts else no_edges(joiner.xp)


def begun_clusters(within: Array, own: RowNumbers, forest: Edges) -> Begun:
    """Find the clusters whose first rows are in a chunk; `forest`: the edges across all chunks."""
    xp = module_of(within)
    first = standing(within, own, forest)[0]
    rows = xp.flatnonzero(first)
    if not isinstance(own, int):
        return Begun(len(rows), xp.arange(len(rows)), own[rows])
    right = forest[1] - own * CHUNK
    several = xp.zeros(len(within), bool)
    several[right[(right >= 0) & (right < len(within))]] = True
    ranks = xp.flatnonzero(several[rows])
    return Begun(len(rows), ranks, row_numbers(rows[ranks], own))


def number_clusters(in_order: bool, *begun: Begun) -> Numbering:
    """Number the clusters that begin in the chunks; `in_order`: their rows follow each other."""
    xp = module_of(begun[0].firsts)
    firsts = xp.concatenate([some.firsts for some in begun])
    if not in_order:
        firsts = xp.sort(firsts)
        return Numbering([], firsts, xp.arange(len(firsts)))
    starts = list(itertools.accumulate((some.number for some in begun), initial=0))
    numbers = [some.ranks + start for some, start in zip(begun, starts, strict=False)]
    return Numbering(starts, firsts, xp.concatenate(numbers))


def label_cores(within: Array, own: RowNumbers, forest: Edges, numbering: Numbering) -> Array:
    """Label a chunk's core rows (n,), int64; others have -1.  `own`: numbers of its rows."""
    xp = module_of(within)
    first, tied, elsewhere = standing(within, own, forest)
    starts, firsts, numbers = numbering
    label = xp.full(len(within), -1, np.int64)
    if isinstance(own, int):
        label[first] = xp.arange(starts[own], starts[own + 1])
    else:
        label[first] = numbers[xp.searchsorted(firsts, own[first])]
    label[tied] = numbers[xp.searchsorted(firsts, elsewhere)]
    found = label[within]  # of rows that are in none, of any row
    found[within < 0] = -1
    return found


def border_labels(meeting: Meeting, labels: Sequence[Array]) -> tuple[Border, Border | None]:
    """Find the lowest label among the core neighbours that rows of two chunks have in each other."""
    return lowest_labels(meeting, labels, meeting.rows)


def lowest_labels(meeting: Meeting, labels: Sequence[Array],
                  part: Rows | None) -> tuple[Border, Border | None]:  # fmt: skip
    """Do as `border_labels` does; `part`: places of the first chunk, None: all."""
    xp, low = meeting.xp, lowered(meeting, labels, part)
    # few rows have any, and many block pairs give them
    found = [(rows, some[rows]) for some in low for rows in (xp.flatnonzero(some < NOWHERE),)]
    return found[0], None if meeting.same else found[1]


def lowered(meeting: Meeting, labels: Sequence[Array], part: Rows | None) -> list[Array]:
    """Do the same for all rows (n,) of each chunk: `NOWHERE` where there is none."""
    joiner, same = meeting.joiner, meeting.same
    low = [joiner.xp.full(len(some), NOWHERE) for some in labels[: len(meeting.chunks)]]
    # for `any` of booleans CuPy compiles kernels of CUB, for seconds; their least number has one
    if any(len(some) and int(some.min()) < 0 for some in labels):
        lists = (labels[0], labels[1]), (low[0], low[-1])
        joiner.lowest(*meeting.operands, *lists, same=same, rows=part)
    return low


def final_labels(labels: Array, *borders: Border) -> Array:
    """Label a chunk's rows: core rows by their own, border rows by the lowest, others by -1."""
    xp, final = module_of(labels), labels.copy()
    for rows, low in borders:  # only rows that have none of their own
        so_far = final[rows]
        final[rows] = xp.where(so_far < 0, low, xp.minimum(so_far, low))
    return final
