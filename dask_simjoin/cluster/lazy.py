"""Lazy clusters of Dask DataFrames: see `dask_simjoin.graph.driver`."""

from __future__ import annotations

from dask_simjoin.cluster.expressions.components import Labels, NearDuplicated
from dask_simjoin.cluster.expressions.optics import Order
from dask_simjoin.cluster.expressions.spanning import Hierarchy, Tree
from dask_simjoin.graph.dask_private import new_collection
from dask_simjoin.graph.driver import LazyNearest
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.request.clusters import Choice, NearDuplicatedRequest


class LazyDistances(LazyNearest):
    """Makes joins, searches and clusters of Dask DataFrames by distance."""

    def marks(self, request: NearDuplicatedRequest, example: Series) -> Series:
        keep = False if request.counted else request.keep
        operands = self.spec, keep, request.grouping, example
        return self.of_rows(NearDuplicated, *operands) != 0

    def labels(self, min_samples: int, example: Series) -> Series:
        """Label the rows by DBSCAN."""
        return self.of_rows(Labels, self.spec, min_samples, example)

    def order(
        self, max_eps: float, min_samples: int, mode: str, example: Frame
    ) -> Frame:
        """Order the rows by OPTICS."""
        return self.of_rows(Order, self.spec, max_eps, min_samples, mode, example)

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

    def tree(self, samples: int, example: Frame) -> Frame:
        """Return the spanning tree of the rows."""
        return new_collection(Tree(self.source, self.spec, samples, example))
