"""The verbs of nearest neighbours, as functions."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.api.arguments import check_other, one_or_two, pairs_example
from dask_simjoin.api.join import FOUND_BYTES
from dask_simjoin.engine.base import frames_for, searcher_for
from dask_simjoin.expressions.dask_private import new_collection
from dask_simjoin.expressions.k_distances import KDistances
from dask_simjoin.expressions.nearest_join import NearestJoin
from dask_simjoin.expressions.source import freeze
from dask_simjoin.options.frames import checked_spec, example_of, unnamed
from dask_simjoin.options.messages import shown
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.options.validate import check_neighbors, known_options
from dask_simjoin.planning.checks import RANK_BYTES
from dask_simjoin.planning.free_memory import check_room
from dask_simjoin.planning.plan_nearest import rows_found
from dask_simjoin.tasks.nearest import kth_distance, search_chunk
from dask_simjoin.tasks.nearest_rows import find_rows, nearest_rows
from dask_simjoin.tasks.whole import _of, whole_chunks, whole_searched

DISTANCES = "k_distance"
"""Name of the Series of distances to k-th neighbours."""


@known_options
def k_distances(frame: Any, k: int, *, on: Any = None, id: Hashable | None = None,
                metric: str = "euclidean", p: float = 2, dropna: bool = False, partitioning: str = "auto",
                blocksize: Any = None) -> Any:  # fmt: skip
    """Each row's distance to its k-th nearest neighbour; see `SimJoinAccessor.k_distances`."""
    meta = example_of(frame)
    searcher_for(meta)
    number = check_neighbors(k, partitioning)
    spec = checked_spec(
        meta, 0.0, on=on, id=id, metric=metric, p=p, dropna=dropna, partitioning=partitioning,
        blocksize=blocksize,
    )  # fmt: skip
    spec = unnamed(spec)
    example = frames_for(meta).series(np.zeros(0), meta.index[:0], DISTANCES)
    if is_dask_collection(frame):
        source = freeze(frame, spec.columns)
        return new_collection(KDistances(source.inner, source, spec, number, example))
    chunk, plan = whole_searched(frame, spec, number)
    if number >= plan.rows:  # no row has so many neighbours
        far = frames_for(meta).xp.full(len(chunk["ids"]), math.inf)
    else:
        state = search_chunk(chunk, chunk, plan.layout, number, (0, 0))
        far = kth_distance(state, number, spec.measure)
    return frames_for(meta).series(far, chunk["ids"], DISTANCES)


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
        source = freeze(frame, spec.columns)
        data = None if other is None else freeze(other, _of(spec).columns)
        return new_collection(NearestJoin(source, data, spec, number, bound, example))
    if other is None:
        q, plan = whole_searched(frame, spec, number, named=True)
        d = q
    else:
        (q, d), plan = whole_chunks(frame, other, spec, named=True, neighbors=number)
    if not (len(q["ids"]) and len(d["ids"])):
        return example
    rows, device = rows_found(plan, number), frames_for(left).memory()
    # what is found is kept, and then told
    row_bytes = FOUND_BYTES + (plan.pair_bytes + RANK_BYTES if bound == math.inf else 0)
    check_room(rows, row_bytes, f"k={shown(k)}", False, device)
    state = search_chunk(q, d, plan.layout, number, (0, 0), same=other is None, bound2=bound)
    return nearest_rows(q, state, spec, example, find_rows(state, d, 0, spec))


def nearest_example(left: Any, right: Any, spec: JoinSpec) -> Any:
    """An empty example of the rows of a nearest-neighbour join."""
    pairs = pairs_example(left, right, spec, False)
    columns = {name: pairs[name] for name in pairs.columns}
    kept = {
        name: columns.pop(name) for name in list(columns) if name in spec.kept_left or name in spec.kept_right
    }
    own = {"left": columns["left"], "right": columns["right"], "rank": np.zeros(0, np.int64)}
    return frames_for(left).result(own | {"distance": columns["distance"]} | kept, 0)
