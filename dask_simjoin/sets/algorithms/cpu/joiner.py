"""Joins blocks of sets in NumPy arrays: Numba kernels, one core per call."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dask_simjoin.sets.algorithms.cpu.kernels.sides import LISTED, NEXT, TOTAL, Out
from dask_simjoin.sets.algorithms.cpu.search import EVERY, Search
from dask_simjoin.sets.methods import SetMethod
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.types import Counters, SetBlock, SetPairs

ROOM = 1 << 16
"""Pairs for which memory is reserved at first."""


BATCH = 1 << 18
"""Pairs of a batch, unless a set has more partners."""


class CpuSetJoiner:
    """See `SetJoiner`."""

    def pairs(self, left: SetBlock, right: SetBlock | None, rule: Rule, method: str | SetMethod, *,
              limit: int | None = None, start: int = 0) -> SetPairs:  # fmt: skip
        search = Search(left, right, rule, method)
        if search.next is not None:
            search.state[NEXT] = start
        enough = EVERY if limit is None else limit
        room, parts = ROOM, [_columns(0)]
        while search.next is not None and enough > 0:
            columns = _columns(room)
            done = search.run((*columns, NONE, NONE), enough)
            for column in columns:
                # shrinking gives the pages behind back without copying those before
                column.resize(done, refcheck=False)
            parts.append(columns)
            enough -= done
            room = 4 * room if done < room // 2 else 2 * room
        one, other, overlap = (np.concatenate(some) for some in zip(*parts, strict=True))
        if search.same or search.turned:
            one, other = other, one
        return SetPairs(one, other, overlap, search.next)

    def batches(self, left: SetBlock, right: SetBlock | None, rule: Rule,
                method: str | SetMethod) -> Iterator[SetPairs]:  # fmt: skip
        search = Search(left, right, rule, method)
        columns = _columns(BATCH)
        while search.next is not None:
            done = search.run((*columns, NONE, NONE))
            one, other, overlap = (column[:done] for column in columns)
            if search.same or search.turned:
                one, other = other, one
            yield SetPairs(one, other, overlap)
            if search.next is not None and done < len(columns[0]) // 2:
                columns = _columns(4 * len(columns[0]))

    def count(self, left: SetBlock, right: SetBlock | None, rule: Rule, method: str | SetMethod) -> int:
        return int(_counted(left, right, rule, method).tally[TOTAL])

    def counts(self, left: SetBlock, right: SetBlock | None, rule: Rule,
               method: str | SetMethod) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        search = Search(left, right, rule, method)
        found = np.zeros(len(left["weights"]), np.int64)
        other = found if right is None else np.zeros(len(right["weights"]), np.int64)
        sides = (other, found) if search.turned else (found, other)
        search.run((*_columns(0), *sides))
        return found, other

    def counters(self, left: SetBlock, right: SetBlock | None, rule: Rule,
                 method: str | SetMethod) -> Counters:  # fmt: skip
        return Counters(*_counted(left, right, rule, method).tally[LISTED:].tolist())


JOINER = CpuSetJoiner()

NONE = np.empty(0, np.int64)


def _columns(room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)


def _counted(left: SetBlock, right: SetBlock | None, rule: Rule, method: str | SetMethod) -> Search:
    search = Search(left, right, rule, method)
    out: Out = (*_columns(0), NONE, NONE)
    search.run(out)
    return search
