"""The smaller and the larger of two numbers: what Numba compiles functions for, a fiftieth of a second each.

Kernels say `min` and `max`; these are put in their place.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.annotations import (
    Builder,
    Intrinsic,
    NumbaType,
    Signature,
    TargetContext,
    TypingContext,
    Values,
)


def _chosen(typingctx: TypingContext, x: NumbaType, y: NumbaType, comparison: str) -> Intrinsic | None:
    both: Any = typingctx.unify_types(x, y)
    real = isinstance(both, types.Float)
    if not real and not isinstance(both, types.Integer):
        return None

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Any:
        first, second = (
            context.cast(builder, value, kind, both) for value, kind in zip(args, sig.args, strict=True)
        )
        if real:
            better = builder.fcmp_ordered(comparison, second, first)
        elif both.signed:
            better = builder.icmp_signed(comparison, second, first)
        else:
            better = builder.icmp_unsigned(comparison, second, first)
        return builder.select(better, second, first)

    return both(x, y), codegen


@intrinsic
def smaller(typingctx: TypingContext, x: NumbaType, y: NumbaType) -> Intrinsic | None:
    """Return `y` if it is less than `x`, else `x`: as `min` does, also if one of them is not a number."""
    return _chosen(typingctx, x, y, "<")


@intrinsic
def larger(typingctx: TypingContext, x: NumbaType, y: NumbaType) -> Intrinsic | None:
    """Return `y` if it is greater than `x`, else `x`: as `max` does, also if one of them is not a number."""
    return _chosen(typingctx, x, y, ">")
