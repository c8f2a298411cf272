"""Kernels as plain Python, which a debugger steps through.

In a program that is started with ``NUMBA_DISABLE_JIT=1``, call `make_plain` before any
kernel is imported. Numba then leaves the kernels as they are. The functions that emit
vector instructions get plain forms, which compute the same lane by lane:

    NUMBA_DISABLE_JIT=1 python -m pdb -m tests.support.plain_kernels 3

The argument is a number of dimensions. The program compares the pairs and counts of a
few rows with those by definition.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

PLAIN: dict[str, Callable[..., Any]] = {}
"""Name of a function that emits code -> its plain form."""


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    PLAIN[function.__name__] = function
    return function


def array(address: int, shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return the array at an address."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape))
    memory = (ctypes.c_char * (count * kind.itemsize)).from_address(int(address))
    return np.frombuffer(memory, kind).reshape(shape)


def mask_of(lanes: np.ndarray) -> np.uint64:
    return np.uint64(sum(1 << t for t in np.flatnonzero(lanes).tolist()))


def add(total: Any, t: Any, norm: Any) -> Any:
    """Add the term of a difference, or of an array of them, to a total."""
    kind, size = type(norm).__name__, abs(t)
    if kind == "Sums":
        return total + size
    if kind == "Squares":
        return total + t * t
    if kind == "Largest":
        return np.where(total > size, total, size)
    result, bit = size, norm.bit
    while bit:
        result = result * result
        result = result * size if norm.p & bit else result
        bit >>= 1
    return total + result


# --- simd


def reader(dtype: Any, step: int) -> Callable[[int, int], Any]:
    def read(address: int, place: int) -> Any:
        value = array(address + step * int(place), 1, dtype)[0]
        return int(value) if dtype in (np.int32, np.int64) else value

    return read


def writer(dtype: Any, step: int) -> Callable[[int, int, Any], None]:
    def write(address: int, place: int, value: Any) -> None:
        array(address + step * int(place), 1, dtype)[0] = value

    return write


READERS = {
    "mask_at": reader(np.uint64, 8),
    "long_at": reader(np.int64, 8),
    "word_at": reader(np.uint64, 1),
    "int32_at": reader(np.int32, 4),
    "float32_at": reader(np.float32, 4),
    "float64_at": reader(np.float64, 8),
    "put_mask": writer(np.uint64, 8),
    "put_long": writer(np.int64, 8),
    "put_int32": writer(np.int32, 4),
}


@plain
def add_long(address: int, place: int, value: int) -> None:
    array(address, int(place) + 1, np.int64)[place] += value


@plain
def number_at(address: int, place: int, like: Any) -> float:
    return float(array(address, int(place) + 1, np.asarray(like).dtype)[place])


# --- components


@plain
def parent_of(parent: int, node: int) -> int:
    return int(array(parent, node + 1, np.int32)[node])


@plain
def put_parent(parent: int, node: int, to: int) -> None:
    array(parent, node + 1, np.int32)[node] = to


@plain
def tie_root(parent: int, root: int, to: int) -> bool:
    put_parent(parent, root, to)
    return True


# --- tiles of 64


@plain
def lowest_bit(mask: np.uint64) -> int:
    return (int(mask) & -int(mask)).bit_length() - 1


@plain
def count_bits(mask: np.uint64) -> int:
    return int(mask).bit_count()


@plain
def prefetch(address: int) -> None:
    pass


@plain
def tile_filter(
    tile: int, start: int, dims: int, queries: Any, limits: Any, sures: Any, out: int
) -> np.uint64:
    z, first = array(tile, (dims, 64), np.float32), array(start, 64, np.float32)
    masks = array(out, 8, np.uint64)
    found = []
    for p, h, s in zip(queries, limits, sures, strict=True):
        total = first - h
        for k in range(dims):
            total = total + z[k] * array(p + 256 * k, 1, np.float32)[0]
        found.append((mask_of(total >= 0), mask_of(total >= s)))
    union = np.bitwise_or.reduce([near for near, _ in found])
    if union:
        masks[:] = [near for near, _ in found] + [sure for _, sure in found]
    return union


def totals_of(tile: int, dims: int, point: int, norm: Any, dtype: Any) -> np.ndarray:
    z, total = array(tile, (dims, 64), dtype), np.zeros(64, dtype)
    for k in range(dims):
        own = array(point + 64 * z.itemsize * k, 1, dtype)[0]
        total = add(total, z[k] - own, norm)
    return total


@plain
def tile_decide(
    tile: int, dims: int, point: int, threshold: float, norm: Any
) -> np.uint64:
    return mask_of(totals_of(tile, dims, point, norm, np.float64) <= threshold)


@plain
def tile_rounded(
    tile: int, dims: int, point: int, reach: Any, sure: Any, norm: Any, out: int
) -> np.uint64:
    total = totals_of(tile, dims, point, norm, np.float32)
    array(out, 1, np.uint64)[0] = mask_of(total <= sure)
    return mask_of(total <= reach)


def compare_boxes(
    between: Callable[..., np.ndarray],
    lower: int,
    upper: int,
    dims: int,
    low: int,
    high: int,
    limit: Any,
    norm: Any,
) -> np.uint64:
    kind = np.asarray(limit).dtype
    lowers, uppers = (array(side, (dims, 64), kind) for side in (lower, upper))
    lo, hi = (array(side, dims, kind) for side in (low, high))
    total = np.zeros(64, kind)
    for k in range(dims):
        total = add(total, between(lowers[k], uppers[k], lo[k], hi[k]), norm)
    return mask_of(total <= limit)


def larger(a: Any, b: Any) -> Any:
    return np.where(a > b, a, b)


def gap(lower: Any, upper: Any, lo: Any, hi: Any) -> Any:
    return larger(larger(lower - hi, lo - upper), lower.dtype.type(0))


def span(lower: Any, upper: Any, lo: Any, hi: Any) -> Any:
    return larger(upper - lo, hi - lower)


@plain
def boxes_near(*arguments: Any) -> np.uint64:
    """`arguments`: lower, upper, dims, low, high, limit, norm."""
    return compare_boxes(gap, *arguments)


@plain
def boxes_within(*arguments: Any) -> np.uint64:
    return compare_boxes(span, *arguments)


@plain
def total_of(one: int, other: int, dims: int) -> float:
    total = 0.0
    for a, b in zip(array(one, dims, float), array(other, dims, float), strict=True):
        total += (a - b) * (a - b)
    return total


@plain
def squares(one: int, other: int, dims: int) -> float:
    return total_of(one, other, dims)


# --- the row sweep


@plain
def first_within(numbers: int, x: float, reach: float) -> int:
    within = ~(x - array(numbers, 16, float) > reach)
    return int(np.argmax(within)) if within.any() else 16


@plain
def sweep_near(
    dims: int,
    base: int,
    stride: int,
    j: int,
    stop: int,
    point: int,
    point_stride: int,
    threshold: float,
    norm: Any,
    totals: int,
) -> np.uint64:
    total = np.zeros(16)
    for k in range(dims):
        own = array(point + k * point_stride, 1, float)[0]
        total = add(total, array(base + 8 * j + k * stride, 16, float) - own, norm)
    if totals:
        array(totals, 16, float)[:] = total
    return mask_of((total <= threshold) & (np.arange(16) < stop - j))


@plain
def within_limit(totals: int, limit: float) -> np.uint64:
    return mask_of(array(totals, 16, float) <= limit)


@plain
def sweep_write(
    mask: np.uint64,
    j: int,
    order: int,
    mine: int,
    names: int,
    name: Any,
    orient_by_position: int,
    left: int,
    right: int,
) -> None:
    kind = np.asarray(name).dtype
    n = 0
    for t in range(16):
        if int(mask) >> t & 1:
            other = array(names + (j + t) * kind.itemsize, 1, kind)[0]
            position = array(order + 4 * (j + t), 1, np.int32)[0]
            pair = (other, name) if orient_by_position and position < mine else None
            one, two = pair or (name, other)
            array(left + n * kind.itemsize, 1, kind)[0] = one
            array(right + n * kind.itemsize, 1, kind)[0] = two
            n += 1


@plain
def keep_totals(mask: np.uint64, totals: int, out: int) -> None:
    some = [t for t in range(16) if int(mask) >> t & 1]
    array(out, len(some), float)[:] = array(totals, 16, float)[some]


# --- reductions


@plain
def summed(address: int, rows: int, bounds: int) -> float:
    values, found = array(address, rows, float), array(bounds, 2, float)
    found[:] = min(found[0], values.min()), max(found[1], values.max())
    return float(values.sum())


@plain
def summed_squares(address: int, rows: int, middle: float) -> float:
    return float(((array(address, rows, float) - middle) ** 2).sum())


def missing(name: str) -> Callable[..., Any]:
    """Return what stands for a function that has no plain form."""

    def refuse(*_: Any) -> Any:
        raise NotImplementedError(f"{name} has no plain form")

    return refuse


def make_plain() -> None:
    """Replace what Numba cannot run as Python. No kernel may have been imported yet."""
    np.seterr(over="ignore")  # masks are negated
    from dask_simjoin.engine.cpu.kernels import jit

    jit.kernel = lambda function, variant="": function
    from dask_simjoin.engine.cpu.kernels import simd

    for name, function in READERS.items():
        setattr(simd, name, function)
    for name in ("add_long", "number_at"):
        setattr(simd, name, PLAIN[name])

    def llvm_function(*_: Any) -> Callable[..., Any]:
        return lambda emit: PLAIN.get(emit.__name__) or missing(emit.__name__)

    simd.llvm_function = llvm_function
    from dask_simjoin.engine.cpu.kernels import totals

    totals.add_term = add
    # without the 8-bit filter
    from dask_simjoin.engine.cpu.kernels import product_simd

    product_simd.WAYS = ()


def check(method: str, x: np.ndarray, norm: Any) -> int:
    """Compare the pairs, counts and components of a join with those by definition;
    return the number of pairs.
    """
    from dask_simjoin.engine.cpu.joiner import JOINER
    from dask_simjoin.metrics.norms import add as add_by_definition

    away = np.zeros((len(x), len(x)))
    for k in range(x.shape[1]):
        t = np.abs(x[:, None, k] - x[None, :, k])
        away = np.asarray(add_by_definition(away, t, norm))
    limit = float(np.quantile(away, 0.1))
    near = away <= limit
    np.fill_diagonal(near, False)
    moments = x.min(0), x.max(0), x.mean(0), x.var(0)
    layout = JOINER.layout(method, *moments, limit, norm)
    index = JOINER.build(x, layout)
    found = JOINER.pairs(index, index, layout, is_self_join=True)
    pairs = {*zip(found.left.tolist(), found.right.tolist(), strict=True)}
    assert len(pairs) == len(found.left) == near.sum() // 2
    assert all(near[i, j] for i, j in pairs)
    counts = JOINER.counts(index, index, layout, is_self_join=True)[0]
    assert (counts == near.sum(1)).all()
    core = counts >= 9
    parent = np.arange(len(x), dtype=np.int32)
    JOINER.connect(index, index, layout, parent, (core, core), 0, is_self_join=True)
    JOINER.roots(parent)
    for i, j in zip(*np.nonzero(near & core & core[:, None]), strict=True):
        assert parent[i] == parent[j]
    return len(pairs)


def main(dims: int) -> None:
    """Join a few rows by tiles, and in up to 4 dimensions by the sweep."""
    make_plain()
    x = np.random.default_rng(dims).uniform(size=(150, dims))
    for method in ("tiles", "sweep") if dims <= 4 else ("tiles",):
        for norm in (1, 2, 3, np.inf):
            print(f"{method}, norm {norm}: {check(method, x, norm)} pairs")


if __name__ == "__main__":
    assert os.environ.get("NUMBA_DISABLE_JIT") == "1"
    main(int(sys.argv[1]))
