"""Explicit SIMD of the tile engine: boxes against tiles of 64 boxes, or of points.

Masks are ``uint64``: bit ``t`` speaks of lane ``t`` of a tile.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.annotations import (
    Builder,
    Intrinsic,
    NumbaType,
    Signature,
    TargetContext,
    TypingContext,
    Value,
    Values,
)
from dask_simjoin.engine.cpu.kernels.tile_simd import accumulate, join_bits, lanes_of
from dask_simjoin.engine.cpu.kernels.totals import add_terms, larger, zeros
from dask_simjoin.engine.cpu.kernels.vectors import F32, F64, const, load, splat
from dask_simjoin.engine.index.tiles import TILE


def _compare_boxes(builder: Builder, sig: Signature, args: Values,
                   between: Callable[..., Value]) -> Value:  # fmt: skip
    """Mask of the 64 boxes of which totals of what is `between` them and one box are within a limit."""
    lower_, upper_, dims_, low_, high_, limit_, norm_ = args
    kind, norm = (F32 if sig.args[5] == types.float32 else F64), sig.args[6]
    vector, groups, size = lanes_of(kind)
    slots = zeros(builder, vector, groups)

    def step(k: Value) -> None:
        offset = builder.mul(k, const(size))
        lo = splat(builder, load(builder, builder.add(low_, offset), kind, size), vector)
        hi = splat(builder, load(builder, builder.add(high_, offset), kind, size), vector)
        row = builder.mul(k, const(TILE * size))

        def of_boxes(g: int) -> Value:
            at = builder.add(row, const(g * vector.count * size))
            bounds = (load(builder, builder.add(side, at), vector, size) for side in (lower_, upper_))
            return between(builder, *bounds, lo, hi)

        add_terms(builder, norm, norm_, slots, of_boxes)

    accumulate(builder, dims_, step, 2)
    bound = splat(builder, limit_, vector)
    near = [builder.fcmp_ordered("<=", builder.load(slot), bound) for slot in slots]
    return join_bits(builder, near)


def _gap(builder: Builder, lower: Value, upper: Value, lo: Value, hi: Value) -> Value:
    zero = ir.Constant(lower.type, [0.0] * lower.type.count)
    return larger(builder, larger(builder, builder.fsub(lower, hi), builder.fsub(lo, upper)), zero)


def _span(builder: Builder, lower: Value, upper: Value, lo: Value, hi: Value) -> Value:
    return larger(builder, builder.fsub(upper, lo), builder.fsub(hi, lower))


@intrinsic
def boxes_near(typingctx: TypingContext, lower: NumbaType, upper: NumbaType, dims: NumbaType, low: NumbaType,
               high: NumbaType, limit: NumbaType, norm: NumbaType) -> Intrinsic:  # fmt: skip
    """Mask of the 64 boxes that are within reach of one box.

    `lower`, `upper`: addresses of [dims][64] numbers (the same one for points);
    `low`, `high`: of the box's bounds; `limit`: largest total, whose type (float32 or
    float64) is the type of all of them.  The gaps are added in the order and with the
    operations of the total itself, so in float64 rounding, which is monotone, keeps the
    bound a bound.
    """
    sig = types.uint64(*(types.int64,) * 5, limit, norm)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        return _compare_boxes(builder, sig, args, _gap)

    return sig, codegen


@intrinsic
def boxes_within(typingctx: TypingContext, lower: NumbaType, upper: NumbaType, dims: NumbaType,
                 low: NumbaType, high: NumbaType, limit: NumbaType,
                 norm: NumbaType) -> Intrinsic:  # fmt: skip
    """Mask of the 64 boxes whose points are all within a limit of all points of one box; see `boxes_near`.

    No difference of two of their points is larger than what the boxes span together, so by the same reason
    in float64 no total of theirs is larger than that of the spans.
    """
    sig = types.uint64(*(types.int64,) * 5, limit, norm)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        return _compare_boxes(builder, sig, args, _span)

    return sig, codegen
