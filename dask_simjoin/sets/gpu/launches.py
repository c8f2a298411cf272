"""Launch the kernels that join sets: their operands, batches of candidates, and sinks
for matching pairs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import cupy
import numpy as np

from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.load import NOWHERE, THREADS
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.predicate import NEVER, SUM, Rule
from dask_simjoin.sets.token_ids import SetBlock, sizes_of
from dask_simjoin.sizes import BUFFER_SHARE


@dataclass(frozen=True)
class SetOperand:
    """A block of sets on a GPU, sorted by size, and the positions where the sets of
    each size begin.
    """

    block: SetBlock
    sizes: Array
    """Sizes of the sets (n,), int32."""
    distinct: np.ndarray  # distinct sizes, ascending (sizes,), int64
    bounds: np.ndarray
    """(sizes + 1,), int64: for each distinct size, the position of the first set with
    it; at the end, the number of sets.
    """

    @classmethod
    def of(cls, block: SetBlock) -> SetOperand:
        sizes = sizes_of(block)
        firsts = cupy.flatnonzero(sizes[1:] != sizes[:-1]) + 1
        bounds = np.concatenate([[0], firsts.get(), [len(sizes)]]).astype(np.int64)
        distinct = sizes[cupy.asarray(bounds[:-1])].get()
        return cls(block, sizes.astype(cupy.int32), distinct, bounds)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def arguments(self) -> tuple[Array, Array]:
        return self.block["offsets"], self.block["tokens"]

    @functools.cached_property
    def _which(self) -> Array:
        """(n,), int64: for each set, the position of its size in `distinct`."""
        return cupy.searchsorted(cupy.asarray(self.distinct), self.sizes)

    def spread(self, values: np.ndarray) -> Array:
        """Return for each set the value for its size, as int32.

        `values`: one value for each distinct size.
        """
        return cupy.asarray(values.astype(np.int32))[self._which]


@dataclass(frozen=True)
class Operands:
    """The operands of a join of two blocks, or of one block with itself."""

    left: SetOperand
    right: SetOperand
    # whether a block is joined with itself; then pairs have positions i < j
    is_self_join: bool
    rule: Rule
    needs: Array
    limits: Array  # the predicate in the form that `sets.cuh` reads
    constants: dict[str, int]  # compile-time constants of kernels
    low: Array
    high: Array
    """(left sets,), int32: by sizes, each left set can match only the right sets `low`
    to `high` - 1.
    """

    @classmethod
    def of(cls, left: SetBlock, right: SetBlock | None, rule: Rule) -> Operands:
        q = SetOperand.of(left)
        d = q if right is None else SetOperand.of(right)
        predicate = rule.limits(int(q.distinct[-1]), int(d.distinct[-1]))
        n, denominator = predicate.numerator, predicate.denominator
        sums = (
            n * np.arange(q.distinct[-1] + d.distinct[-1] + 1)
            if predicate.kind == SUM
            else np.array([n])
        )
        needs = np.full((len(sums), 2), NEVER, np.int64)
        for column, above in enumerate(
            (predicate.above, predicate.more_above)[: 1 + predicate.exact]
        ):
            needs[:, column] = -(-(sums + above) // denominator)
        limits = np.array(
            [n, denominator, predicate.above, predicate.more_above], np.int64
        )
        low, high = _partners(q, d, rule, is_self_join=right is None)
        constants = {"KIND": predicate.kind, "EXACTLY": int(predicate.exact)}
        table = cupy.asarray(np.minimum(needs, NEVER).astype(np.int32))
        return cls(
            q, d, right is None, rule, table, cupy.asarray(limits), constants, low, high
        )

    @property
    def sides(self) -> tuple[Array, ...]:
        """The first arguments of most kernels: the arrays of both blocks, and the
        predicate.
        """
        return (*self.left.arguments, *self.right.arguments, self.needs, self.limits)

    @property
    def turned(self) -> tuple[Array, ...]:
        """The same as `sides`, but with the right block first."""
        return (*self.right.arguments, *self.left.arguments, self.needs, self.limits)


def _partners(
    q: SetOperand, d: SetOperand, rule: Rule, *, is_self_join: bool
) -> tuple[Array, Array]:
    """For each left set, return the range of right sets that have admissible sizes."""
    smallest = np.array([rule.smallest(a) for a in q.distinct.tolist()], np.int64)
    largest = np.array(
        [rule.largest(a) or NEVER for a in q.distinct.tolist()], np.int64
    )
    low = q.spread(d.bounds[np.searchsorted(d.distinct, smallest)])
    high = q.spread(d.bounds[np.searchsorted(d.distinct, largest, side="right")])
    if is_self_join:
        low = cupy.maximum(low, cupy.arange(1, len(q) + 1, dtype=cupy.int32))
    return low, cupy.maximum(low, high)


class Flat(NamedTuple):
    """A batch of candidate pairs, in any order."""

    pairs: Array
    """(candidates, 2), int32: left and right set of each candidate. The next batch
    overwrites this array.
    """
    next: int | None  # the next part of the work; None: the work is complete


Find = Callable[[int, int, Array, Array], None]
"""A function ``find(first, number, out, counter)`` that finds the candidates in
`number` parts of the work, from `first`.

