"""How terms are added to totals (see `dask_simjoin.metrics.norms`), by one number and by vectors of them.

Kernels take a norm as a tuple whose type says which kind of norm it is: so they are compiled for each
kind, and for the usual one, squares, nothing else than for squares is in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import overload

from dask_simjoin.engine.cpu.kernels.annotations import Builder, NumbaType, Value
from dask_simjoin.engine.cpu.kernels.vectors import I64, call, const, suffix
from dask_simjoin.metrics.norms import Norm


class Sums(NamedTuple):
    """Of differences: p = 1."""

    p: int


class Squares(NamedTuple):
    """Of their squares: p = 2."""

    p: int


class Powers(NamedTuple):
    """Of other powers of them; `bit` is the second highest one of p: where `norms.power` begins."""

    p: int
    bit: int


class Largest(NamedTuple):
    """The largest of them: p infinite."""

    p: int


Kind = Sums | Squares | Powers | Largest

SQUARES = Squares(2)


def kind_of(p: Norm) -> Kind:
    """The tuple that tells kernels a norm."""
    if p == math.inf:
        return Largest(0)
    p = int(p)
    if p == 1:
        return Sums(1)
    return SQUARES if p == 2 else Powers(p, 1 << (p.bit_length() - 2))


def add_term(total: Any, t: Any, norm: Any) -> Any:
    """The total with the term of the difference `t`."""
    raise NotImplementedError


@overload(add_term, inline="always")
def _add_term_overload(total, t, norm):  # type: ignore[no-untyped-def]
    if norm.instance_class is Sums:
        return lambda total, t, norm: total + abs(t)
    if norm.instance_class is Squares:
        return lambda total, t, norm: total + t * t
    if norm.instance_class is Largest:
        return lambda total, t, norm: max(total, abs(t))

    def powers(total, t, norm):  # type: ignore[no-untyped-def]
        a = abs(t)
        result = a
        bit = norm.bit
        while bit:
            result = result * result
            if norm.p & bit:
                result = result * a
            bit >>= 1
        return total + result

    return powers


def larger(builder: Builder, a: Value, b: Value) -> Value:
    """Lane by lane the larger one of two vectors; where one is no number it is `b`."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def terms(builder: Builder, kind: types.NamedUniTuple, norm: NumbaType,
          differences: list[Value]) -> list[Value]:  # fmt: skip
    """The terms of vectors of differences."""
    if kind.instance_class is Squares:
        return [builder.fmul(t, t) for t in differences]
    if kind.instance_class not in (Sums, Powers, Largest):
        raise NotImplementedError(f"{kind.instance_class.__name__} has no vectors of terms yet.")
    sizes = [call(builder, f"llvm.fabs.{suffix(t.type)}", t.type, t) for t in differences]
    return _powers(builder, norm, sizes) if kind.instance_class is Powers else sizes


def plus(builder: Builder, kind: types.NamedUniTuple, total: Value, term: Value) -> Value:
    """Totals with one more term: nothing here allows LLVM to fuse a product and a sum."""
    if kind.instance_class is Largest:
        return larger(builder, total, term)
    return builder.fadd(total, term)


def add_terms(builder: Builder, kind: types.NamedUniTuple, norm: NumbaType, slots: list[Value],
              difference: Callable[[int], Value]) -> None:  # fmt: skip
    """Add the terms of vectors of differences to the totals that lie in these slots.

    `difference`: makes the vector for the total of a number.  A lane whose differences are all no numbers
    has a total that is none.
    """
    together = len(slots) if kind.instance_class is Powers else 1
    for first in range(0, len(slots), together):
        some = range(first, first + together)
        for g, term in zip(some, terms(builder, kind, norm, [difference(g) for g in some]), strict=True):
            builder.store(plus(builder, kind, builder.load(slots[g]), term), slots[g])


def _powers(builder: Builder, norm: NumbaType, sizes: list[Value]) -> list[Value]:
    """Powers of several vectors, by one loop over the exponent's bits."""
    p, first = (builder.extract_value(norm, k) for k in range(2))
    slots = [cgutils.alloca_once(builder, a.type) for a in sizes]
    for slot, a in zip(slots, sizes, strict=True):
        builder.store(a, slot)
    before = builder.block
    head, times = (builder.append_basic_block(f"power.{name}") for name in ("head", "times"))
    following, done = (builder.append_basic_block(f"power.{name}") for name in ("next", "done"))
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
    builder.cbranch(builder.icmp_signed("!=", builder.and_(p, bit), const(0)), times, following)
    builder.position_at_end(times)
    for slot, a in zip(slots, sizes, strict=True):
        builder.store(builder.fmul(builder.load(slot), a), slot)
    builder.branch(following)
    builder.position_at_end(following)
    bit.add_incoming(builder.lshr(bit, const(1)), following)
    builder.branch(head)
    builder.position_at_end(done)
    return [builder.load(slot) for slot in slots]


def zeros(builder: Builder, vector: ir.VectorType, number: int) -> list[Value]:
    """Slots for totals to which nothing is added yet."""
    slots = [cgutils.alloca_once(builder, vector) for _ in range(number)]
    for slot in slots:
        builder.store(ir.Constant(vector, [0.0] * vector.count), slot)
    return slots
