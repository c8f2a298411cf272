"""What the kernels of a join are given: both sides, the predicate, and which sizes meet."""

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
    """A block of sets on a GPU, and where the sets of each size are.

    Attributes
    ----------
    block : SetBlock
    sizes : array (n,), int32
        Of its sets.
    distinct : numpy array (sizes,), int64
        The sizes that there are, ascending.
    bounds : numpy array (sizes + 1,), int64
        Where the sets of each of them begin, and how many sets there are.
    """

    block: SetBlock
    sizes: Array
    distinct: np.ndarray
    bounds: np.ndarray

    @classmethod
    def of(cls, block: SetBlock) -> SetOperand:
        """Look at a block that has sets."""
        sizes = sizes_of(block)
        firsts = cupy.flatnonzero(sizes[1:] != sizes[:-1]) + 1
        bounds = np.concatenate([[0], firsts.get(), [len(sizes)]]).astype(np.int64)
        distinct = sizes[cupy.asarray(bounds[:-1])].get()
        return cls(block, sizes.astype(cupy.int32), distinct, bounds)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def arguments(self) -> tuple[Array, Array]:
        """Where its sets begin, and their tokens."""
        return self.block["offsets"], self.block["tokens"]

    @functools.cached_property
    def _which(self) -> Array:
        """Which of the distinct sizes each set has (n,), int64."""
        return cupy.searchsorted(cupy.asarray(self.distinct), self.sizes)

    def spread(self, values: np.ndarray) -> Array:
        """Give each set what its size has; as int32."""
        return cupy.asarray(values.astype(np.int32))[self._which]


@dataclass(frozen=True)
class Operands:
    """A join of two sides, or of one with itself.

    Attributes
    ----------
    left, right : Side
    same : bool
        Whether it is one side: then pairs are positions i < j in it.
    rule : Rule
    needs, limits : array
        The predicate as kernels know it: see `sets.cuh`.
    constants : dict
        What kernels are compiled for.
    low, high : array (left sets,), int32
        The right sets that each left one may match, by their sizes: `low` ... `high` - 1.
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
        """Prepare a join of blocks that have sets."""
        q = SetOperand.of(left)
        d = q if right is None else SetOperand.of(right)
        told = rule.limits(int(q.distinct[-1]), int(d.distinct[-1]))
        n, denominator = told.numerator, told.denominator
        sums = n * np.arange(q.distinct[-1] + d.distinct[-1] + 1) if told.kind == SUM else np.array([n])
        needs = np.full((len(sums), 2), NEVER, np.int64)
        for column, above in enumerate((told.above, told.more_above)[: 1 + told.exact]):
            needs[:, column] = -(-(sums + above) // denominator)
        limits = np.array([n, denominator, told.above, told.more_above], np.int64)
        low, high = _partners(q, d, rule, same=right is None)
        constants = {"KIND": told.kind, "EXACTLY": int(told.exact)}
        table = cupy.asarray(np.minimum(needs, NEVER).astype(np.int32))
        return cls(q, d, right is None, rule, table, cupy.asarray(limits), constants, low, high)

    @property
    def sides(self) -> tuple[Array, ...]:
        """Sets and predicate, as all kernels take them."""
        return (*self.left.arguments, *self.right.arguments, self.needs, self.limits)

    @property
    def turned(self) -> tuple[Array, ...]:
        """The same with the right side first."""
        return (*self.right.arguments, *self.left.arguments, self.needs, self.limits)


def _partners(q: SetOperand, d: SetOperand, rule: Rule, *, same: bool) -> tuple[Array, Array]:
    """Right sets of admissible sizes."""
    least = np.array([rule.smallest(a) for a in q.distinct.tolist()], np.int64)
    most = np.array([rule.largest(a) or NEVER for a in q.distinct.tolist()], np.int64)
    low = q.spread(d.bounds[np.searchsorted(d.distinct, least)])
    high = q.spread(d.bounds[np.searchsorted(d.distinct, most, side="right")])
    if same:
        low = cupy.maximum(low, cupy.arange(1, len(q) + 1, dtype=cupy.int32))
    return low, cupy.maximum(low, high)
