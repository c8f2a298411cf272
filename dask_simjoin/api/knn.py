"""Find the nearest rows of rows, of the same table or of another."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for, searcher_for
from dask_simjoin.graph import nearest as lazy
from dask_simjoin.graph.base import nearest_example, series_example
from dask_simjoin.graph.dask_private import new_collection
from dask_simjoin.graph.nearest import NearestJoin
from dask_simjoin.graph.source import freeze
from dask_simjoin.graph.steps import check_other, one_or_two
from dask_simjoin.graph.verb import frame_verb, series_verb
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.planning.budget import check_room
from dask_simjoin.planning.checks import RANK_BYTES
from dask_simjoin.planning.outputs import nearest_output, rows_found
from dask_simjoin.request.inputs import example_of
from dask_simjoin.request.messages import shown
from dask_simjoin.request.requests import KDistancesRequest, KnnJoinRequest
from dask_simjoin.request.resolve import check_flag
from dask_simjoin.tasks.chunks import whole_chunk, whole_chunks
from dask_simjoin.tasks.mutual import mutual_state
from dask_simjoin.tasks.nearest import find_rows, kth_distance, nearest_rows, search_chunk, whole_rows

DISTANCES = "k_distance"
"""Name of the Series of distances to k-th neighbours."""

FOUND_BYTES = 16
"""Of a neighbour while neighbours are sought."""

BACK_BYTES = 4
"""For a neighbor in the other direction, which `mutual` compares with."""

MERGED = 3
"""Results that lie beside each other on a GPU, where rows of both directions are merged."""


@series_verb(KDistancesRequest)
def k_distances(frame: Frame, asked: KDistancesRequest) -> Series:
    """How far each row's k-th nearest neighbour is: to choose `eps` by.

    With ``k = min_samples - 1`` it is, but for rounding, the `eps` from which on a row is a core row of
    `dbscan`. Sorted, as `dask_simjoin.cluster.plots.plot_k_distances` draws them, distances have a
    knee where clusters end.

    Parameters
    ----------
    k : int
        At least 1; the row itself is not counted.
    on, id, metric, p, dropna, partitioning, blocksize
        As in `self_join`; `id` only says which column is no coordinate.

    Returns
    -------
    Series
        float64, named "k_distance", in the units of the metric, with the frame's index and partitions;
        inf where there are not so many other rows. Rows that `dropna` leaves out have no entry.

    Notes
    -----
    Ester, Kriegel, Sander & Xu (1996), "A density-based algorithm for discovering clusters in large
    spatial databases with noise", section 4.2. A chunk's rows meet only the chunks in which, by the
    sample of the plan, neighbours of them can be, the nearest first.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]})
    >>> df.simjoin.k_distances(2).tolist()
    [2.0, 1.0, 2.0, 8.0]
    """
    meta = example_of(frame)
    searcher_for(meta)
    number = asked.number()
    spec = asked.spec(meta)
    frames = frames_for(meta)
    example = series_example(meta, DISTANCES, np.float64)
    if is_dask_collection(frame):
        source = freeze(frame, spec.columns)
        return new_collection(lazy.KDistances(source.inner, source, spec, number, example))
    chunk, plan = whole_chunk(frame, spec, nearest_output(number))
    if number >= plan.rows:  # no row has so many neighbours
        far = frames.xp.full(len(chunk["ids"]), math.inf)
    else:
        state = search_chunk(chunk, chunk, plan.layout, number, (0, 0))
        far = kth_distance(state, number, spec.measure)
    return frames.series(far, chunk["ids"], DISTANCES)


@frame_verb(KnnJoinRequest)
def knn_join(frame: Frame, asked: KnnJoinRequest) -> Frame:
    """The `k` nearest rows of each row, exactly, wherever they are.

    Parameters
    ----------
    other : DataFrame, optional
        The table whose rows are found.  Default: this frame, in which no row is a neighbour of itself.
    k : int
        How many are found of each row, at most: fewer where there are not so many.
    max_distance : float or text, optional
        Rows that are further away are no neighbours.
    mutual : bool
        Whether to keep only rows each of which is among the `k` nearest of the other: with ``k=1`` mutual
        best matches.  Both directions are searched.  Of plain pandas frames rows stay in the order of one
        direction.  Of others, pairs are merged by their ids, and rows are in any order.
    by : column or list of columns, optional
        As in `self_join`: neighbours are sought among rows of the same group.  `max_distance` is needed then.
    on, left_on, right_on, id, left_id, right_id, keep, suffixes
        As of `join`, and without `other` as of `self_join`.
    metric, p, dropna, partitioning, blocksize
        As of `self_join`.
    method : {"auto", "tiles", "zorder"} or methods.ZOrder
        The engine: tiles, or for comparison lists in Z-order.  Both find the same rows.
    approximate : bool
        With ``method="zorder"``: whether to look only at rows next to a row in each list.  What is told
        is near, but nearer rows may be missed; which ones depends on how rows are divided into chunks.
        ``profile(k=...)`` with the same options measures how many are found.

    Returns
    -------
    DataFrame
        ``left`` and ``right`` (ids), ``rank`` (int64, from 1, the nearest), ``distance`` (float64), and
        what is kept.  The rows of a partition are in the order of their left rows, and then by rank.

    Raises
    ------
    UnsupportedFrameError, OptionError, ColumnError, CoordinateError, DuplicateIdError, BudgetError
        As `join` and its planning do.

    Notes
    -----
    Of rows at the same distance those that come first in their frame are nearer, so that results depend
    neither on partitions nor on the machine.  Each chunk's rows search the chunks that may have
    neighbours of them, the nearest first, within a distance that shrinks; in which ones neighbours can be
    is bounded by a sample, and ``plan(k=..., other=...)`` tells how many those are.  The order of search
    is that of best-first nearest neighbours (Hjaltason & Samet 1999, "Distance browsing in spatial
    databases", section 4), for blocks of rows.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 3.0]})
    >>> df.simjoin.knn_join(k=1)
       left  right  rank  distance
    0     0      1     1       1.0
    1     1      0     1       1.0
    2     2      1     1       2.0
    """
    if asked.other is not None:
        check_other("knn_join(other, k)", asked.other, k=asked.k)
    if not check_flag("mutual", asked.mutual) or _on_host(frame, asked.other):
        return _nearest(frame, asked)
    found = _nearest(frame, asked)
    if asked.other is None:
        back = found
    else:
        sides = {f"left_{name}": getattr(asked, f"right_{name}") for name in ("on", "id")}
        sides |= {f"right_{name}": getattr(asked, f"left_{name}") for name in ("on", "id")}
        back = _nearest(asked.other, replace(asked, other=frame, keep=None, **sides))
    turned = back[["right", "left"]].rename(columns={"right": "left", "left": "right"})
    return found.merge(turned, on=["left", "right"])


def _on_host(frame: Frame, other: Frame | None) -> bool:
    """Whether both tables are plain frames in the host's memory."""
    plain = not (is_dask_collection(frame) or is_dask_collection(other))
    return plain and frames_for(example_of(frame)).memory() is None


def _nearest(frame: Frame, asked: KnnJoinRequest) -> Frame:
    """Find the nearest rows of each row; of plain frames on the host only mutual ones, if requested."""
    number = asked.number()
    frame, other, left, right = one_or_two(frame, asked.other)
    spec = asked.spec(left, right)
    searcher_for(left)
    bound = asked.max_total(spec)
    example = nearest_example(left, left if right is None else right, spec)
    if is_dask_collection(frame):
        source = freeze(frame, spec.columns)
        data = None if other is None else freeze(other, spec.right.columns)
        return new_collection(NearestJoin(source, data, spec, number, bound, example))
    plain = [frame] if other is None else [frame, other]
    chunks, plan = whole_chunks(plain, spec, nearest_output(number, with_ids=True))
    q, d = chunks[0], chunks[-1]
    if not (len(q["ids"]) and len(d["ids"])):
        return example
    rows, device = plan.rows_found(number), frames_for(left).memory()
    row_bytes = plan.pair_bytes + RANK_BYTES if bound == math.inf else 0.0
    # on the host what is found becomes columns of the result
    if device is not None:
        row_bytes = (FOUND_BYTES + row_bytes) * (MERGED if asked.mutual else 1)
    elif asked.mutual:
        rows = max(rows, rows_found(plan.table_rows[::-1], number))
        row_bytes = max(FOUND_BYTES + BACK_BYTES, row_bytes)
    else:
        row_bytes = max(FOUND_BYTES, row_bytes)
    check_room(rows, row_bytes, f"k={shown(asked.k)}", False, device)
    search = functools.partial(
        search_chunk, layout=plan.layout, k=number, numbers=(0, 0), same=other is None, max_total=bound
    )
    if device is None and asked.mutual:
        return whole_rows(q, d, mutual_state(q, d, search), spec, example)
    state = search(q, d)
    if device is None:
        return whole_rows(q, d, state, spec, example)
    return nearest_rows(q, state, spec, example, find_rows(state, d, 0, spec))
