"""Compute totals, as numbers or vectors, and decide which candidates are pairs.

A norm is passed to kernels as a tuple whose type is the kind of norm. So Numba compiles
a kernel for each kind, and kernels for the usual norm, squares, contain no code for
other norms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import overload

from dask_simjoin.engine.cpu.kernels.jit import inline_source, kernel
from dask_simjoin.engine.cpu.kernels.simd import (
    I64,
    Builder,
    NormValue,
    Value,
    call,
    const,
    suffix,
)
from dask_simjoin.metrics.norms import Array, Norm


class Sums(NamedTuple):
    """Sums of differences: p = 1."""

    p: int


class Squares(NamedTuple):
    """Sums of squared differences: p = 2."""

    p: int


class Powers(NamedTuple):
    """Sums of other powers of differences. `bit`: second highest bit of p, where
    `add_term` begins.
    """

    p: int
    bit: int


class Roots(NamedTuple):
    """Sums of powers between integers. `p`, `bit`: as in `Powers`, for the whole part;
    `rest`: the 52 bits after the point.
    """

    p: int
    bit: int
    rest: int


class Largest(NamedTuple):
    """The largest difference: p infinite."""

    p: int


Kind = Sums | Squares | Powers | Roots | Largest

FIRST_BIT = 1 << 51
"""The first bit after the point in `Roots.rest`."""

SQUARES = Squares(2)


def kind_of(p: Norm) -> Kind:
    """Return the tuple that represents a norm in kernels."""
    if p == math.inf:
        return Largest(0)
    rest, p = int((p - int(p)) * 2**52), int(p)
    bit = 1 << (p.bit_length() - 2) if p > 1 else 0
    if rest:
        return Roots(p, bit, rest)
    if p == 1:
        return Sums(1)
    return SQUARES if p == 2 else Powers(p, bit)


def add_term(total: Any, t: Any, norm: Any) -> Any:
    """Add the term of the coordinate difference `t` to a total."""
    raise NotImplementedError


@inline_source
def _whole_power(a: float, norm: Any) -> float:
    """Return ``a**norm.p`` by squaring and multiplying, from the highest bit of p."""
    result = a
    bit = norm.bit
    while bit:
        result = result * result
        if norm.p & bit:
            result = result * a
        bit >>= 1
    return result


@overload(add_term, inline="always")
def _add_term_overload(total, t, norm):  # type: ignore[no-untyped-def]
    if norm.instance_class is Sums:
        return lambda total, t, norm: total + abs(t)
    if norm.instance_class is Squares:
        return lambda total, t, norm: total + t * t
    if norm.instance_class is Largest:
        return lambda total, t, norm: max(total, abs(t))

    if norm.instance_class is not Roots:
        return lambda total, t, norm: total + _whole_power(abs(t), norm)

    def roots(total, t, norm):  # type: ignore[no-untyped-def]
        root = abs(t)
        result = _whole_power(root, norm)
        rest = norm.rest
        while rest:
            root = math.sqrt(root)
            if rest & FIRST_BIT:
                result = result * root
            rest = (rest & (FIRST_BIT - 1)) << 1
        return total + result

    return roots


def larger(builder: Builder, a: Value, b: Value) -> Value:
    """The larger of two values in each lane; `b` if one of them is NaN."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def terms(builder: Builder, norm: NormValue, differences: list[Value]) -> list[Value]:
    if norm.kind is Squares:
        return [builder.fmul(t, t) for t in differences]
    if norm.kind not in (Sums, Powers, Roots, Largest):
        raise NotImplementedError(
            f"{norm.kind.__name__} has no vector instructions for its terms yet."
        )
    sizes = [
        call(builder, f"llvm.fabs.{suffix(t.type)}", t.type, t) for t in differences
    ]
    if norm.kind is Powers:
        return _powers(builder, norm.value, sizes)
    if norm.kind is Roots:
        return _roots(builder, norm.value, sizes, _powers(builder, norm.value, sizes))
    return sizes


def plus(builder: Builder, norm: NormValue, total: Value, term: Value) -> Value:
    """The totals plus one more term. LLVM may not fuse this addition with a product."""
    if norm.kind is Largest:
        return larger(builder, total, term)
    return builder.fadd(total, term)


