"""Define the expressions that label chunks with halos separately, and join the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from dask_simjoin.cluster.algorithms.halo_dbscan import (
    clusters_of_chunk,
    labels_of_chunk,
    number_shared_clusters,
)
from dask_simjoin.cluster.algorithms.halo_duplicates import (
    choose_winners,
    groups_of_chunk,
    marks_of_chunk,
    near_others,
)
from dask_simjoin.graph.base import Steps, pick, picked
from dask_simjoin.graph.dask_private import Expr, Task
from dask_simjoin.graph.lazy_join import block_pair_of
from dask_simjoin.graph.returned_rows import rows_by_worker
from dask_simjoin.graph.row_values import ChunkValues, FoundByChunk
from dask_simjoin.planning.entity_chunks import BY_WORKER, is_shuffled
from dask_simjoin.planning.plan import Plan


def has_halos(plan: Plan) -> bool:
    """Return whether each chunk has halos on all sides, so that it is labeled alone."""
    return is_shuffled(plan.counted) and plan.counted.mutual


class FoundByRegion(FoundByChunk):
    """Lazy values of rows. If workers send rows to each other, the values return to the
    tasks that sent the rows.
    """

    def _values(self) -> Expr:
        own = self.plan.counted
        if not is_shuffled(own) or own.method != BY_WORKER:
            return super()._values()
        chunks = self._chunks()
        divisions, chosen = self._source.inner.divisions, self.operand("chosen")
        found = self._found(chunks, self.plan)
        return rows_by_worker(
            f"{self._label}_rows",
            found,
            chunks,
            own.offsets,
            self._meta,
            divisions,
            chosen,
        )


class HaloValues(ChunkValues):
    """Base class: values of each chunk's own rows, without its halo.

    Each chunk makes its own results, and a message about rows that other chunks may
    have. One task joins all messages. Then each chunk makes the values of its rows.
    """

    _steps: ClassVar[tuple[str, str]]  # label of the steps, and name of the first one
    # functions of the steps: find (block pair, option, threads), join (messages), and
    # make values (block pair, number of the chunk, threads, own results, what was joined)
    _find: ClassVar[Callable[..., Any]]
    _join: ClassVar[Callable[..., Any]]
    _make: ClassVar[Callable[..., Any]]

    @property
    def _option(self) -> Any:
        """The option of the verb that chunks need to find their results."""
        return self.operand(self._parameters[-1])

    def place(self, c: int) -> Any:
        """Return the place of chunk `c`, so that the worker that has the chunk computes
        its values.
        """
        return self.chunks.place(c)

    def _pairs(self) -> list[Task]:
        """Return the block pair of each chunk with itself."""
        plan, spec = self.operand("plan"), self.operand("spec")
        every = range(len(plan.chunks))
        return [block_pair_of(self.chunks, c, c, spec, plan.layout) for c in every]

    def _layer(self) -> dict[Any, Any]:
        label, first = self._steps
        steps, pairs = Steps(label, self.deterministic_token), self._pairs()
        add, threads = steps.add, self.operand("plan").indexing.threads
        places = [self.place(c) for c in range(len(pairs))]
        found = [
            add(first, place, type(self)._find, pair, self._option, threads)
            for place, pair in zip(places, pairs, strict=True)
        ]
        shared = [
            add("shared", place, pick, some, 1)
            for place, some in zip(places, found, strict=True)
        ]
        joined = add("number", 0, type(self)._join, *shared)
        for c, pair in enumerate(pairs):
            key, own = self.key(c), picked(found[c], 0)
            how = pair, c, threads, own, joined
            steps.layer[key] = Task(key, type(self)._make, *how)
        return steps.layer


class HaloLabels(HaloValues):
    """Labels of DBSCAN: see `dask_simjoin.cluster.algorithms.halo_dbscan`."""

    _label = "simjoin_labels"
    _parameters = ["chunks", "plan", "spec", "min_samples"]
    _steps = "simjoin_dbscan", "clusters"
    _find = clusters_of_chunk
    _join = number_shared_clusters
    _make = labels_of_chunk


class HaloMarks(HaloValues):
    """Marks of near duplicates with one row to keep per connected component: see
    `dask_simjoin.cluster.algorithms.halo_duplicates`.
    """

    _label = "simjoin_duplicates_of_groups"
    _parameters = ["chunks", "plan", "spec", "keep"]
    _steps = "simjoin_duplicates", "groups"
    _find = groups_of_chunk
    _join = choose_winners
    _make = marks_of_chunk


class HaloMarksOfAllNear(HaloValues):
    """Marks of all rows that are near another row. Chunks do not need messages."""

    _label = "simjoin_duplicates_all"
    _parameters = ["chunks", "plan", "spec", "keep"]

    def _layer(self) -> dict[Any, Any]:
        threads = self.operand("plan").indexing.threads
        keys = [self.key(c) for c in range(len(self.operand("plan").chunks))]
        return {
            key: Task(key, near_others, pair, threads)
            for key, pair in zip(keys, self._pairs(), strict=True)
        }
