"""The verbs of two tables, as functions: lazy if one of the frames is, eager on plain ones."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin import blocks
from dask_simjoin.backends.base import backend_for
from dask_simjoin.chunks import Chunk, make_chunk
from dask_simjoin.errors import OptionError
from dask_simjoin.graph.counts import MatchCounts
from dask_simjoin.graph.pairs import LEFT, Join
from dask_simjoin.graph.private import new_collection
from dask_simjoin.graph.source import seal
from dask_simjoin.ids import check_summaries
from dask_simjoin.inputs import MOST_BYTES, example_ids, unnamed
from dask_simjoin.partition import points, summarise
from dask_simjoin.spec import JoinSpec, known_options
from dask_simjoin.tables import alike, two_specs
from dask_simjoin.two_plan import TwoPlan, make_two_plan

HOW = INNER, _, SEMI, ANTI = ("inner", LEFT, "leftsemi", "leftanti")


@known_options
def join(frame: Any, other: Any, eps: Any, *, how: str = "inner", on: Any = None, left_on: Any = None,
         right_on: Any = None, id: Hashable | None = None, left_id: Hashable | None = None,
         right_id: Hashable | None = None, metric: str = "euclidean", p: float = 2,
         return_distance: bool = False, keep: Any = None, suffixes: Any = ("_left", "_right"),
         dropna: bool = False, method: str = "auto", partitioning: str = "auto",
         blocksize: Any = None) -> Any:  # fmt: skip
    """Every pair of a row of one table and a row of another; see `SimJoinAccessor.join`."""
    if how not in HOW:
        raise OptionError(f"how={how!r} is not allowed; use one of {', '.join(map(repr, HOW))}.")
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
        source, data = seal(frame, spec.columns), seal(other, _of(spec).columns)
        return new_collection(Join(source, data, spec, how, example))
    (q, d), plan = whole_chunks(frame, other, spec, named=True)
    like = example if how == LEFT else None
    found = example
    if len(plan):
        found = blocks.join_block(q, d, spec, plan.layout, False, list(example.columns), None, 0, like)
    if how != LEFT:
        return found
    counts = _counts(q, d, spec, plan)
    alone = blocks.unmatched(q, counts, spec, example)
    return backend_for(left).stacked([found, alone])


def pairs_example(left: Any, right: Any, spec: JoinSpec, optional: bool) -> Any:
    """An empty example of pairs; `optional`: right rows may be missing."""
    backend = backend_for(left)
    other = _of(spec)
    none = np.zeros(0, np.int64)
    columns = {"left": example_ids(left, spec), "right": example_ids(right, other)}
    if spec.return_distance:
        columns["distance"] = np.empty(0)
    columns |= {called: backend.values(left, name, none) for called, name in spec.kept_left.items()}
    columns |= {called: backend.values(right, name, none) for called, name in spec.kept_right.items()}
    example = backend.result(columns, 0)
    if not optional:
        return example
    of_right = ["right", *spec.kept_right]
    return example.astype({name: backend.optional(example[name].dtype) for name in of_right})


def _of(spec: JoinSpec) -> JoinSpec:
    assert spec.other is not None
    return spec.other


def whole_chunks(frame: Any, other: Any, spec: JoinSpec, named: bool) -> tuple[tuple[Chunk, Chunk], TwoPlan]:
    """One chunk of each of two plain frames, and their plan."""
    sides = [(frame, spec), (other, _of(spec))]
    summaries = [summarise(side, 0, own, named, 0) for side, own in sides]
    settings = replace(spec.settings, output=None)
    whole = replace(spec, partitioning="entity", blocksize=MOST_BYTES, settings=settings)
    plan = make_two_plan(summaries[:1], summaries[1:], whole)
    for summary, (_, own) in zip(summaries, sides, strict=True):
        if summary.ids is not None:
            check_summaries([summary.ids], own.id)
    known = plan.sources[0], plan.others[0]
    q, d = (
        make_chunk(side, (0, source), own, plan.layout)
        for (side, own), source in zip(sides, known, strict=True)
    )
    return (q, d), plan


def _counts(q: Chunk, d: Chunk, spec: JoinSpec, plan: TwoPlan) -> Any:
    """How many rows of the right table are near each row of the left one, by position."""
    return blocks.count_block(q, d, spec, plan.layout, False)[0] if len(plan) else 0


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
            counts = backend_for(frame).xp.zeros(len(frame), np.int64)
        return frame[(counts > 0) if matched else (counts == 0)]
    source, data = seal(frame, spec.columns), seal(other, _of(spec).columns)
    meta = frame._meta
    example = backend_for(meta).series(np.zeros(0, np.int64), meta.index[:0], "matches")
    counted = new_collection(MatchCounts(source.inner, source, data, spec, example))
    return frame[(counted > 0) if matched else (counted == 0)]


def _finite(frame: Any, spec: JoinSpec) -> Any:
    """The rows that take part."""
    if is_dask_collection(frame):
        return frame.map_partitions(_finite, spec, meta=frame._meta)
    kept = points(frame, spec)[1]
    return frame if kept is None else frame[kept]
