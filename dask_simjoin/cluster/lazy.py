"""Lazy clusters of Dask DataFrames: see `dask_simjoin.graph.driver`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_simjoin.cluster.algorithms.optics import Extraction, columns_for
from dask_simjoin.cluster.expressions.components import Labels, NearDuplicated
from dask_simjoin.cluster.expressions.optics import Extracted, Order
from dask_simjoin.cluster.expressions.spanning import Hierarchy, Tree
from dask_simjoin.errors import OptionTypeError
from dask_simjoin.graph.dask_private import new_collection
from dask_simjoin.graph.driver import LazyNearest
from dask_simjoin.graph.source import freeze
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.request.clusters import Choice, NearDuplicatedRequest


class LazyDistances(LazyNearest):
    """Makes joins, searches and clusters of Dask DataFrames by distance."""

    def marks(self, request: NearDuplicatedRequest, example: Series) -> Series:
        keep = False if request.counted else request.keep
        operands = self.spec, keep, request.grouping, example.astype(np.bool_)
        return self.of_rows(NearDuplicated, *operands)

    def labels(self, min_samples: int, example: Series) -> Series:
        """Label the rows by DBSCAN."""
        return self.of_rows(Labels, self.spec, min_samples, example)

    def labels_and_cores(
        self, min_samples: int, sample_weight: Any, example: Series
    ) -> tuple[Series, None]:
        """Label the rows by DBSCAN. The core rows of lazy rows stay unknown."""
        if sample_weight is not None:
            raise OptionTypeError(
                "sample_weight= needs arrays or frames in memory; compute() the rows "
                "first."
            )
        return self.labels(min_samples, example), None

    def order(
        self, max_eps: float, min_samples: int, mode: str, example: Frame
    ) -> Frame:
        """Order the rows by OPTICS."""
        return self.of_rows(Order, self.spec, max_eps, min_samples, mode, example)

    def ordering(self, found: Frame) -> None:
        """Return nothing, because the order is not computed yet."""

    def hierarchy(
        self,
        min_rows: int,
        samples: int,
        choice: Choice,
        named: int | None,
        example: Frame,
    ) -> Frame:
        """Cluster the rows by HDBSCAN. `named`: see `check_samples`."""
        operands = self.spec, min_rows, samples, choice, example, named
        return self.of_rows(Hierarchy, *operands)

    def fitted_hierarchy(self, *options: Any) -> None:
        """Return nothing, because the hierarchy is not computed yet."""

    def tree(self, samples: int, example: Frame) -> Frame:
        """Return the spanning tree of the rows."""
        return new_collection(Tree(self.source, self.spec, samples, example))


def extracted(frames: Sequence[Frame], how: Extraction) -> Series:
    """Extract labels from a lazy result of OPTICS."""
    source = freeze(frames[0], columns_for(how.eps))
    return new_collection(Extracted(source.inner, source, *how))
