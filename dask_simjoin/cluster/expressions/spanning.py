"""Define the expressions and tasks of minimum spanning trees and of their clusters."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dask_simjoin.cluster.algorithms.condensed_tree import (
    CLUSTER_FILL,
    ChosenClusters,
    choose,
    condense,
    label_rows,
)
from dask_simjoin.cluster.algorithms.spanning import (
    begin_rounds,
    core_distances_of_state,
    distances_of,
    edges_between,
    edges_frame,
    in_order,
    join_core_distances,
    join_round,
    merge_trees,
    neighbors_needed,
    places_of_rows,
    search_core_distances,
    share_of_round,
    tree_of_chunk,
    without_gaps,
)
from dask_simjoin.engine.protocols import Edges, SearchLayout
from dask_simjoin.graph.base import LabelledExpr, Steps
from dask_simjoin.graph.chunks import Chunks
from dask_simjoin.graph.dask_private import (
    Expr,
    List,
    PartitionsFiltered,
    Task,
    TaskRef,
)
from dask_simjoin.graph.lazy_join import LazyJoin
from dask_simjoin.graph.nearest import add_parts
from dask_simjoin.graph.placement import on_worker_of, place_tasks
from dask_simjoin.graph.row_values import ChunkValues, FoundByChunk
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.checks import check_samples, check_tree
from dask_simjoin.planning.entity_chunks import EntityChunks
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import OutputSpec, tree_output
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import limits_for
from dask_simjoin.planning.tables import JoinStatistics
from dask_simjoin.request.clusters import Choice
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.nearest import ANY_TOTAL

SHARED_ROUNDS = 6
"""Number of Boruvka rounds that several tasks share. One task does the later rounds.

