"""Joins blocks of sets in CuPy arrays."""

from __future__ import annotations

from collections.abc import Iterator

import cupy

from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.gpu.choice import options_for
from dask_simjoin.sets.algorithms.gpu.operands import Operands
from dask_simjoin.sets.algorithms.gpu.search import Done, Search
from dask_simjoin.sets.algorithms.gpu.sinks import Count, Each, Select
from dask_simjoin.sets.methods import SetMethod
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.types import Counters, SetBlock, SetPairs

BATCH = 1 << 22
"""Pairs from which on a batch ends."""


class GpuSetJoiner:
    """See `SetJoiner`.  A search goes through parts of its work, and `limit` ends it after one of them."""

    def pairs(self, left: SetBlock, right: SetBlock | None, rule: Rule, method: str | SetMethod, *,
              limit: int | None = None, start: int = 0) -> SetPairs:  # fmt: skip
        sink, following = Select(), None
        if _has_sets(left, right):
            join = Operands.of(left, right, rule)
            for done in Search(join, options_for(join, method), sink, limit).parts(start):
                following = done.next
                if limit is not None and sink.pairs >= limit:
                    break
        return SetPairs(*sink.columns(), following)

    def batches(self, left: SetBlock, right: SetBlock | None, rule: Rule,
                method: str | SetMethod) -> Iterator[SetPairs]:  # fmt: skip
        at: int | None = 0
        while at is not None:
            some = self.pairs(left, right, rule, method, limit=BATCH, start=at)
            at = some.next
            yield some

    def count(self, left: SetBlock, right: SetBlock | None, rule: Rule, method: str | SetMethod) -> int:
        return self._counted(left, right, rule, method)[1]

    def counts(self, left: SetBlock, right: SetBlock | None, rule: Rule,
               method: str | SetMethod) -> tuple[Array, Array]:  # fmt: skip
        if not _has_sets(left, right):
            found = cupy.zeros(len(left["weights"]), cupy.int64)
            return found, found if right is None else cupy.zeros(len(right["weights"]), cupy.int64)
        join = Operands.of(left, right, rule)
        sink = Each(join)
        for _ in Search(join, options_for(join, method), sink).parts():
            pass
        return sink.counts

    def counters(self, left: SetBlock, right: SetBlock | None, rule: Rule,
                 method: str | SetMethod) -> Counters:  # fmt: skip
        done, _, pairs = self._counted(left, right, rule, method)
        return Counters(done.listed, done.candidates, done.candidates, pairs)

    def _counted(self, left: SetBlock, right: SetBlock | None, rule: Rule,
                 method: str | SetMethod) -> tuple[Done, int, int]:  # fmt: skip
        """What was done, and how many pairs of rows, and of sets, match."""
        done = Done(0, 0, None)
        if not _has_sets(left, right):
            return done, 0, 0
        join = Operands.of(left, right, rule)
        sink = Count(join)
        for part in Search(join, options_for(join, method), sink).parts():
            done = part
        pairs, rows = sink.totals()
        return done, rows, pairs


JOINER = GpuSetJoiner()


def _has_sets(left: SetBlock, right: SetBlock | None) -> bool:
    return len(left["weights"]) > 0 and (right is None or len(right["weights"]) > 0)
