"""Explicit SIMD of the nearest neighbours: squared distances and gaps of a tile, with limits of their own.

Masks are ``uint64``: bit ``t`` speaks of lane ``t`` of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dask_simjoin.index.tiles import TILE
from dask_simjoin.kernels.cpu.tile_simd import REGISTER
from dask_simjoin.kernels.cpu.vectors import F32, F64, bits, const, load, splat, store

VECTORS = 4
"""Vectors of sums that are kept in registers at a time."""

UNROLLED_DIMS = 4
"""Up to here there is code without a loop over dimensions."""


def _by_dims(builder: Any, dims: Any, emit: Callable[[int | None], None]) -> None:
    """Run ``emit(d)`` for the few dimensions with code of their own, ``emit(None)`` for others."""
    done = builder.append_basic_block("dims.done")
    general = builder.append_basic_block("dims.any")
    switch = builder.switch(dims, general)
    for d in range(1, UNROLLED_DIMS + 1):
        block = builder.append_basic_block(f"dims.{d}")
        switch.add_case(const(d), block)
        builder.position_at_end(block)
        emit(d)
        builder.branch(done)
    builder.position_at_end(general)
    emit(None)
    builder.branch(done)
    builder.position_at_end(done)


def _sums(builder: Any, dims: Any, unrolled: int | None, vector: Any, squares: Any) -> list[Any]:
    """Sums over the dimensions, in their order, of the vectors that `squares(k)` emits."""
    slots = [cgutils.alloca_once(builder, vector) for _ in range(VECTORS)]
    for slot in slots:
        builder.store(ir.Constant(vector, [0.0] * vector.count), slot)

    def step(k: Any) -> None:
        # a product and a sum, each rounded: nothing here allows LLVM to fuse them
        for slot, square in zip(slots, squares(k), strict=True):
            builder.store(builder.fadd(builder.load(slot), square), slot)

    if unrolled is None:
        with cgutils.for_range_slice(builder, const(0), dims, const(1)) as (k, _):
            step(k)
    else:
        for k in range(unrolled):
            step(const(k))
    return [builder.load(slot) for slot in slots]


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@intrinsic
def tile_distances(typingctx: Any, tile: Any, dims: Any, point: Any, limit: Any, out: Any) -> Any:
    """Squared distances of 64 points to one: the definition; mask of those within `limit`.

    `tile`: address of float64 [dims][64]; `point`: of the point's first coordinate in its tile;
    `out`: of the 64 float64 to write.
    """
    sig = types.uint64(*(types.int64,) * 3, types.float64, types.int64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        tile_, dims_, point_, limit_, out_ = args
        vector = ir.VectorType(F64, REGISTER // 8)
        width = REGISTER
        mask = cgutils.alloca_once_value(builder, const(0))

        def emit(unrolled: int | None) -> None:
            bound = splat(builder, limit_, vector)
            for first in range(0, TILE // vector.count, VECTORS):
                groups = range(first, first + VECTORS)

                def squares(k: Any, groups: range = groups) -> Any:
                    offset = builder.mul(k, const(TILE * 8))
                    row = builder.add(tile_, offset)
                    p = splat(builder, load(builder, builder.add(point_, offset), F64, 8), vector)
                    for g in groups:
                        z = load(builder, builder.add(row, const(g * width)), vector, 8)
                        t = builder.fsub(z, p)
                        yield builder.fmul(t, t)

                for g, d2 in zip(groups, _sums(builder, dims_, unrolled, vector, squares), strict=True):
                    store(builder, d2, builder.add(out_, const(g * width)), 8)
                    near = bits(builder, builder.fcmp_ordered("<=", d2, bound))
                    near = builder.shl(near, const(g * vector.count))
                    builder.store(builder.or_(builder.load(mask), near), mask)

        _by_dims(builder, dims_, emit)
        return builder.load(mask)

    return sig, codegen


@intrinsic
def lanes_within(typingctx: Any, numbers: Any, limit: Any) -> Any:
    """Mask of those of 64 float64, at an address, that are at most `limit`."""
    sig = types.uint64(types.int64, types.float64)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = ir.VectorType(F64, REGISTER // 8)
        bound = splat(builder, args[1], vector)
        mask: Any = const(0)
        for g in range(TILE // vector.count):
            number = load(builder, builder.add(args[0], const(g * REGISTER)), vector, 8)
            near = bits(builder, builder.fcmp_ordered("<=", number, bound))
            mask = builder.or_(mask, builder.shl(near, const(g * vector.count)))
        return mask

    return sig, codegen


@intrinsic
def box_gaps(typingctx: Any, lower: Any, upper: Any, dims: Any, low: Any, high: Any, limits: Any,
             out: Any, kind: Any) -> Any:  # fmt: skip
    """Squared gaps of 64 boxes to one box; mask of the boxes whose gap is within their limit.

    `lower`, `upper`: addresses of [dims][64] numbers (the same one for points); `low`, `high`:
    of the box's bounds; `limits`: of 64 limits; `out`: of 64 numbers to write.  All are of the type of
    `kind`, a number.  In float64 a gap is computed with the operations of d2, in their order: rounding
    is monotone, so it is at most the d2 of any two points of the boxes as computed.
    """
    sig = types.uint64(*(types.int64,) * 7, kind)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lower_, upper_, dims_, low_, high_, limits_, out_, _ = args
        number, size = (F32, 4) if sig.args[7] == types.float32 else (F64, 8)
        vector = ir.VectorType(number, REGISTER // size)
        width = REGISTER
        mask = cgutils.alloca_once_value(builder, const(0))
        zero = ir.Constant(vector, [0.0] * vector.count)

        def emit(unrolled: int | None) -> None:
            for first in range(0, TILE // vector.count, VECTORS):
                groups = range(first, first + VECTORS)

                def squares(k: Any, groups: range = groups) -> Any:
                    offset = builder.mul(k, const(size))
                    lo = splat(builder, load(builder, builder.add(low_, offset), number, size), vector)
                    hi = splat(builder, load(builder, builder.add(high_, offset), number, size), vector)
                    row = builder.mul(k, const(TILE * size))
                    for g in groups:
                        at = builder.add(row, const(g * width))
                        a = builder.fsub(load(builder, builder.add(lower_, at), vector, size), hi)
                        b = builder.fsub(lo, load(builder, builder.add(upper_, at), vector, size))
                        gap = _larger(builder, _larger(builder, a, b), zero)
                        yield builder.fmul(gap, gap)

                for g, gap in zip(groups, _sums(builder, dims_, unrolled, vector, squares), strict=True):
                    at = const(g * width)
                    store(builder, gap, builder.add(out_, at), size)
                    limit = load(builder, builder.add(limits_, at), vector, size)
                    near = bits(builder, builder.fcmp_ordered("<=", gap, limit))
                    near = builder.shl(near, const(g * vector.count))
                    builder.store(builder.or_(builder.load(mask), near), mask)

        _by_dims(builder, dims_, emit)
        return builder.load(mask)

    return sig, codegen
