"""What operations of numbers give, found once: Numba tries all ways to add two, wherever two are added.

It also writes down why each other way does not do, for a message that nobody reads.  In a kernel that is most
of what it takes to find out types.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator
from typing import Any

from numba import types

from dask_simjoin.engine.cpu.kernels.annotations import NumbaType, Signature, TargetContext, TypingContext

_FOUND: dict[tuple[NumbaType, tuple[NumbaType, ...]], Signature] = {}


@contextlib.contextmanager
def remembering(context: TypingContext, target: TargetContext) -> Iterator[None]:
    """Look up what operations give that were met before; for who has the compiler's lock.

    And do not look for new operations, as Numba does for each function that is called, and for more.
    """
    own = context.resolve_function_type
    if "resolve_function_type" in vars(context):
        yield
        return

    def resolve(function: Any, args: tuple[NumbaType, ...], named: dict[str, NumbaType]) -> Any:
        if named or not _is_known(function, args):
            return own(function, args, named)
        found = _FOUND.get((function, args))
        if found is None:
            found = own(function, args, named)
            if found is not None:
                _FOUND[function, args] = found
        return found

    context.resolve_function_type = resolve
    context.refresh = context._load_builtins
    target.refresh = functools.partial(_install, target)
    try:
        yield
    finally:
        del context.resolve_function_type, context.refresh, target.refresh


@contextlib.contextmanager
def loading_once(target: TargetContext) -> Iterator[None]:
    """Load all that Numba compiles with once: it would do so again for each attribute that it knows."""
    if "refresh" in vars(target):
        yield
        return
    load = target.refresh

    def refresh() -> None:
        target.refresh = functools.partial(_install, target)
        load()

    target.refresh = refresh
    try:
        yield
    finally:
        del target.refresh


def _install(target: TargetContext) -> None:
    """Take in what operations do that emit code: Numba keeps it in any registry."""
    for registry in list(target._registries):
        target.install_registry(registry)


def _is_known(function: Any, args: tuple[NumbaType, ...]) -> bool:
    """Whether types alone tell what an operation gives: of numbers, or an array and an index."""
    if function is operator.getitem:
        return isinstance(args[0], types.Array)
    return type(function) is types.Function and all(
        isinstance(kind, types.Number | types.Boolean) for kind in args
    )
