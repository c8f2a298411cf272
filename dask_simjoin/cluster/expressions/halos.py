"""Define the expression that labels the rows of chunks with halos of twice the distance."""

from __future__ import annotations

from typing import Any

from dask_simjoin.cluster.algorithms.halo_dbscan import (
    ChunkClusters,
    GlobalNumbers,
    SharedRows,
    clusters_of_chunk,
    labels_of_chunk,
    number_clusters,
)
from dask_simjoin.graph.base import Steps, pick, picked
from dask_simjoin.graph.dask_private import Task
from dask_simjoin.graph.lazy_join import block_pair_of
from dask_simjoin.graph.row_values import ChunkValues
from dask_simjoin.graph.shuffle import ChunksOfParcels, register_tuples

register_tuples(ChunkClusters, SharedRows, GlobalNumbers)


class HaloLabels(ChunkValues):
    """Label the own rows of each chunk by DBSCAN: see `dask_simjoin.cluster.algorithms.halo_dbscan`."""

    _label = "simjoin_labels"
    _parameters = ["chunks", "plan", "spec", "min_samples"]

    def key(self, c: int) -> tuple[Any, ...]:
        """Return the key of the values of chunk `c`, which the worker that has the chunk makes."""
        chunks = self.chunks
        return self._name, chunks.place(c) if isinstance(chunks, ChunksOfParcels) else c

    def _layer(self) -> dict[Any, Any]:
        plan, spec, samples = self.operand("plan"), self.operand("spec"), self.operand("min_samples")
        steps = Steps("simjoin_dbscan", self.deterministic_token)
        add, threads, every = steps.add, plan.threads, range(len(plan.chunks))
        pairs = [block_pair_of(self.chunks, c, c, spec, plan.layout) for c in every]
        places = [self.key(c)[1] for c in every]
        found = [add("clusters", places[c], clusters_of_chunk, pairs[c], samples, threads) for c in every]
        shared = [add("shared", places[c], pick, some, 1) for c, some in enumerate(found)]
        numbers = add("number", 0, number_clusters, *shared)
        for c in every:
            key = self.key(c)
            own = picked(found[c], 0)
            steps.layer[key] = Task(key, labels_of_chunk, pairs[c], c, threads, own, numbers)
        return steps.layer
