"""Name what functions that emit code are given: by Numba, which types calls, and by LLVM's builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite.ir import IRBuilder as Builder
from llvmlite.ir import Type as LLVMType
from llvmlite.ir import Value as Value
from numba.types import Type as NumbaType

from dask_simjoin.metrics.types import Array

TargetContext: TypeAlias = Any
TypingContext: TypeAlias = Any
Signature: TypeAlias = Any
"""Numba's own classes, which it does not document."""

Values = Sequence[Value]
"""The arguments of a call."""

Intrinsic = tuple[Signature, Callable[..., Any]]
"""The types of a call, and what emits its code."""

Terms = tuple[Any, ...]
"""What is compared of one side, first the float32 filter or the decision: see `sides`."""

Tree = tuple[Array, Array, Array]
"""A tree of boxes: lower and upper bounds, and where each level begins."""

__all__ = [
    "Builder",
    "Intrinsic",
    "LLVMType",
    "NumbaType",
    "Signature",
    "TargetContext",
    "Terms",
    "Tree",
    "TypingContext",
    "Value",
    "Values",
]
