"""Array steps of Boruvka's rounds on the GPU, without the searches: needs CuPy, but no cuDF."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.compat import all_of
from dask_simjoin.engine.gpu.arrays import full, places_of, take
from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.metrics.norms import Array

WARP = 32

ITSELF = np.uint64(0)
"""Null pointer for the starts of edges: edge e starts at node e."""

FEW = 2
"""Size of the largest component that searches, as a multiple of the median size: see `engine.cpu.rounds`."""

UNKNOWN = np.uint64(0x7FF0000000000000)
"""Inf as bits: the weight of a component's lightest edge if it is unknown."""

NO_NAMES = np.uint64(2**64 - 1)

ListedEdges = tuple[Array | np.uint64, Array, Array]
"""Starts of edges, or `ITSELF`; ends of edges, or -1 without an edge; weights."""


def run(name: str, items: int, *arguments: Any, threads: int = 1) -> None:
    """Launch a kernel of `boruvka.cu` for `items` items, with `threads` threads per item."""
    if items:
        function = load.kernel("boruvka", name, DIMS=1, EXACT=True)
        function(*load.shape_of(items * threads), arguments)


def list_edges(component: Array, core: Array, names: Array, nearest: tuple[Array, Array, Array], least: Array,
               to: Array) -> ListedEdges:  # fmt: skip
    """List the known edge of each node; for `nearest`, `least` and `to` see the CPU's `offer_listed`."""
    near, away, beyond = nearest
    n, k = near.shape
    weight, end = cupy.empty(n), cupy.empty(n, cupy.int32)
    sizes = np.int32(n), np.int32(k), np.int32(away.shape[1] > 0)
    run("list_edges", n, *sizes, component, core, names, near, away, beyond, least, to, weight, end)
    return ITSELF, end, weight


def offer_edges(component: Array, edges: list[ListedEdges], bounds: Array) -> None:
    """Lower the bounds of components' least edges, as bits, to the weights of edges."""
    for start, end, weight in edges:
        run("offer_edges", len(end), np.int32(len(end)), start, end, weight, component, bounds)


def least_edges(component: Array, names: Array, edges: list[ListedEdges],
                bounds: Array) -> tuple[Array, Array]:  # fmt: skip
    """Find both nodes of the least edge of each component, or -1; `bounds`: its weight, as bits."""
    least = full(len(bounds), NO_NAMES, cupy.uint64)
    starts, ends = (full(len(bounds), -1, cupy.int32) for _ in range(2))
    for name, more in (("name_edges", ()), ("take_edges", (starts, ends))):
        for start, end, weight in edges:
            n = len(end)
            run(name, n, np.int32(n), start, end, weight, component, names, bounds, least, *more)
    return starts, ends


def least_of_parts(names: Array, weights: Array, ends: Array) -> tuple[Array, Array]:
    """Find the least edge of each row over the parts of the data: weights and ends (parts, n)."""
    parts, n = weights.shape
    weight, end = cupy.empty(n), cupy.empty(n, cupy.int32)
    run("least_of_parts", n, np.int32(n), np.int32(parts), weights, ends, names, weight, end)
    return weight, end


def tag_boxes(values: Array, levels: np.ndarray, box: int, tags: Array) -> None:
    """Write for each box of a tree the value that all of its points share, or -1."""
    n = len(values)
    for level in levels[:-1].tolist():
        boxes, own = -(-n // box), tags[level * box :]
        run("tag_boxes", boxes, values, np.int32(n), np.int32(boxes), own, threads=WARP)
        values, n = own, boxes


def least_of_boxes(values: Array, levels: np.ndarray, box: int) -> Array:
    """Find the least value, float64, in each box of a tree; inf if the box is empty."""
    found = full(int(levels[-1]) * box, np.inf)
    for level in levels[:-1].tolist():
        boxes, own = -(-len(values) // box), found[level * box :]
        run("least_below", boxes, values, np.int32(len(values)), np.int32(boxes), own, threads=WARP)
        values = own[:boxes]
    return found


def least_names(names: Array, box: int) -> Array:
    """Find the least name, int32, in each box of `box` points."""
    boxes = -(-len(names) // box)
    found = cupy.empty(boxes, cupy.int32)
    run("least_named", boxes, names, np.int32(len(names)), np.int32(boxes), found, threads=WARP)
    return found


def who_asks(sizes: Array, every: int) -> Array:
    """Choose at least half of the components to search; `every`: initial number of components."""
    number = len(sizes)
    asked = cupy.empty(number, cupy.bool_)
    middle = np.int32((number - 1) // 2), np.float64(FEW)
    run("small_ones", number, np.int32(number), sizes, cupy.sort(sizes), *middle, asked)
    if number > 1 and all_of(asked):
        asked[int(cupy.argmax(sizes))] = number == every
    return asked


def wanted_nodes(component: Array, asked: Array, to: Array, least: Array, core: Array,
                 bounds: Array) -> Array:  # fmt: skip
    """Find the nodes that may have an edge below the known bound of their component."""
    n = len(component)
    wanted = cupy.empty(n, cupy.bool_)
    run("wanted_nodes", n, np.int32(n), component, asked, to, least, core, bounds, wanted)
    return wanted


def join_components(component: Array, asked: Array, starts: Array, ends: Array,
                    sizes: Array) -> tuple[Array, Array, Array]:  # fmt: skip
    """Join the searching components along their least edges, from nodes `starts` to `ends` (-1: no edge).

    Return the components whose edges are in the tree, the new component of each node, and the sizes of the
    new components as float64.
    """
    number, n = len(asked), len(component)
    to, above, root = (cupy.empty(number, cupy.int32) for _ in range(3))
    taken, joined = cupy.empty(number, cupy.bool_), cupy.empty(n, cupy.int32)
    run("lead_to", number, np.int32(number), asked, starts, ends, component, to)
    run("open_circles", number, np.int32(number), asked, starts, to, above, taken)
    for _ in range(number.bit_length()):
        above = take(above, above)
    run("mark_roots", number, np.int32(number), above, root)
    numbers = cupy.cumsum(root, dtype=cupy.int32)
    joined_sizes = cupy.zeros(int(numbers[-1]))
    size = np.int32(n), np.int32(number)
    run("join_nodes", n, *size, component, above, numbers, sizes, joined, joined_sizes)
    return places_of(taken), joined, joined_sizes


def name_ends(names: Array, start: Array, end: Array) -> tuple[Array, Array, Array]:
    """Return the names of both ends of edges, the smaller name first, and both packed into one number."""
    n = len(start)
    low, high = (cupy.empty(n, cupy.int32) for _ in range(2))
    both = cupy.empty(n, cupy.int64)
    run("name_ends", n, np.int32(n), names, start, end, low, high, both)
    return low, high, both
