"""What a library of arrays must offer to join sets: `SetJoiner`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.methods import SetMethod
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.types import Counters, SetBlock, SetPairs


class SetJoiner(Protocol):
    """Finds the matching pairs of two blocks, or of one with itself (`right` is None): each once.

    Of one block these are pairs of distinct sets, as positions i < j.  A method is its name or its options.
    """

    def pairs(self, left: SetBlock, right: SetBlock | None, rule: Rule, method: str | SetMethod, *,
              limit: int | None = None, start: int = 0) -> SetPairs:  # fmt: skip
        """Return pairs of sets.

        `limit`: how many of them are enough; the search ends at the first set, of those that it goes through,
        with which they are so many or more, and `SetPairs.next` is what to give as `start` to go on.
        """

    def batches(self, left: SetBlock, right: SetBlock | None, rule: Rule,
                method: str | SetMethod) -> Iterator[SetPairs]:  # fmt: skip
        """Go through the same pairs, some at a time, in arrays that nobody may keep."""

    def count(self, left: SetBlock, right: SetBlock | None, rule: Rule, method: str | SetMethod) -> int:
        """Return how many pairs of rows the pairs of sets stand for: the sum of products of their weights."""

    def counts(self, left: SetBlock, right: SetBlock | None, rule: Rule,
               method: str | SetMethod) -> tuple[Array, Array]:  # fmt: skip
        """Return the weights of all partners of each set (n,), int64, by side; of one block twice one."""

    def counters(self, left: SetBlock, right: SetBlock | None, rule: Rule,
                 method: str | SetMethod) -> Counters:  # fmt: skip
        """Return what `count` does, counted."""
