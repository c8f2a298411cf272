"""The verbs of two tables, as functions: lazy if one of the frames is, eager on plain ones."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.api.arguments import alike, check_other, pairs_example, two_specs
from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import OptionError
from dask_simjoin.expressions.counts import MatchCounts
from dask_simjoin.expressions.dask_private import new_collection
from dask_simjoin.expressions.pairs import LEFT, Join
from dask_simjoin.expressions.source import freeze
from dask_simjoin.options.frames import unnamed
from dask_simjoin.options.messages import did_you_mean, shown
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.options.validate import known_options
from dask_simjoin.planning.doubts import raise_if_none
from dask_simjoin.planning.free_memory import within_memory
from dask_simjoin.planning.plan_two import TwoPlan
from dask_simjoin.planning.statistics.partition import points
from dask_simjoin.tasks import pairs as blocks
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import count_block
from dask_simjoin.tasks.whole import _of, eps_of, whole_chunks

SEMI, ANTI = "leftsemi", "leftanti"
HOW = ("inner", LEFT, SEMI, ANTI)

FOUND_BYTES = 16
"""Of a neighbour while neighbours are sought."""


@known_options
def join(frame: Any, other: Any, eps: Any, *, how: str = "inner", on: Any = None, left_on: Any = None,
         right_on: Any = None, id: Hashable | None = None, left_id: Hashable | None = None,
         right_id: Hashable | None = None, metric: str = "euclidean", p: float = 2,
         return_distance: bool = False, keep: Any = None, suffixes: Any = ("_left", "_right"),
         dropna: bool = False, method: str = "auto", partitioning: str = "auto",
         blocksize: Any = None) -> Any:  # fmt: skip
    """Every pair of a row of one table and a row of another; see `SimJoinAccessor.join`."""
    if not isinstance(how, str) or how not in HOW:
        right = isinstance(how, str) and how == "right"
        swapped = f"; swap the tables: other.simjoin.join(frame, eps, how={LEFT!r})" if right else ""
        raise OptionError(
            f"how={shown(how)} is not allowed; use one of {', '.join(map(repr, HOW))}"
            f"{swapped or did_you_mean(how, HOW)}."
        )
    check_other("join(other, eps)", other, eps=eps)
    frame, other, left, right = alike(frame, other)
    spec = two_specs(
        left, right, eps, on=on, left_on=left_on, right_on=right_on, id=id, left_id=left_id,
        right_id=right_id, keep=keep, suffixes=suffixes, metric=metric, p=p, return_distance=return_distance,
        dropna=dropna, method=method, partitioning=partitioning, blocksize=blocksize,
    )  # fmt: skip
    if how in (SEMI, ANTI):
        return _some(frame, other, spec, how == SEMI)
    example = pairs_example(left, right, spec, how == LEFT)
    if is_dask_collection(frame):
        source, data = freeze(frame, spec.columns), freeze(other, _of(spec).columns)
        return new_collection(Join(source, data, spec, how, example))
    (q, d), plan = whole_chunks(frame, other, spec, named=True)
    like = example if how == LEFT else None
    found = example
    if len(plan):
        with within_memory(eps_of(spec)):
            found = blocks.join_block(q, d, spec, plan.layout, False, list(example.columns), None, 0, like)
        raise_if_none(plan.doubts, len(found))
    if how != LEFT:
        return found
    counts = _counts(q, d, spec, plan)
    alone = blocks.unmatched(q, counts, spec, example)
    return frames_for(left).stacked([found, alone])


def _counts(q: Chunk, d: Chunk, spec: JoinSpec, plan: TwoPlan) -> Any:
    """How many rows of the right table are near each row of the left one, by position."""
    return count_block(q, d, spec, plan.layout, False)[0] if len(plan) else 0


def _some(frame: Any, other: Any, spec: JoinSpec, matched: bool) -> Any:
    """The rows of the left table that are in a pair, or in none."""
    spec = unnamed(replace(spec, keep=(), names=(), other=unnamed(replace(_of(spec), keep=(), names=()))))
    if spec.dropna:
        frame = _finite(frame, spec)
        spec = replace(spec, dropna=False)
    if not is_dask_collection(frame):
        (q, d), plan = whole_chunks(frame, other, spec, named=False)
        counts = _counts(q, d, spec, plan)
        if isinstance(counts, int):
            counts = frames_for(frame).xp.zeros(len(frame), np.int64)
        return frame[(counts > 0) if matched else (counts == 0)]
    source, data = freeze(frame, spec.columns), freeze(other, _of(spec).columns)
    meta = frame._meta
    example = frames_for(meta).series(np.zeros(0, np.int64), meta.index[:0], "matches")
    counted = new_collection(MatchCounts(source.inner, source, data, spec, example))
    return frame[(counted > 0) if matched else (counted == 0)]


def _finite(frame: Any, spec: JoinSpec) -> Any:
    """The rows that take part."""
    if is_dask_collection(frame):
        return frame.map_partitions(_finite, spec, meta=frame._meta)
    kept = points(frame, spec)[1]
    return frame if kept is None else frame[kept]