Each round reduces the number of components to between a third and a tenth, so later
rounds are short.
"""


def add_tree(
    steps: Steps, chunks: Chunks, plan: Plan, samples: int, example: Frame
) -> tuple[list[TaskRef], TaskRef]:
    """Add the tasks that find the spanning tree.

    Return two things: for each chunk, the frame positions of its rows; and the edges.

    Searches of nearest rows give the core distances. A tree of tasks merges the trees
    of the chunks, and the edges between any two chunks. If there is only one chunk,
    threads or workers share the rounds for its tree.
    """
    add, layout, sharing = steps.add, plan.layout, plan.work.sharing
    refs = [chunks.chunk_ref(c) for c in range(len(plan.chunks))]
    own = steps.row_numbers(plan, refs)
    places = _places(plan, own)
    number = max(1, min(neighbors_needed(samples), plan.rows))
    distances, trees = [], []
    for c in range(len(plan.work.searches)):
        threads = _threads(plan)
        parts = max(sharing[0], int(plan.work.parts[c]) if threads == 1 else 1)
        if len(refs) == 1:
            every = _add_searches(
                steps, chunks, layout, samples, parts, sharing[1], threads
            )
        else:
            options = layout, number, True, ANY_TOTAL
            states = add_parts(
                steps,
                c,
                plan.work.groups(c) or [[c]],
                chunks,
                own,
                options,
                parts,
                sharing[1],
            )
            every = [
                add(
                    "known",
                    (c, part),
                    core_distances_of_state,
                    chunks.chunk_ref(c, part),
                    own[c],
                    state,
                    samples,
                    plan.rows,
                )
                for part, state in enumerate(states)
            ]
        # each worker that shares rounds needs all core distances, so join them once per
        # worker
        if parts > 1:
            workers = [on_worker_of(worker, c) for worker in range(sharing[1])]
            every = [
                add("joined", worker, join_core_distances, *every) for worker in workers
            ]
        about = [(places[c], layout, some) for some in every]
        progress = (
            _add_rounds(steps, chunks, about, sharing[0]) if sharing[0] > 1 else None
        )
        distances.append(every[0])
        how = *about[0], progress, False, threads
        trees.append(add("tree", c, tree_of_chunk, refs[c], *how))
    between = [
        add(
            "between",
            b,
            edges_between,
            List(refs[i], refs[j]),
            List(places[i], places[j]),
            layout,
            List(distances[i], distances[j]),
            List(trees[i], trees[j]),
        )
        for b, (i, j) in enumerate(plan.work.joined.tolist())
    ]
    rows = [
        add("rows", c, places_of_rows, refs[c], some) for c, some in enumerate(places)
    ]
    merge = partial(merge_trees, rows_of_frame(plan), example)
    # 2 at a time, because each tree may have an edge per row
    return rows, steps.merged("merge", merge, [*trees, *between], fan_in=2)


def _add_searches(
    steps: Steps,
    chunks: Chunks,
    layout: SearchLayout,
    samples: int,
    parts: int,
    workers: int,
    threads: int,
) -> list[TaskRef]:
    """Add tasks that search the nearest rows of a single chunk.

    Each task handles some places with `threads` threads, and returns core distances.
    """
    found = []
    for part in range(parts):
        where = on_worker_of(part % workers, part) if workers > 1 else part
        some = part, parts
        distances = steps.add(
            "search",
            where,
            search_core_distances,
            chunks.chunk_ref(0, part),
            layout,
            samples,
            some,
            threads=threads,
        )
        found.append(distances)
    return found


def _threads(plan: Plan) -> int:
    """Return the number of threads in each task that works on all rows of a chunk."""
    return plan.indexing.threads if plan.work.sharing[0] == 1 else 1


def rows_of_frame(plan: Plan) -> int:
    """Return the number of rows of the frame, including rows that `dropna` removes."""
    return sum(rows for rows, _ in plan.tables.sources[0])


def _places(plan: Plan, own: list[int | TaskRef]) -> list[int | TaskRef]:
    """For each chunk, return the frame positions of all its rows; or of the first row,
    if the rows are consecutive.
    """
    counted = plan.counted
    return counted.starts.tolist() if isinstance(counted, EntityChunks) else own


def _add_rounds(
    steps: Steps, chunks: Chunks, about: list[tuple[Any, ...]], number: int
) -> TaskRef:
    """Add the rounds that tasks share, for the tree of a single chunk. Return the state
    after the last of them.

    `about`: for each worker, the arguments that follow the chunk. `number`: how many
    tasks share a round. After a round each worker merges the components itself, so that
    workers exchange only edges.
    """
    workers = range(len(about))
    whole = [(chunks.chunk_ref(0, worker), *about[worker]) for worker in workers]
    progress = [
        steps.add("begin", on_worker_of(worker), begin_rounds, *whole[worker], number)
        for worker in workers
    ]
    for n in range(SHARED_ROUNDS):
        found = []
        for part in range(number):
            worker = part * len(about) // number
            how = *whole[worker], progress[worker], (part, number)
            found.append(
                steps.add("share", on_worker_of(worker, n, part), share_of_round, *how)
            )
        progress = [
            steps.add(
                "round",
                on_worker_of(worker, n),
                join_round,
                *whole[worker],
                progress[worker],
                *found,
            )
            for worker in workers
        ]
    return progress[0]


def prepare(
    plan: Plan, spec: JoinSpec, samples: int | None, min_rows: int | None = None
) -> None:
    """Raise an error if the options do not fit the rows, or if the tree does not fit in
    the memory of one worker.

    `samples`: see `check_samples`. `min_rows`: minimum number of rows in a cluster;
    None if no clusters are chosen.
    """
    check_samples(samples, plan.tables.rows[0])
    check_tree(rows_of_frame(plan), min_rows, limits_for(spec.library))
    if plan.work.sharing[1] > 1:
        place_tasks()


class Hierarchy(FoundByChunk):
    """A lazy result of HDBSCAN whose chunks are not planned yet."""

    _label = "simjoin_hdbscan"
    _fill = CLUSTER_FILL
    _parameters = [
        "frame",
        "source",
        "spec",
        "min_cluster_size",
        "samples",
        "choice",
        "meta",
        "named",
        "chosen",
    ]

    @property
    def output(self) -> OutputSpec:
        """Memory for a tree, and for the nearest rows of each row."""
        return tree_output(neighbors_needed(self.operand("samples")))

    def _check_statistics(self, statistics: JoinStatistics, limits: Limits) -> None:
        check_tree(
            statistics.left.source_rows, self.operand("min_cluster_size"), limits
        )

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        min_rows, spec = self.operand("min_cluster_size"), self.operand("spec")
        prepare(plan, spec, self.operand("named"), min_rows)
        how = (
            min_rows,
            self.operand("samples"),
            self.operand("choice"),
            self.operand("meta"),
        )
        return ChunkClusters(chunks, plan, spec.measure, *how)


class ChunkClusters(ChunkValues):
    """For each chunk, return label, probability and outlier score of its rows (n, 3),
    int64; floats as bit patterns.
    """

    _label = "simjoin_hdbscan_clusters"
    _parameters = ["chunks", "plan", "metric", "min_rows", "samples", "choice", "meta"]

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        steps = Steps("simjoin_hdbscan", self.deterministic_token)
        places, tree = add_tree(
            steps, self.chunks, plan, self.operand("samples"), self.operand("meta")
        )
        how = (self.operand(name) for name in ("metric", "min_rows", "choice", "meta"))
        found = steps.add(
            "choose",
            0,
            _clusters,
            rows_of_frame(plan),
            List(*places),
            tree,
            *how,
            _threads(plan),
        )
        for c in range(len(plan.chunks)):
            steps.layer[(self._name, c)] = Task(
                (self._name, c), _labels_of_chunk, found, c
            )
        return steps.layer


RowClusters = tuple[list[np.ndarray], list[np.ndarray], ChosenClusters]
"""Input of `label_rows`: for each chunk, the row parents and row lambdas of its rows;
then the chosen clusters.
"""


def _clusters(
    rows: int,
    places: list[np.ndarray],
    tree: Edges,
    metric: Metric,
    min_rows: int,
    choice: Choice,
    example: Frame,
    threads: int,
) -> RowClusters:
    places, (weight, start, end) = without_gaps(rows, places, tree)
    away = distances_of(weight, metric, threads)
    condensed = condense(*in_order(start, end, away), min_rows, example, threads)
    chosen = choose(condensed, choice)
    row_parent, row_lambda = condensed.row_parent, condensed.row_lambda
    return (
        [row_parent[own] for own in places],
        [row_lambda[own] for own in places],
        chosen,
    )


def _labels_of_chunk(fallen: RowClusters, c: int) -> np.ndarray:
    """Stack labels, probabilities and outlier scores of a chunk's rows (n, 3), as
    64-bit patterns.
    """
    row_parent, row_lambda, chosen = fallen
    columns = label_rows(row_parent[c], row_lambda[c], chosen)
    return np.stack([column.view(np.int64) for column in columns], axis=1)


class Tree(PartitionsFiltered, LazyJoin):
    """A lazy spanning tree whose chunks are not planned yet. It has one partition."""

    _label = "simjoin_spanning_tree"
    _parameters = ["source", "spec", "samples", "meta", "_partitions"]
    _defaults = {"_partitions": None}

    @property
    def output(self) -> OutputSpec:
        """Memory for a tree, and for the nearest rows of each row."""
        return tree_output(neighbors_needed(self.operand("samples")))

    def _divisions(self) -> tuple[None, None]:
        return None, None

    def _check_statistics(self, statistics: JoinStatistics, limits: Limits) -> None:
        check_tree(statistics.left.source_rows, None, limits)

    def _lower(self) -> Expr:
        prepare(self.plan, self.operand("spec"), self.operand("samples"))
        how = (
            self.operand("spec").measure,
            self.operand("samples"),
            self.operand("meta"),
        )
        return TreeEdges(self._chunks(), self.plan, *how, self.operand("_partitions"))


class TreeEdges(PartitionsFiltered, LabelledExpr):
    """Find the edges of a spanning tree, as one partition."""

    _label = "simjoin_spanning_tree_edges"
    _makes_result = True
    _parameters = ["chunks", "plan", "metric", "samples", "meta", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> tuple[None, None]:
        return None, None

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        steps = Steps("simjoin_spanning", self.deterministic_token)
        places, tree = add_tree(
            steps, self.chunks, plan, self.operand("samples"), self.operand("meta")
        )
        for place, _ in enumerate(self._partitions):
            key = (self._name, place)
            how = (
                rows_of_frame(plan),
                List(*places),
                tree,
                self.operand("metric"),
                self.operand("meta"),
            )
            steps.layer[key] = Task(key, _edges, *how)
        return steps.layer


def _edges(
    rows: int, places: list[np.ndarray], tree: Edges, metric: Metric, example: Frame
) -> Frame:
    return edges_frame(without_gaps(rows, places, tree)[1], metric, example)
