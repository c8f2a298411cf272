"""The verbs of two tables, as functions: lazy if one of the frames is, eager on plain ones."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin import blocks
from dask_simjoin.backends.base import backend_for, backend_named, searcher_for
from dask_simjoin.budget import MOST_BYTES
from dask_simjoin.checks import RANK_BYTES, check_rows
from dask_simjoin.chunks import Chunk, make_chunk
from dask_simjoin.doubts import LEAST_ROWS, raise_doubts, raise_if_none
from dask_simjoin.errors import TABLES, OptionError, in_table
from dask_simjoin.graph.counts import MatchCounts
from dask_simjoin.graph.nearest_join import NearestJoin
from dask_simjoin.graph.pairs import LEFT, Join
from dask_simjoin.graph.private import new_collection
from dask_simjoin.graph.source import seal
from dask_simjoin.ids import check_summaries
from dask_simjoin.inputs import eps_of, unnamed, whole_searched
from dask_simjoin.nearest_rows import named_rows, nearest_rows
from dask_simjoin.neighbors import search_chunk
from dask_simjoin.options import check_neighbors, known_options
from dask_simjoin.partition import RIGHT, points, summarise
from dask_simjoin.room import check_room, within_memory
from dask_simjoin.sampled import PROBE
from dask_simjoin.searches import make_nearest_plan, rows_found
from dask_simjoin.spec import JoinSpec
from dask_simjoin.tables import alike, check_other, one_or_two, pairs_example, two_specs
from dask_simjoin.two_plan import TwoPlan, make_two_plan
from dask_simjoin.wording import did_you_mean, shown

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
        source, data = seal(frame, spec.columns), seal(other, _of(spec).columns)
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
    return backend_for(left).stacked([found, alone])


@known_options
def knn_join(frame: Any, other: Any = None, k: int = 10, *, max_distance: float | None = None, on: Any = None,
             left_on: Any = None, right_on: Any = None, id: Hashable | None = None,
             left_id: Hashable | None = None, right_id: Hashable | None = None, metric: str = "euclidean",
             p: float = 2, keep: Any = None, suffixes: Any = ("_left", "_right"), dropna: bool = False,
             partitioning: str = "auto", blocksize: Any = None) -> Any:  # fmt: skip
    """The nearest rows of each row; see `SimJoinAccessor.knn_join`."""
    if other is not None:
        check_other("knn_join(other, k)", other, k=k)
    number = check_neighbors(k, partitioning)
    options = {"metric": metric, "p": p, "dropna": dropna, "partitioning": partitioning,
               "blocksize": blocksize, "eps_name": "max_distance", "return_distance": True}  # fmt: skip
    eps = 0.0 if max_distance is None else max_distance
    frame, other, left, right, spec = one_or_two(
        frame, other, eps, on=on, left_on=left_on, right_on=right_on, id=id, left_id=left_id,
        right_id=right_id, keep=keep, suffixes=suffixes, **options,
    )  # fmt: skip
    searcher_for(left)
    bound = math.inf if max_distance is None else spec.threshold
    example = nearest_example(left, right, spec)
    if is_dask_collection(frame):
        source = seal(frame, spec.columns)
        data = None if other is None else seal(other, _of(spec).columns)
        return new_collection(NearestJoin(source, data, spec, number, bound, example))
    if other is None:
        q, plan = whole_searched(frame, spec, number, named=True)
        d = q
    else:
        (q, d), plan = whole_chunks(frame, other, spec, named=True, neighbors=number)
    if not (len(q["ids"]) and len(d["ids"])):
        return example
    rows, device = rows_found(plan, number), backend_for(left).memory()
    # what is found is kept, and then told
    row_bytes = FOUND_BYTES + (plan.pair_bytes + RANK_BYTES if bound == math.inf else 0)
    check_room(rows, row_bytes, f"k={shown(k)}", False, device)
    state = search_chunk(q, d, plan.layout, number, (0, 0), same=other is None, bound2=bound)
    return nearest_rows(q, state, spec, example, named_rows(state, d, 0, spec))


def nearest_example(left: Any, right: Any, spec: JoinSpec) -> Any:
    """An empty example of the rows of a nearest-neighbour join."""
    pairs = pairs_example(left, right, spec, False)
    columns = {name: pairs[name] for name in pairs.columns}
    kept = {
        name: columns.pop(name) for name in list(columns) if name in spec.kept_left or name in spec.kept_right
    }
    own = {"left": columns["left"], "right": columns["right"], "rank": np.zeros(0, np.int64)}
    return backend_for(left).result(own | {"distance": columns["distance"]} | kept, 0)


def _of(spec: JoinSpec) -> JoinSpec:
    assert spec.other is not None
    return spec.other


def whole_chunks(frame: Any, other: Any, spec: JoinSpec, named: bool,
                 neighbors: int | None = None,
                 sampled: bool = False) -> tuple[tuple[Chunk, Chunk], TwoPlan]:  # fmt: skip
    """One chunk of each of two plain frames, and their plan; `neighbors`: how many are sought of each row."""
    sides = [(frame, spec), (other, _of(spec))]
    probed = sampled or neighbors is not None or min(map(len, (frame, other))) >= LEAST_ROWS
    most = None if sampled or neighbors is not None else PROBE
    summaries = [
        summarise(side, number, own, named, int(probed), most)
        for number, (side, own) in zip((0, RIGHT), sides, strict=True)
    ]
    for summary in summaries:
        check_rows(summary.source_rows, 0)
    settings = replace(spec.settings, output=None)
    whole = replace(spec, partitioning="entity", blocksize=MOST_BYTES, settings=settings)
    if neighbors is None:
        plan = make_two_plan(summaries[:1], summaries[1:], whole, counting=not named)
    else:
        plan = make_nearest_plan(summaries[:1], whole, neighbors, others=summaries[1:])
    for which, summary, (_, own) in zip(TABLES, summaries, sides, strict=True):
        if summary.ids is not None:
            with in_table(which):
                check_summaries([summary.ids], own.id)
    raise_doubts(plan.doubts, None)
    if named and most is not None:
        device = backend_named(spec.library).memory()
        check_room(plan.estimate.total_low, plan.pair_bytes, eps_of(spec), True, device)
    known = plan.sources[0], plan.others[0]
    q, d = (
        make_chunk(side, (0, source), replace(own, dims=plan.dims), plan.layout)
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
