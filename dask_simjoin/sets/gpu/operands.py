"""Operands of the kernels of a join: both sides, the predicate, and ranges of sizes."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import cupy
import numpy as np

from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.kinds import NEVER, SUM
from dask_simjoin.sets.predicate import Rule
from dask_simjoin.sets.token_ids import SetBlock, sizes_of


@dataclass(frozen=True)
class SetOperand:
    """A block of sets on a GPU, with the range of sets of each size.

    Attributes
    ----------
    block : SetBlock
    sizes : array (n,), int32
        Sizes of its sets.
    distinct : numpy array (sizes,), int64
        Distinct sizes, ascending.
    bounds : numpy array (sizes + 1,), int64
        First set of each distinct size, and the number of sets.
    """

    block: SetBlock
    sizes: Array
    distinct: np.ndarray
    bounds: np.ndarray

    @classmethod
    def of(cls, block: SetBlock) -> SetOperand:
        """Make an operand from a nonempty block."""
        sizes = sizes_of(block)
        firsts = cupy.flatnonzero(sizes[1:] != sizes[:-1]) + 1
        bounds = np.concatenate([[0], firsts.get(), [len(sizes)]]).astype(np.int64)
        distinct = sizes[cupy.asarray(bounds[:-1])].get()
        return cls(block, sizes.astype(cupy.int32), distinct, bounds)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def arguments(self) -> tuple[Array, Array]:
        """Offsets and tokens of its sets."""
        return self.block["offsets"], self.block["tokens"]

    @functools.cached_property
    def _which(self) -> Array:
        """Index of each set's size in `distinct` (n,), int64."""
        return cupy.searchsorted(cupy.asarray(self.distinct), self.sizes)

    def spread(self, values: np.ndarray) -> Array:
        """Expand values per distinct size to values per set, int32."""
        return cupy.asarray(values.astype(np.int32))[self._which]


@dataclass(frozen=True)
class Operands:
    """A join of two sides, or of one with itself.

    Attributes
    ----------
    left, right : SetOperand
    same : bool
        Whether both sides are one; then pairs have positions i < j.
    rule : Rule
    needs, limits : array
        The predicate in the form of `sets.cuh`.
    constants : dict
        Compile-time constants of kernels.
    low, high : array (left sets,), int32
        Right sets `low` ... `high` - 1 may match each left set, by their sizes.
    """

    left: SetOperand
    right: SetOperand
    same: bool
    rule: Rule
    needs: Array
    limits: Array
    constants: dict[str, int]
    low: Array
    high: Array

    @classmethod
    def of(cls, left: SetBlock, right: SetBlock | None, rule: Rule) -> Operands:
        """Prepare a join of nonempty blocks."""
        q = SetOperand.of(left)
        d = q if right is None else SetOperand.of(right)
        predicate = rule.limits(int(q.distinct[-1]), int(d.distinct[-1]))
        n, denominator = predicate.numerator, predicate.denominator
        sums = n * np.arange(q.distinct[-1] + d.distinct[-1] + 1) if predicate.kind == SUM else np.array([n])
        needs = np.full((len(sums), 2), NEVER, np.int64)
        for column, above in enumerate((predicate.above, predicate.more_above)[: 1 + predicate.exact]):
            needs[:, column] = -(-(sums + above) // denominator)
        limits = np.array([n, denominator, predicate.above, predicate.more_above], np.int64)
        low, high = _partners(q, d, rule, same=right is None)
        constants = {"KIND": predicate.kind, "EXACTLY": int(predicate.exact)}
        table = cupy.asarray(np.minimum(needs, NEVER).astype(np.int32))
        return cls(q, d, right is None, rule, table, cupy.asarray(limits), constants, low, high)

    @property
    def sides(self) -> tuple[Array, ...]:
        """Sets and predicate: the common arguments of all kernels."""
        return (*self.left.arguments, *self.right.arguments, self.needs, self.limits)

    @property
    def turned(self) -> tuple[Array, ...]:
        """The arguments of `sides` with the right side first."""
        return (*self.right.arguments, *self.left.arguments, self.needs, self.limits)


def _partners(q: SetOperand, d: SetOperand, rule: Rule, *, same: bool) -> tuple[Array, Array]:
    """Return the range of right sets of admissible sizes for each left set."""
    smallest = np.array([rule.smallest(a) for a in q.distinct.tolist()], np.int64)
    largest = np.array([rule.largest(a) or NEVER for a in q.distinct.tolist()], np.int64)
    low = q.spread(d.bounds[np.searchsorted(d.distinct, smallest)])
    high = q.spread(d.bounds[np.searchsorted(d.distinct, largest, side="right")])
    if same:
        low = cupy.maximum(low, cupy.arange(1, len(q) + 1, dtype=cupy.int32))
    return low, cupy.maximum(low, high)
