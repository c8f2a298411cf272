"""Joins blocks of sets in NumPy arrays: Numba kernels, one core per call."""

from __future__ import annotations

import numpy as np

from dask_simjoin.sets.algorithms.cpu.nested import join
from dask_simjoin.sets.methods import SetMethod
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.types import Counters, SetBlock, SetPairs, sizes_of

ROOM = 1 << 16
"""Pairs for which memory is reserved at first."""


class CpuSetJoiner:
    """See `SetJoiner`."""

    def pairs(self, left: SetBlock, right: SetBlock | None, rule: Rule, method: str | SetMethod, *,
              limit: int | None = None, start: int = 0) -> SetPairs:  # fmt: skip
        room = ROOM
        while True:
            out = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)
            _, done, following = _run(left, right, rule, out, (limit or -1, start))
            if done >= 0:
                one, other, common = (column[:done] for column in out)
                return SetPairs(one, other, common, None if following < 0 else following)
            room *= 4

    def count(self, left: SetBlock, right: SetBlock | None, rule: Rule, method: str | SetMethod) -> int:
        return int(_run(left, right, rule)[0][0])

    def counts(self, left: SetBlock, right: SetBlock | None, rule: Rule,
               method: str | SetMethod) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        found = np.zeros(len(left["weights"]), np.int64)
        other = found if right is None else np.zeros(len(right["weights"]), np.int64)
        _run(left, right, rule, counts=(found, other))
        return found, other

    def counters(self, left: SetBlock, right: SetBlock | None, rule: Rule,
                 method: str | SetMethod) -> Counters:  # fmt: skip
        return Counters(*(int(n) for n in _run(left, right, rule)[0][1:]))


JOINER = CpuSetJoiner()

NOTHING = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32)


def _run(left: SetBlock, right: SetBlock | None, rule: Rule,
         out: tuple[np.ndarray, np.ndarray, np.ndarray] = NOTHING, part: tuple[int, int] = (-1, 0),
         counts: tuple[np.ndarray, np.ndarray] = NOTHING[:2]) -> tuple[np.ndarray, int, int]:  # fmt: skip
    same = right is None
    d = left if right is None else right
    most = [int(sizes_of(side)[-1]) if len(side["weights"]) else 1 for side in (left, d)]
    tally = np.zeros(5, np.int64)
    sides = [(side["offsets"], side["tokens"], side["weights"]) for side in (left, d)]
    done, following = join(*sides, same, rule.limits(*most), *out, *part, *counts, tally)
    return tally, done, following