It writes the candidates to `out` as far as they fit, and adds the number of all
candidates to `counter`.
"""


def batch_capacity(chunk_bytes: int | None) -> int:
    """Return how many candidates fit in `chunk_bytes`; for None, in a share of the free
    memory.
    """
    if chunk_bytes is not None:
        # a candidate takes 24 bytes: its two positions, and its output in case it
        # matches
        return max(1, chunk_bytes // 24)
    free, _ = cupy.cuda.Device().mem_info
    # larger batches are not faster
    return max(1 << 16, min(2**26, int(free) // BUFFER_SHARE // 24))


def batches(
    find: Find, work: int, start: int, step: int, capacity: int
) -> Iterator[Flat]:
    """Yield the candidates that the parts `start` to `work` - 1 have. The first batch
    covers `step` parts.

    If a batch uses little of the buffer, the next one covers more parts. If the
    candidates of a batch do not fit, it is repeated with fewer parts. If a single part
    does not fit, the buffer is enlarged.
    """
    out, counter = cupy.empty((capacity, 2), cupy.int32), cupy.zeros(1, cupy.uint64)
    while start < work:
        step = min(step, work - start)
        counter.fill(0)
        find(start, step, out, counter)
        found = int(counter[0])
        if found > len(out):
            if step == 1:
                out = cupy.empty((found, 2), cupy.int32)
            step = max(1, min(step // 2, step * len(out) // (2 * found)))
            continue
        start += step
        yield Flat(out[:found], start if start < work else None)
        if found < len(out) // 4:
            step *= 2


SHARED_BYTES = 48 << 10
"""Bytes of shared memory that are available to a block on every GPU."""


def over(
    items: int, name: str, function: str, arguments: tuple[Any, ...], **constants: int
) -> None:
    """Launch a kernel whose threads loop over `items` items."""
    # a kernel loops over items, so more blocks are not faster
    blocks = max(1, min(-(-items // THREADS), 2**16))
    load.kernel(f"sets/{name}", function, **constants)((blocks,), (THREADS,), arguments)


def blocks(
    number: int,
    threads: int,
    name: str,
    function: str,
    arguments: tuple[Any, ...],
    shared: int = 0,
    **constants: int,
) -> None:
    """Launch a kernel with `number` blocks. Each block has `threads` threads and
    `shared` bytes of shared memory.
    """
    load.kernel(f"sets/{name}", function, **constants)(
        (number,), (threads,), arguments, shared_mem=shared
    )


class SetPairSink(Protocol):
    """Receives matching pairs, one batch after the other."""

    number: ClassVar[int]  # the value of `SINK` in `sets.cuh`

    def take(self, capacity: int) -> tuple[Any, ...]:
        """Return the arguments for the output of a kernel that verifies at most
        `capacity` pairs.
        """

    def done(self) -> None:
        """Record what the kernel has written for the batch."""


class SetPairCollector:
    """Collects pairs of sets, with positions and overlaps."""

    number: ClassVar[int] = 0

    def __init__(self) -> None:
        self._parts: list[tuple[Array, Array, Array]] = []
        # one counter for pairs of sets, and one for pairs of rows
        self._counters = cupy.zeros(2, cupy.uint64)
        self.pairs = 0

    def take(self, capacity: int) -> tuple[Any, ...]:
        self._counters.fill(0)
        self._out = tuple(cupy.empty(capacity, cupy.int32) for _ in range(3))
        return (*self._out, np.uint64(capacity), *(NOWHERE,) * 4, self._counters)

    def done(self) -> None:
        found = int(self._counters[0])
        self.pairs += found
        left, right, overlap = (column[:found] for column in self._out)
        if found:
            self._parts.append(
                (left.astype(cupy.int64), right.astype(cupy.int64), overlap.copy())
            )
        del self._out

    def columns(self) -> tuple[Array, Array, Array]:
        if not self._parts:
            return (
                cupy.empty(0, cupy.int64),
                cupy.empty(0, cupy.int64),
                cupy.empty(0, cupy.int32),
            )
        left, right, overlap = (
            cupy.concatenate(parts) for parts in zip(*self._parts, strict=True)
        )
        return left, right, overlap


class _CountingSink:
    """Base class of sinks that count pairs of rows. Kernels add to the same counters in
    every batch.
    """

    def __init__(self, join: Operands) -> None:
        self._weights = join.left.block["weights"], join.right.block["weights"]
        self._counters = cupy.zeros(2, cupy.uint64)

    def done(self) -> None:
        pass


class SetPairCounter(_CountingSink):
    """Counts the matching pairs of sets, and the pairs of their rows."""

    number: ClassVar[int] = 1

    def take(self, capacity: int) -> tuple[Any, ...]:
        return (*(NOWHERE,) * 4, *self._weights, NOWHERE, NOWHERE, self._counters)

    def totals(self) -> tuple[int, int]:
        """Return the number of pairs of sets, and the number of pairs of rows."""
        pairs, rows = self._counters.get().tolist()
        return pairs, rows


class SetCountSink(_CountingSink):
    """For each set, counts the rows that match it."""

    number: ClassVar[int] = 2

    def __init__(self, join: Operands) -> None:
        super().__init__(join)
        left = cupy.zeros(len(join.left), cupy.int64)
        self.counts = (
            left,
            left if join.is_self_join else cupy.zeros(len(join.right), cupy.int64),
        )

    def take(self, capacity: int) -> tuple[Any, ...]:
        return (*(NOWHERE,) * 4, *self._weights, *self.counts, self._counters)
