"""Cut the queries of a join of two indexes: what a part of their places is compared with, nothing copied."""

from __future__ import annotations

from collections.abc import Iterator

from dask_simjoin.engine.cpu.methods.method import Choosing, CpuMethod
from dask_simjoin.engine.protocols import Layout, Rows
from dask_simjoin.metrics.types import Index


def comparisons(module: CpuMethod, q: Index, d: Index, layout: Layout, same: bool, rows: Rows | None,
                chosen: bool = False) -> Iterator[tuple[Index, Index, bool]]:  # fmt: skip
    """Go through the joins that give what the first side's places `rows` give; None: all of them do.

    Of one index with itself (`same`) a pair belongs to its earlier place: a part meets itself, and what
    comes after it and may be near.  `chosen`: for what connects rows, or finds the lowest labels.
    """
    if rows is None:
        yield q, d, same
        return
    start, stop = rows
    part = module.loose_part if chosen and isinstance(module, Choosing) else module.part
    some = part(q, start, stop)
    if not same:
        yield some, d, False
        return
    yield some, some, True
    yield some, part(q, stop, module.end(q, stop, layout)), False
