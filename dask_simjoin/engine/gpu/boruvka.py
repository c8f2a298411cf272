"""The steps of Boruvka's rounds on the GPU, except for searches; needs CuPy, but no
cuDF.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.compat import all_of
from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.arrays import count, full, places_of, take
from dask_simjoin.engine.index.gpu import WARP
from dask_simjoin.metrics.norms import Array

ITSELF = np.uint64(0)
"""Null pointer in place of the start nodes, if there is one edge per node: edge e
starts at node e.
"""

UNKNOWN = np.uint64(0x7FF0000000000000)
"""Bits of inf: the bound on a component's lightest edge as long as no edge is known."""

NO_NAMES = np.uint64(2**64 - 1)

ListedEdges = tuple[Array | np.uint64, Array, Array]
"""Edges: start nodes or `ITSELF`, end nodes (-1 stands for no edge), and weights."""


def run(name: str, items: int, *arguments: Any, threads: int = 1) -> None:
    """Launch a kernel of `boruvka.cu` for `items` items, with `threads` threads per
    item.
    """
    if items:
        function = load.kernel("boruvka", name, DIMS=1, EXACT=True)
        function(*load.shape_of(items * threads), arguments)


def list_edges(
    component: Array,
    core: Array,
    names: Array,
    nearest: tuple[Array, Array, Array],
    least: Array,
    to: Array,
) -> ListedEdges:
    """Return the lightest known edge of each node. If no edge of a node is known, the
    end is -1.

    See `offer_listed` in `engine.cpu.kernels.boruvka` for the arguments.
    """
    near, away, beyond = nearest
    n, k = near.shape
    weight, end = cupy.empty(n), cupy.empty(n, cupy.int32)
    sizes = np.int32(n), np.int32(k), np.int32(away.shape[1] > 0)
    run(
        "list_edges",
        n,
        *sizes,
        component,
        core,
        names,
        near,
        away,
        beyond,
        least,
        to,
        weight,
        end,
    )
    return ITSELF, end, weight


def offer_edges(component: Array, edges: list[ListedEdges], bounds: Array) -> None:
    """For each component, lower `bounds` to the smallest weight of its edges.

    Bounds are the bits of floats, stored as integers, because the kernel needs an
    atomic minimum.
    """
    for start, end, weight in edges:
        run(
            "offer_edges",
            len(end),
            np.int32(len(end)),
            start,
            end,
            weight,
            component,
            bounds,
        )


def least_edges(
    component: Array, names: Array, edges: list[ListedEdges], bounds: Array
) -> tuple[Array, Array]:
    """Return the start and the end node of each component's lightest edge; -1 if it has
    no edge.

    `bounds`: weights of these edges, as bits of floats. `names`: id of each node (n,);
    ids break ties.
    """
    least = full(len(bounds), NO_NAMES, cupy.uint64)
    starts, ends = (full(len(bounds), -1, cupy.int32) for _ in range(2))
    for name, more in (("name_edges", ()), ("take_edges", (starts, ends))):
        for start, end, weight in edges:
            n = len(end)
            run(
                name,
                n,
                np.int32(n),
                start,
                end,
                weight,
                component,
                names,
                bounds,
                least,
                *more,
            )
    return starts, ends


def least_of_parts(names: Array, weights: Array, ends: Array) -> tuple[Array, Array]:
    """Return weight and end of each row's lightest edge in all parts of the data.

    `weights`, `ends`: the lightest edges in each part (parts, n). `names`: id of each
    row (n,). Ties go to the edge with the smallest id at its end.
    """
    parts, n = weights.shape
    weight, end = cupy.empty(n), cupy.empty(n, cupy.int32)
    run(
        "least_of_parts",
        n,
        np.int32(n),
        np.int32(parts),
        weights,
        ends,
        names,
        weight,
        end,
    )
    return weight, end


def tag_boxes(values: Array, levels: np.ndarray, box: int, tags: Array) -> None:
    """For each box of a tree, write to `tags` the value that all its points share, or
    -1 if values differ.

    `values`: one per point. `levels`: first group of each level. `box`: number of
    points in a box of the lowest level, and of boxes in a box of a higher level.
    """
    n = len(values)
    for level in levels[:-1].tolist():
        boxes, own = -(-n // box), tags[level * box :]
        run("tag_boxes", boxes, values, np.int32(n), np.int32(boxes), own, threads=WARP)
        values, n = own, boxes


def least_of_boxes(values: Array, levels: np.ndarray, box: int) -> Array:
    """Return the smallest value in each box of a tree, float64; inf if the box is
    empty.
    """
    found = full(int(levels[-1]) * box, np.inf)
    for level in levels[:-1].tolist():
        boxes, own = -(-len(values) // box), found[level * box :]
        run(
            "least_below",
            boxes,
            values,
            np.int32(len(values)),
            np.int32(boxes),
            own,
            threads=WARP,
        )
        values = own[:boxes]
    return found


def least_names(names: Array, box: int) -> Array:
    """Return the smallest id in each run of `box` points, int32."""
    boxes = -(-len(names) // box)
    found = cupy.empty(boxes, cupy.int32)
    run(
        "least_named",
        boxes,
        names,
        np.int32(len(names)),
        np.int32(boxes),
        found,
        threads=WARP,
    )
    return found


def who_asks(sizes: Array, every: int) -> Array:
    """Return a mask of the components that search for an edge in this round: at least
    half of all components.

    `every`: number of components before the first round, when all components search.
    """
    number = len(sizes)
    asked = cupy.empty(number, cupy.bool_)
    # components of up to twice the median size search in a round
    middle = np.int32((number - 1) // 2), np.float64(2)
    run("small_ones", number, np.int32(number), sizes, cupy.sort(sizes), *middle, asked)
    if number > 1 and all_of(asked):
        asked[int(cupy.argmax(sizes))] = number == every
    return asked


def wanted_nodes(
    component: Array, asked: Array, to: Array, least: Array, core: Array, bounds: Array
) -> Array:
    """Return a mask of the nodes that may have a lighter edge than the known bound of
    their component.

    `asked`: mask of the components that search.
    """
    n = len(component)
    wanted = cupy.empty(n, cupy.bool_)
    run(
        "wanted_nodes",
        n,
        np.int32(n),
        component,
        asked,
        to,
        least,
        core,
        bounds,
        wanted,
    )
    return wanted


def join_components(
    component: Array, asked: Array, starts: Array, ends: Array, sizes: Array
) -> tuple[Array, Array, Array]:
    """Join the components in the mask `asked` along their lightest edges.

    `starts`, `ends`: nodes of these edges, -1 if there is none. Return the components
    whose edges are added to the tree, the new component of each node, and the sizes of
    the new components, float64.
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
    """For each edge, return the smaller and the larger id of its ends, and both packed
    into one number.
    """
    n = len(start)
    low, high = (cupy.empty(n, cupy.int32) for _ in range(2))
    both = cupy.empty(n, cupy.int64)
    run("name_ends", n, np.int32(n), names, start, end, low, high, both)
    return low, high, both


def is_ordered(start: Array, end: Array, away: Array) -> bool:
    """Return whether edges, sorted by length, are sorted by (length, start, end)."""
    n = len(start)
    wrong = cupy.empty(n, cupy.bool_)
    run("mark_unordered", n, np.int32(n), start, end, away, wrong)
    return not n or not count(wrong)
