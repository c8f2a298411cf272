"""Clusters of plain frames: see `dask_simjoin.tasks.local`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.catalog import AUTO
from dask_simjoin.cluster.algorithms.condensed_tree import (
    CLUSTER_FILL,
    Condensed,
    compile_labels,
    condense,
    label_tree,
)
from dask_simjoin.cluster.algorithms.condensed_tree import CLUSTERS as CLUSTER_COLUMNS
from dask_simjoin.cluster.algorithms.dbscan import (
    by_density,
    cores_by_density,
    cores_of_chunk,
    dbscan_of_chunk,
    label_by_density,
    layout_for_density,
)
from dask_simjoin.cluster.algorithms.duplicates import (
    CONNECTED,
    FIRST,
    best_of_chunk,
    by_priority,
    priorities,
    stays_in_chunk,
    stays_of_chunk,
)
from dask_simjoin.cluster.algorithms.edges import (
    all_cores,
    components_by_place,
    order_of,
)
from dask_simjoin.cluster.algorithms.optics import (
    COLUMNS,
    FOREST,
    Extraction,
    forest_of_chunk,
    is_dense,
    labels_of,
    labels_series,
    optics_of_chunk,
    optics_of_dense_chunk,
    order_of_all_rows,
)
from dask_simjoin.cluster.algorithms.spanning import (
    CoreDistances,
    distances_of,
    edges_frame,
    in_order,
    neighbors_needed,
    search_core_distances,
    tree_of_chunk,
)
from dask_simjoin.cluster.algorithms.weights import checked_weights, weighted_cores
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import rows_of_places, to_host, values_of
from dask_simjoin.engine.protocols import Edges, SearchLayout
from dask_simjoin.metrics.norms import Array, Frame, Series
from dask_simjoin.planning.budget import free_memory
from dask_simjoin.planning.checks import check_edges, check_samples
from dask_simjoin.planning.kilometers import count_copies
from dask_simjoin.planning.outputs import (
    CLUSTERS,
    COUNTS,
    LISTED_CLUSTERS,
    LISTS,
    tree_output,
)
from dask_simjoin.request.clusters import Choice, NearDuplicatedRequest
from dask_simjoin.request.options import MAX_WHOLE
from dask_simjoin.tasks.chunks import Chunk, Refine
from dask_simjoin.tasks.counts import count_block_pairs, no_edges
from dask_simjoin.tasks.left_out import kept_rows
from dask_simjoin.tasks.local import LocalJoins
from dask_simjoin.tasks.local_nearest import LocalNearest
from dask_simjoin.tasks.matches import BlockPair


class FittedHierarchy(NamedTuple):
    """The data that a fitted HDBSCAN keeps for `predict`, in host memory."""

    # start, end and length of the edges in the spanning tree, as in `condense`
    start: np.ndarray
    end: np.ndarray
    away: np.ndarray
    condensed: Condensed
    core: np.ndarray  # (n,), float64: core distance of each row
    samples: int  # the option `min_samples`, which counts the row itself
    choice: Choice


class Labeled(NamedTuple):
    """The result of DBSCAN."""

    labels: Array  # label of each row of the frame
    core: Array  # mask of the places with core rows (n,)
    # row at each place (n,), int32, among the rows that `dropna` keeps
    order: Array


class LocalDistances(LocalJoins, LocalNearest):
    """Joins, searches and clusters of plain frames by distance."""

    def marks(self, request: NearDuplicatedRequest, example: Series) -> Series:
        refine = self._density_for(2) if request.counted else None
        work = self.indexed(LISTED_CLUSTERS, refine=refine)
        found = frames_for(example).xp.zeros(len(work.chunks[0]["ids"]), np.bool_)
        if work.plan.meets:
            found = _marks(work.block_pair, request, self.threads)
            self.check_found(work.plan, found.any(), 0)
        return self.series(found, False, example.name)

    def labels(self, min_samples: int, example: Series) -> Series:
        """Label the rows by DBSCAN."""
        found = self._labeled(min_samples, None)
        index = self.frames[0].index
        return frames_for(example).series(found.labels, index, example.name)

    def labels_and_cores(
        self, min_samples: int, sample_weight: Any, example: Series
    ) -> tuple[Series, np.ndarray]:
        """Label the rows by DBSCAN. Return the labels, and the positions of the core rows
        among the rows that `dropna` keeps.

        `sample_weight`: weight of each row; None: every row has weight 1.
        """
        (frame,) = self.frames
        weights = checked_weights(sample_weight, len(frame))
        found = self._labeled(min_samples, weights)
        labels = frames_for(example).series(found.labels, frame.index, example.name)
        core = rows_of_places(found.core, found.order)
        return labels, np.flatnonzero(to_host(core))

    def _density_for(self, min_samples: int) -> Refine | None:
        """Return a function that may choose a layout that finds core rows without a
        join.
        """
        if self.spec.search.method != AUTO or self.spec.gated:
            return None
        return functools.partial(layout_for_density, min_samples, self.threads)

    def _labeled(self, min_samples: int, weights: np.ndarray | None) -> Labeled:
        refine = self._density_for(min_samples) if weights is None else None
        work = self.indexed(CLUSTERS, refine=refine)
        (chunk,), plan, _ = work
        if not plan.meets:
            xp = frames_for(self.frames[0]).xp
            labels = self.of_all_rows(xp.zeros(0, np.int64), -1)
            return Labeled(labels, xp.zeros(0, bool), xp.zeros(0, np.int32))
        if by_density(plan.layout):
            labels, core = label_by_density(
                chunk, plan.layout, min_samples, self.threads
            )
        else:
            block_pair = work.block_pair
            if weights is None:
                core = cores_of_chunk(block_pair, min_samples, self.threads)
            else:
                kept = kept_rows(self.frames[0], self.spec)
                some = slice(None) if kept is None else block_pair.xp.asarray(kept)
                core = weighted_cores(block_pair, weights[some], min_samples)
                core = core[order_of(chunk)]
            labels = dbscan_of_chunk(block_pair, core, self.threads)
        self.check_found(plan, self._unequal_pairs, 0)
        return Labeled(self.of_all_rows(labels, -1), core, order_of(chunk))

    def _unequal_pairs(self) -> int:
        """Count the pairs of rows that are not equal."""
        with warnings.catch_warnings(action="ignore"):  # they have been issued
            work = self.indexed(COUNTS)
        return int(count_block_pairs(work.block_pair)) - count_copies(
            self.frames, self.spec
        )

    def order(
        self, max_eps: float, min_samples: int, mode: str, example: Frame
    ) -> Frame:
        """Order the rows by OPTICS."""
        # the option that limits the bytes of a result applies to the ordered rows, not
        # to the pairs
        unlimited = replace(self.spec.settings, result=MAX_WHOLE)
        self.spec = replace(self.spec, settings=unlimited)
        (frame,), spec, frames = self.frames, self.spec, frames_for(example)
        work = self.indexed(LISTS, sampled=mode != FOREST)
        if not work.plan.meets:
            found = frames.xp.zeros((0, len(COLUMNS)), np.int64)
        elif mode == FOREST:
            found = forest_of_chunk(work.block_pair, min_samples, spec.measure)
        elif not spec.gated and is_dense(
            work.block_pair, work.plan.result.estimate.total
        ):
            found = optics_of_dense_chunk(work.block_pair, max_eps, min_samples)
        else:
            least = work.plan.result.estimate.total_low
            check_edges(least, max_eps, free_memory())
            found = optics_of_chunk(work.block_pair, max_eps, min_samples)
        return frames.rows(*order_of_all_rows(found, frame, spec), example)

    def ordering(self, found: Frame) -> np.ndarray:
        """Return the numbers of the rows in the order of OPTICS. `found`: its result."""
        places = to_host(values_of(found["ordering"]))
        left_out = np.count_nonzero(places < 0)
        return np.argsort(places, kind="stable")[left_out:]

    def hierarchy(
        self,
        min_rows: int,
        samples: int,
        choice: Choice,
        named: int | None,
        example: Frame,
    ) -> Frame:
        """Cluster the rows by HDBSCAN. `named`: see `check_samples`."""
        chunk, layout, distances = self.core_distances(samples, named, compile_labels)
        if distances is None:
            return self.clusters([])
        condensed = self._condensed(chunk, layout, distances, min_rows, example)[1]
        return self.labeled_tree(condensed, choice)

    def fitted_hierarchy(
        self,
        min_rows: int,
        samples: int,
        choice: Choice,
        named: int | None,
        example: Frame,
    ) -> FittedHierarchy | None:
        """Return the hierarchy of the rows, or None if there are no rows. `named`: see
        `check_samples`.
        """
        chunk, layout, distances = self.core_distances(samples, named)
        if distances is None:
            return None
        n = len(chunk["ids"])
        # the conversion to distances works in place, and the tree still needs the
        # totals, so copy them
        core = np.array(to_host(distances["core"])[:n])
        core = self.spec.measure.distance(core, np)
        core = rows_of_places(core, to_host(chunk["order"])[:n])
        edges, condensed = self._condensed(chunk, layout, distances, min_rows, example)
        start, end, away = map(to_host, edges)
        tree = condensed.on_host()
        return FittedHierarchy(start, end, away, tree, core, samples, choice)

    def _condensed(
        self,
        chunk: Chunk,
        layout: SearchLayout,
        distances: CoreDistances,
        min_rows: int,
        example: Frame,
    ) -> tuple[Edges, Condensed]:
        """Return the edges of the spanning tree of a chunk (start, end, distance), and
        the tree of clusters.
        """
        # each step frees its input, to keep the peak of memory low
        weight, start, end = tree_of_chunk(
            chunk, 0, layout, distances, last=True, threads=self.threads
        )
        away = distances_of(weight, self.spec.measure, self.threads)
        del weight
        edges = in_order(start, end, away)
        del start, end, away
        return edges, condense(*edges, min_rows, example, self.threads)

    def labeled_tree(self, condensed: Condensed, choice: Choice) -> Frame:
        """Make a result of HDBSCAN from a tree of clusters."""
        return self.clusters(label_tree(condensed, choice, self.threads))

    def clusters(self, columns: Sequence[Array]) -> Frame:
        """Make a result of HDBSCAN for all rows. `columns`: the columns of the result for
        the rows that `dropna` keeps; empty: there are no such rows.
        """
        frame, found = self.frames[0], {}
        frames = frames_for(frame)
        none = [frames.xp.zeros(0, dtype) for dtype in CLUSTER_COLUMNS.values()]
        fills = zip(CLUSTER_FILL.items(), columns or none, strict=True)
        for (name, fill), column in fills:
            found[name] = self.of_all_rows(column, fill)
        made = frames.result(found, len(frame))
        made.index = frame.index
        return made

    def tree(self, samples: int, example: Frame) -> Frame:
        """Return the spanning tree of the rows."""
        chunk, layout, distances = self.core_distances(samples, samples)
        if distances is None:
            return example
        tree = tree_of_chunk(
            chunk, 0, layout, distances, last=True, threads=self.threads
        )
        return edges_frame(tree, self.spec.measure, example, self.threads)

    def core_distances(
        self, samples: int, named: int | None, *prepared: Callable[[], object]
    ) -> tuple[Chunk, SearchLayout, CoreDistances | None]:
        """Index the rows. Return them as a chunk, the layout, and the core distances
        (None without rows).

        `named`: see `check_samples`. `prepared`: see `search_core_distances`.
        """
        (chunk,), plan, _ = self.indexed(tree_output(neighbors_needed(samples)))
        check_samples(named, len(chunk["ids"]))
        if not len(chunk["ids"]):
            return chunk, plan.layout, None
        # these keys serve to look up ids, but results are in row order
        chunk["id_keys"] = None
        distances = search_core_distances(
            chunk, plan.layout, samples, prepared=prepared, threads=self.threads
        )
        return chunk, plan.layout, distances


def extracted(frames: Sequence[Frame], how: Extraction) -> Series:
    """Extract labels from a result of OPTICS in memory."""
    (optics,) = frames
    labels = labels_of([optics], how.eps, how.options)
    return labels_series(labels, optics, how.example.name)


def _marks(
    block_pair: BlockPair, request: NearDuplicatedRequest, threads: int
) -> Array:
    """Return a mask of the rows to drop (n,), if all rows are in one chunk."""
    chunk, layout = block_pair.query, block_pair.layout
    if request.counted:  # each row with a neighbor
        cores = cores_by_density if by_density(layout) else cores_of_chunk
        core = cores(block_pair, 2, threads)
        return rows_of_places(core, order_of(chunk))
    if request.grouping == CONNECTED:
        within = components_by_place(block_pair, all_cores(chunk), threads)
        found = best_of_chunk(
            chunk, 0, request.keep, 0, within, no_edges(block_pair.xp)
        )
        return ~stays_in_chunk(chunk, found, found.candidates)
    order = (
        None
        if request.keep == FIRST
        else by_priority(priorities(chunk, request.keep, 0))
    )
    return ~stays_of_chunk(chunk, layout, order, threads=threads)
