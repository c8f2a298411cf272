"""Explicit SIMD of the nearest neighbours' float32 filter: some queries against a tile of 64.

It is that of `tile_simd` with three differences.  Queries lie in rows, so that each one's coordinates
share few cache lines.  More queries go through at a time: with 8 sums AVX2's two multipliers, which take
four cycles, would just be busy, with 12 they are.  And the query's term is compared with the sum instead
of beginning it, for which the bound of `index.filter` holds as well: a partial sum of start_j and
products is at most N_j/2 + |z_i||z_j| <= N_j + N_i/2 in size, so all roundings together err by at most
g(N_j + N_i/2); comparing errs by nothing; and for a pair Q is at least (g + u - u**2)(N_i + N_j).
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dask_simjoin.index.tiles import TILE
from dask_simjoin.kernels.cpu.tile_simd import REGISTER
from dask_simjoin.kernels.cpu.vectors import F32, I64, bits, call, const, load, splat, store, suffix

QUERIES = 6
"""Queries that go through a tile together."""

VECTORS = 4 if REGISTER == 64 else 2
"""Vectors of the tile at a time: 24 sums in the 32 registers of AVX-512, 12 in the 16 of AVX2."""

UNROLL = 2


@intrinsic
def tile_products(typingctx: Any, tile: Any, start: Any, dims: Any, rows: Any, step: Any, lanes: Any,
                  limits: Any, out: Any) -> Any:  # fmt: skip
    """Masks of the points of a tile for which start + <z, p> >= limit, for 6 queries p; their union.

    `tile`: address of float32 [dims][64]; `start`: of 64 float32; `rows`: of the queries' coordinates,
    `step` bytes from one query's to the next; `lanes`: of the 6 int64 numbers of queries; `limits`: of
    all queries' float32 limits; `out`: of the 6 masks to write, written if the union is not 0.
    """
    sig = types.uint64(*(types.int64,) * 8)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        tile_, start_, dims_, rows_, step_, lanes_, limits_, out_ = args
        vector = ir.VectorType(F32, REGISTER // 4)
        points, bounds = [], []
        for n in range(QUERIES):
            lane = load(builder, builder.add(lanes_, const(8 * n)), I64, 8)
            points.append(builder.add(rows_, builder.mul(lane, step_)))
            bounds.append(builder.add(limits_, builder.mul(lane, const(4))))
        masks = [cgutils.alloca_once_value(builder, const(0)) for _ in range(QUERIES)]
        for first in range(0, TILE // vector.count, VECTORS):
            _part(builder, tile_, start_, dims_, points, bounds, masks, vector, first)
        found = [builder.load(mask) for mask in masks]
        union = functools.reduce(builder.or_, found)
        with builder.if_then(builder.icmp_unsigned("!=", union, const(0)), likely=False):
            for n, mask in enumerate(found):
                store(builder, mask, builder.add(out_, const(8 * n)), 8)
        return union

    return sig, codegen


def _part(builder: Any, tile: Any, start: Any, dims: Any, points: list[Any], bounds: list[Any],
          masks: list[Any], vector: Any, first: int) -> None:  # fmt: skip
    """Add the bits of some vectors of the tile to the masks."""
    groups = range(first, first + VECTORS)
    slots = [[cgutils.alloca_once(builder, vector) for _ in groups] for _ in points]
    for g, group in enumerate(groups):
        begin = load(builder, builder.add(start, const(group * REGISTER)), vector, 4)
        for row in slots:
            builder.store(begin, row[g])

    def step(k: Any) -> None:
        at = builder.add(tile, builder.mul(k, const(TILE * 4)))
        z = [load(builder, builder.add(at, const(group * REGISTER)), vector, 4) for group in groups]
        offset = builder.mul(k, const(4))
        for point, row in zip(points, slots, strict=True):
            p = splat(builder, load(builder, builder.add(point, offset), F32, 4), vector)
            for g, slot in enumerate(row):
                # in one rounding or two, whichever is faster: this only filters
                total = call(
                    builder, f"llvm.fmuladd.{suffix(vector)}", vector, z[g], p, builder.load(slot)
                )
                builder.store(total, slot)

    whole = builder.mul(builder.sdiv(dims, const(UNROLL)), const(UNROLL))
    with cgutils.for_range_slice(builder, const(0), whole, const(UNROLL)) as (k, _):
        for u in range(UNROLL):
            step(builder.add(k, const(u)))
    with cgutils.for_range_slice(builder, whole, dims, const(1)) as (k, _):
        step(k)
    near = []
    for bound, row in zip(bounds, slots, strict=True):
        least = splat(builder, load(builder, bound, F32, 4), vector)
        near.append([builder.fcmp_ordered(">=", builder.load(slot), least) for slot in row])
    any_near = functools.reduce(builder.or_, [mask for row in near for mask in row])
    some = builder.icmp_unsigned("!=", bits(builder, any_near), const(0))
    with builder.if_then(some, likely=False):
        for mask, row in zip(masks, near, strict=True):
            for group, found in zip(groups, row, strict=True):
                more = builder.shl(bits(builder, found), const(group * vector.count))
                builder.store(builder.or_(builder.load(mask), more), mask)


