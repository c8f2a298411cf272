"""Which share of the true pairs a join is expected to find that may leave some out, as its tables tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dask_simjoin.engine.base import joiner_of_library
from dask_simjoin.engine.index.clusters import KMeansLayout
from dask_simjoin.planning.statistics.estimate import Estimate
from dask_simjoin.planning.statistics.recall import Recall, between, expected_recall, labelled
from dask_simjoin.planning.table import TableSummary
from dask_simjoin.planning.tables import OneTable, Tables, TwoTables

PARTS, MANY = 8, 4096
"""Parts into which samples are cut, and points above which half as many do: clusters are made for each."""


def estimate_lossy(tables: Tables, layout: Any,
                   estimated: Callable[[Any], Estimate]) -> tuple[Estimate, Recall]:  # fmt: skip
    """Return the pairs that a join by clusters is expected to find, and which share of the true ones.

    `estimated`: the pairs of a join by an exact layout.
    """
    assert isinstance(layout, KMeansLayout)
    found, recall = estimated(replace(layout, copies=True)), recall_of(tables, layout)
    share, low, high = (1.0, 0.0, 1.0) if math.isnan(recall.share) else recall[:3]
    expected = replace(
        found, pairs=found.pairs * share, low=found.low * low, high=found.high * high,
        total=found.total * share, total_low=found.total_low * low, total_high=found.total_high * high,
    )  # fmt: skip
    return expected, recall


def recall_of(tables: Tables, layout: KMeansLayout) -> Recall:
    """Expect the recall of a join by clusters, whose `layout` was made with the tables' samples.

    Rows that clusters were made of lie in them as others do not: pairs of each part of the samples are told
    by clusters of the other parts.  How these differ is part of how far the recall may be from what is told.
    """
    joiner = joiner_of_library(tables.spec.library)
    if all(len(table.points.x) >= table.rows for table in tables.each):
        exact = replace(layout, copies=True)
        return expected_recall([labelled(tables.left.points, tables.right.points, exact, joiner)])
    drawn = sum(len(table.points.x) for table in tables.each)
    number = PARTS if drawn <= MANY else PARTS // 2
    parts = []
    for which in range(number):
        own, other = (_part(tables, layout, number, which, rest) for rest in (False, True))
        by = other.layout()
        assert isinstance(by, KMeansLayout)
        parts.append(labelled(own.left.points, own.right.points, by, joiner))
    return between(expected_recall(parts), [expected_recall([part], 1) for part in parts])


def _part(tables: Tables, layout: KMeansLayout, number: int, which: int, rest: bool) -> Tables:
    """Return tables with one of so many parts of their samples, or the rest, for an exact join."""

    def cut(table: TableSummary) -> TableSummary:
        order = np.random.default_rng(len(table.points.x)).permutation(len(table.points.x))
        places = np.flatnonzero((order % number == which) != rest)
        spec = replace(table.spec, method=layout.options, approximate=False)
        return replace(table, points=table.points.take(places), spec=spec)

    left = cut(tables.left)
    return OneTable(left, left) if tables.right is tables.left else TwoTables(left, cut(tables.right))