def add_terms(
    builder: Builder,
    norm: NormValue,
    slots: list[Value],
    difference: Callable[[int], Value],
) -> None:
    """Add the terms of one dimension to the totals in these slots; a slot is a variable
    for one vector.

    `difference(n)`: emits the vector of differences for slot n. If all differences of a
    lane are NaN, its total is NaN.
    """
    together = len(slots) if norm.kind in (Powers, Roots) else 1
    for first in range(0, len(slots), together):
        some = range(first, first + together)
        for g, term in zip(
            some, terms(builder, norm, [difference(g) for g in some]), strict=True
        ):
            builder.store(plus(builder, norm, builder.load(slots[g]), term), slots[g])


def _powers(builder: Builder, norm: Value, sizes: list[Value]) -> list[Value]:
    """The powers of several vectors. One loop over the bits of the exponent computes
    them all.
    """
    p, first = (builder.extract_value(norm, k) for k in range(2))
    slots = [cgutils.alloca_once(builder, a.type) for a in sizes]
    for slot, a in zip(slots, sizes, strict=True):
        builder.store(a, slot)
    before = builder.block
    head, times = (
        builder.append_basic_block(f"power.{name}") for name in ("head", "times")
    )
    following, done = (
        builder.append_basic_block(f"power.{name}") for name in ("next", "done")
    )
    builder.branch(head)
    builder.position_at_end(head)
    bit = builder.phi(I64)
    bit.add_incoming(first, before)
    work = builder.append_basic_block("power.work")
    builder.cbranch(builder.icmp_signed("!=", bit, const(0)), work, done)
    builder.position_at_end(work)
    for slot in slots:
        result = builder.load(slot)
        builder.store(builder.fmul(result, result), slot)
    builder.cbranch(
        builder.icmp_signed("!=", builder.and_(p, bit), const(0)), times, following
    )
    builder.position_at_end(times)
    for slot, a in zip(slots, sizes, strict=True):
        builder.store(builder.fmul(builder.load(slot), a), slot)
    builder.branch(following)
    builder.position_at_end(following)
    bit.add_incoming(builder.lshr(bit, const(1)), following)
    builder.branch(head)
    builder.position_at_end(done)
    return [builder.load(slot) for slot in slots]


def _roots(
    builder: Builder, norm: Value, sizes: list[Value], products: list[Value]
) -> list[Value]:
    """The products, times the roots of several vectors. One loop over the bits after the
    point computes them all.
    """
    root_slots, slots = (
        [cgutils.alloca_once(builder, a.type) for a in sizes] for _ in range(2)
    )
    for k, slot in enumerate(slots):
        builder.store(sizes[k], root_slots[k])
        builder.store(products[k], slot)
    before, bits = builder.block, builder.extract_value(norm, 2)
    head, work, times, following, done = (
        builder.append_basic_block(f"root.{name}")
        for name in ("head", "work", "times", "next", "done")
    )
    builder.branch(head)
    builder.position_at_end(head)
    rest = builder.phi(I64)
    rest.add_incoming(bits, before)
    builder.cbranch(builder.icmp_signed("!=", rest, const(0)), work, done)
    builder.position_at_end(work)
    for slot in root_slots:
        root = builder.load(slot)
        name = f"llvm.sqrt.{suffix(root.type)}"
        builder.store(call(builder, name, root.type, root), slot)
    is_one = builder.icmp_signed("!=", builder.and_(rest, const(FIRST_BIT)), const(0))
    builder.cbranch(is_one, times, following)
    builder.position_at_end(times)
    for slot, root_slot in zip(slots, root_slots, strict=True):
        product = builder.fmul(builder.load(slot), builder.load(root_slot))
        builder.store(product, slot)
    builder.branch(following)
    builder.position_at_end(following)
    shifted = builder.shl(builder.and_(rest, const(FIRST_BIT - 1)), const(1))
    rest.add_incoming(shifted, following)
    builder.branch(head)
    builder.position_at_end(done)
    return [builder.load(slot) for slot in slots]


def zeros(builder: Builder, vector: ir.VectorType, number: int) -> list[Value]:
    """Allocate slots, which are variables for one vector of totals each, and set them
    to 0.
    """
    slots = [cgutils.alloca_once(builder, vector) for _ in range(number)]
    for slot in slots:
        builder.store(ir.Constant(vector, [0.0] * vector.count), slot)
    return slots


BLOCK = 512
"""`decide` handles this many candidates at a time: first `STEP` dimensions of all of
them, then the next.
"""

STEP = 4
"""After each `STEP` dimensions, candidates are dropped if their totals exceed the
threshold.
"""


def scratch() -> tuple[np.ndarray, ...]:
    """Return the last four arguments of `decide`."""
    return (*(np.empty(BLOCK, np.uint32) for _ in range(3)), np.empty(BLOCK))


