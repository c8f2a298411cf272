"""A disjoint-set forest that several threads change at once, without locks.

Parents are int32 at an address. A root is its own parent, and is smaller than all other nodes of its set.
A thread ties a root to a smaller node by one atomic compare-and-swap, which fails if the node is no longer
a root. All other writes replace a node's parent by one of its ancestors, so they may happen in any order.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.jit import device_function
from dask_simjoin.engine.cpu.kernels.simd import (
    I32,
    I64,
    Builder,
    Intrinsic,
    NumbaType,
    Signature,
    TargetContext,
    TypingContext,
    Value,
    Values,
    const,
)

RELAXED = "monotonic"
"""LLVM's memory order for single values: forests need no order between them."""


def _node(builder: Builder, parent: Value, node: Value) -> Value:
    """Pointer to the parent of a node."""
    address = builder.add(parent, builder.mul(node, const(4)))
    return builder.inttoptr(address, ir.PointerType(I32))


@intrinsic
def parent_of(typingctx: TypingContext, parent: NumbaType, node: NumbaType) -> Intrinsic:
    """The parent of a node."""

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        return builder.sext(builder.load_atomic(_node(builder, *args), RELAXED, 4), I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def put_parent(typingctx: TypingContext, parent: NumbaType, node: NumbaType, to: NumbaType) -> Intrinsic:
    """Replace the parent of a node that is not a root by another ancestor."""

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        parent, node, to = args
        builder.store_atomic(builder.trunc(to, I32), _node(builder, parent, node), RELAXED, 4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def tie_root(typingctx: TypingContext, parent: NumbaType, root: NumbaType, to: NumbaType) -> Intrinsic:
    """Tie a root to another node; False: it is no longer a root."""

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        parent, root, to = args
        old, new = builder.trunc(root, I32), builder.trunc(to, I32)
        done = builder.cmpxchg(_node(builder, parent, root), old, new, RELAXED)
        return builder.extract_value(done, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@device_function
def root_of(parent: int, node: int) -> int:
    """The root of a node; nodes on the way are tied to their grandparents."""
    up = parent_of(parent, node)
    while up != node:
        above = parent_of(parent, up)
        if above != up:
            put_parent(parent, node, above)
        node, up = up, above
    return node


@device_function
def unite(parent: int, i: int, j: int) -> int:
    """Join the sets of two nodes; return a node that is the root of both unless another thread ties it."""
    a, b = root_of(parent, i), root_of(parent, j)
    while a != b:
        if a < b:
            a, b = b, a
        if tie_root(parent, a, b):
            return b
        a, b = root_of(parent, a), root_of(parent, b)
    return a
