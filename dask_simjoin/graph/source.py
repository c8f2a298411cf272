"""Sources: frozen expressions, what is computed of their partitions, and indexed chunks.

The source's partitioning is frozen: Dask may merge partitions of a source of which few columns are
read, after which block pairs would name other chunks than were planned.  So the source is no operand
that Dask's optimiser could see, but sealed, and optimised here without that step.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from dask.delayed import Delayed
from dask.tokenize import normalize_token, tokenize

from dask_simjoin.blocks import make_chunk
from dask_simjoin.graph.private import Alias, Blockwise, Expr, List, Task, TaskRef
from dask_simjoin.index.layout import Layout
from dask_simjoin.spec import JoinSpec


class Sealed:
    """An expression that Dask's optimiser does not look into, and the plans made for it."""

    def __init__(self, expr: Expr) -> None:
        self.inner = expr
        self.plans: dict[Any, Any] = {}
        self.lock = threading.Lock()

    def __reduce__(self) -> Any:
        return Sealed, (self.inner,)

    def __dask_tokenize__(self) -> Any:
        return normalize_token(("dask_simjoin.Sealed", self.inner._name))

    def __repr__(self) -> str:
        return f"<{self.inner._name}>"


def seal(ddf: Any, columns: list[Any]) -> Sealed:
    """The columns of a Dask DataFrame as a sealed source."""
    return Sealed(ddf[columns].expr)


def sealed_map(name: str, function: Callable[..., Any], source: Sealed, *args: Any) -> Expr:
    """`function` of each partition of the source, fused with what reads it.

    Optimised with the partitions it has: Dask's tuning, which may merge them, is left out.
    """
    expr = MapPartition(source.inner, name, function, args)
    return expr.simplify().lower_completely().simplify().fuse()


class MapPartition(Blockwise):
    """One task for each partition; what it returns need not be a frame."""

    _parameters = ["frame", "label", "function", "arguments"]

    @functools.cached_property
    def _meta(self) -> Any:
        return None

    def _divisions(self) -> Any:
        return self.frame.divisions

    @functools.cached_property
    def _name(self) -> str:
        return f"{self.operand('label')}-{self.deterministic_token}"

    def _task(self, name: Any, index: int) -> Task:
        frame = TaskRef((self.frame._name, index))
        return Task(name, self.operand("function"), frame, *self.operand("arguments"))


def gather(name: str, graph: dict[Any, Any], keys: list[Any]) -> list[Any]:
    """Compute the keys of a graph, with whatever scheduler Dask is set to use."""
    key = f"{name}-{tokenize(keys)}"
    graph[key] = Task(key, list, List(*(TaskRef(k) for k in keys)))
    found: list[Any] = Delayed(key, graph).compute()
    return found


class Chunks(Expr):
    """The indexed chunks; not Blockwise, so that Dask does not fuse them into the block pairs."""

    _parameters = ["sealed"]

    @functools.cached_property
    def _meta(self) -> Any:
        return None

    def _divisions(self) -> Any:
        return self.operand("sealed").inner.divisions

    @functools.cached_property
    def _name(self) -> str:
        return f"simjoin_index-{self.deterministic_token}"

    def _layer(self) -> dict[Any, Any]:
        expr = self.operand("sealed").inner
        layer = dict(expr.__dask_graph__())
        for i, key in enumerate(expr.__dask_keys__()):
            layer[(self._name, i)] = Alias((self._name, i), key)
        return layer


def indexed_chunks(source: Sealed, spec: JoinSpec, layout: Layout) -> Chunks:
    """Each partition of the source as an indexed chunk."""
    return Chunks(Sealed(sealed_map("simjoin_chunk", make_chunk, source, spec, layout)))


def chunk_refs(chunks: Expr, i: int, j: int) -> tuple[TaskRef, TaskRef]:
    """Two chunks as a task's arguments."""
    return TaskRef((chunks._name, i)), TaskRef((chunks._name, j))
