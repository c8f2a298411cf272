"""Make the expressions of lazy minimum spanning trees, and of clusters of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.cluster.algorithms.condense import Chosen, choose, condense, told_of_rows
from dask_simjoin.cluster.algorithms.core_distances import sought
from dask_simjoin.cluster.algorithms.forest import Edges
from dask_simjoin.cluster.algorithms.spanning import distances_of, in_order, without_gaps
from dask_simjoin.cluster.expressions.tree_tasks import add_tree, rows_of_frame
from dask_simjoin.engine.base import frames_for
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.chunks import Chunks
from dask_simjoin.expressions.dask_private import Expr, List, PartitionsFiltered, Task
from dask_simjoin.expressions.lazy_join import LazyJoin
from dask_simjoin.expressions.row_values import FoundByChunk
from dask_simjoin.expressions.shared_work import share_work
from dask_simjoin.expressions.steps import Steps
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.cluster_requests import Choice
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.checks import check_samples, check_tree
from dask_simjoin.planning.goal import Goal, tree_goal
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import resources
from dask_simjoin.planning.tables import Tables


def prepare(plan: Plan, spec: JoinSpec, samples: int | None, least: int | None = None) -> None:
    """Refuse a tree that the worker that it comes to cannot hold; `least`: rows of a cluster, if any.

    `samples`: see `check_samples`.
    """
    check_samples(samples, plan.table_rows[0])
    check_tree(rows_of_frame(plan), least, resources(spec.library))
    if plan.sharing[1] > 1:
        share_work()


class Hierarchy(FoundByChunk):
    """Stand for clusters before they are planned."""

    _label = "simjoin_hdbscan"
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
    def goal(self) -> Goal:
        """The nearest rows of each row, and a tree."""
        return tree_goal(sought(self.operand("samples")))

    def _check_tables(self, tables: Tables, have: Resources) -> None:
        check_tree(tables.left.source_rows, self.operand("min_cluster_size"), have)

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        least, spec = self.operand("min_cluster_size"), self.operand("spec")
        prepare(plan, spec, self.operand("named"), least)
        how = least, self.operand("samples"), self.operand("choice"), self.operand("meta")
        return ChunkClusters(chunks, plan, spec.measure, *how)


class ChunkClusters(LabelledExpr):
    """Tell of the rows of each chunk their clusters, as the bits of numbers (n, 3)."""

    _label = "simjoin_hdbscan_clusters"
    _makes_result = True
    _parameters = ["chunks", "plan", "metric", "least", "samples", "choice", "meta"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").chunks) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        steps = Steps("simjoin_hdbscan", self.deterministic_token)
        places, tree = add_tree(steps, self.chunks, plan, self.operand("samples"), self.operand("meta"))
        how = (self.operand(name) for name in ("metric", "least", "choice", "meta"))
        found = steps.add("choose", 0, _clusters, rows_of_frame(plan), List(*places), tree, *how)
        for c in range(len(plan.chunks)):
            steps.layer[(self._name, c)] = Task((self._name, c), _told, found, c)
        return steps.layer


Fallen = tuple[list[np.ndarray], list[np.ndarray], Chosen]
"""Of each chunk's rows the clusters that they fall out of, and where; and what is told of clusters."""


def _clusters(rows: int, places: list[np.ndarray], tree: Edges, metric: Metric, least: int,
              choice: Choice, example: Frame) -> Fallen:  # fmt: skip
    places, (weight, start, end) = without_gaps(rows, places, tree)
    condensed = condense(*in_order(start, end, distances_of(weight, metric)), least, example)
    chosen = choose(condensed, choice)
    row_parent, row_lambda = condensed.row_parent, condensed.row_lambda
    return [row_parent[own] for own in places], [row_lambda[own] for own in places], chosen


def _told(fallen: Fallen, c: int) -> np.ndarray:
    """Stack what is told of a chunk's rows (n, 3), int64; floats as their bits."""
    row_parent, row_lambda, chosen = fallen
    told = told_of_rows(row_parent[c], row_lambda[c], chosen)
    return np.stack([column.view(np.int64) for column in told], axis=1)


class Tree(PartitionsFiltered, LazyJoin):
    """Stand for a spanning tree before it is planned: of one partition."""

    _label = "simjoin_spanning_tree"
    _parameters = ["source", "spec", "samples", "meta", "_partitions"]
    _defaults = {"_partitions": None}

    @property
    def goal(self) -> Goal:
        """The nearest rows of each row, and a tree."""
        return tree_goal(sought(self.operand("samples")))

    def _divisions(self) -> tuple[None, None]:
        return None, None

    def _check_tables(self, tables: Tables, have: Resources) -> None:
        check_tree(tables.left.source_rows, None, have)

    def _lower(self) -> Expr:
        prepare(self.plan, self.operand("spec"), self.operand("samples"))
        how = self.operand("spec").measure, self.operand("samples"), self.operand("meta")
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
        places, tree = add_tree(steps, self.chunks, plan, self.operand("samples"), self.operand("meta"))
        for place, _ in enumerate(self._partitions):
            key = (self._name, place)
            how = rows_of_frame(plan), List(*places), tree, self.operand("metric"), self.operand("meta")
            steps.layer[key] = Task(key, _edges, *how)
        return steps.layer


def _edges(rows: int, places: list[np.ndarray], tree: Edges, metric: Metric, example: Frame) -> Frame:
    return edges_frame(without_gaps(rows, places, tree)[1], metric, example)


def edges_frame(tree: Edges, metric: Metric, example: Frame) -> Frame:
    """Make a frame of a tree in order."""
    weight, start, end = tree
    start, end, away = in_order(start, end, distances_of(weight, metric))
    columns = dict(zip(example.columns, (start.astype(np.int64), end.astype(np.int64), away), strict=True))
    return frames_for(example).result(columns, len(start))