@kernel
def decide(
    q_x: Array,
    d_x: Array,
    q_places: Array,
    d_places: Array,
    threshold: float,
    norm: Kind,
    near: Array,
    totals: Array,
    i: Array,
    j: Array,
    number: Array,
    total: Array,
) -> int:
    """Decide candidates. Write the indexes of those that are pairs to `near`, and their
    totals to `totals`.

    `q_x`, `d_x` (d, n or more): coordinates in index order. `q_places`, `d_places`: the
    candidates. The last four arguments are scratch for a block of candidates. Return
    the number of pairs.

    The code is branch-free, because the processor would often mispredict whether a
    total is too large.
    """
    dims = q_x.shape[0]
    found = 0
    for first in range(0, q_places.size, BLOCK):
        left = min(BLOCK, q_places.size - first)
        for t in range(left):
            i[t], j[t], number[t], total[t] = (
                q_places[first + t],
                d_places[first + t],
                t,
                0.0,
            )
        for begin in range(0, dims, STEP):
            kept = 0
            for t in range(left):
                a, b, sum_ = i[t], j[t], total[t]
                for k in range(begin, min(begin + STEP, dims)):
                    sum_ = add_term(sum_, q_x[k, a] - d_x[k, b], norm)
                i[kept], j[kept], number[kept], total[kept] = a, b, number[t], sum_
                kept += sum_ <= threshold
            left = kept
        for t in range(left):
            near[found + t], totals[found + t] = first + number[t], total[t]
        found += left
    return found


@kernel
def label(
    q_order: Array,
    q_labels: Array,
    d_order: Array,
    d_labels: Array,
    is_self_join: bool,
    q_places: Array,
    d_places: Array,
    left: Array,
    right: Array,
) -> None:
    """Convert pairs of places to pairs of labels, `left` and `right`.

    `q_order`, `d_order`: positions in index order. `q_labels`, `d_labels`: labels in
    index order. In a self-join, the label of the row with the smaller position goes to
    `left`.
    """
    for n in range(q_places.size):
        i, j = q_places[n], d_places[n]
        a, b = q_labels[i], d_labels[j]
        swap = is_self_join and d_order[j] < q_order[i]
        left[n] = b if swap else a
        right[n] = a if swap else b


@kernel
def orient(
    q_order: Array,
    d_order: Array,
    is_self_join: bool,
    q_places: Array,
    d_places: Array,
    q_first: int,
    d_first: int,
    left: Array,
    right: Array,
) -> None:
    """Convert pairs of places in parts of indexes to places in the whole indexes,
    `left` and `right`.

    `q_first`, `d_first`: first places of the parts. In a self-join, the place of the
    row with the smaller position goes to `left`.
    """
    for n in range(q_places.size):
        i, j = q_places[n], d_places[n]
        swap = is_self_join and d_order[j] < q_order[i]
        left[n] = d_first + j if swap else q_first + i
        right[n] = q_first + i if swap else d_first + j


@kernel
def gather(values: Array, places: Array, out: Array) -> None:
    for n in range(places.size):
        out[n] = values[places[n]]


@kernel
def measure(
    q_y: Array, d_y: Array, q_places: Array, d_places: Array, norm: Kind, totals: Array
) -> None:
    """Fill `totals` with the totals of pairs.

    `q_y`, `d_y` (n, d): coordinates in index order; `norm`: see `kind_of`.
    """
    dims = q_y.shape[1]
    for n in range(q_places.size):
        i, j = q_places[n], d_places[n]
        total = 0.0
        for k in range(dims):
            total = add_term(total, q_y[i, k] - d_y[j, k], norm)
        totals[n] = total


@kernel
def tally(
    left: Array,
    right: Array,
    totals: Array,
    limits: Array,
    by_row: bool,
    q_found: Array,
    d_found: Array,
) -> None:
    """Make a histogram of totals: count each pair at the smallest limit that its total
    does not exceed.

    `limits`: ascending. `by_row`: a pair counts for both of its rows, in `q_found` and
    `d_found` (n, limits). Otherwise all pairs count in `q_found` (1, limits).
    """
    for n in range(totals.size):
        first, size = 0, limits.size
        # a binary search without branches, because the processor would mispredict them
        while size > 1:
            half = size >> 1
            first += half * (limits[first + half - 1] < totals[n])
            size -= half
        if by_row:
            q_found[left[n], first] += 1
            d_found[right[n], first] += 1
        else:
            q_found[0, first] += 1


@kernel
def scatter(order: Array, values: Array, out: Array) -> None:
    """Reorder values from index order to the order of positions."""
    for i in range(values.size):
        out[order[i]] = values[i]
