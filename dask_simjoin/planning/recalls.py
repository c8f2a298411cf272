"""Which share of the true pairs a join is expected to find that may leave some out, as its tables tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dask_simjoin.engine.base import joiner_of_library
from dask_simjoin.engine.index.clusters import KMeansLayout
from dask_simjoin.planning.statistics.estimate import Estimate
from dask_simjoin.planning.statistics.recall import Recall, expected_recall
from dask_simjoin.planning.statistics.sample_pairs import sample_pairs
from dask_simjoin.planning.tables import Tables


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
    """Expect the recall of a join by clusters, from pairs of rows that they were not made of.

    Clusters of another draw would tell another share: which rows they part is luck.
    """
    joiner, exact = joiner_of_library(tables.spec.library), replace(layout, copies=True)
    points = [table.hidden for table in tables.each]
    return expected_recall(sample_pairs(points[0], points[-1], exact, joiner), exact, joiner)
