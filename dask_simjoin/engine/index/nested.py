"""The layout of nested loops, which need no index: see `dask_simjoin.engine.nested`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.engine.nested import NestedLoop
from dask_simjoin.metrics.norms import Norm


@dataclass(frozen=True)
class NestedLayout:
    """How chunks are compared by nested loops.

    Attributes
    ----------
    threshold : float
        Of the float64 decision.
    options : NestedLoop
    dims : int
        Dimensions of points.
    norm : int or float
        Of the totals that the decision compares.
    bounds : Bounds or None
        Of the float32 filter, where there is one: on GPUs.
    """

    threshold: float
    options: NestedLoop
    dims: int
    norm: Norm = 2
    bounds: Bounds | None = None

    @property
    def method(self) -> str:
        """The method's name."""
        return "nested_loop"

    @property
    def grain(self) -> int:
        """Points at whose multiples queries can be cut."""
        return self.options.block

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""
        words = [f"nested loops, {self.options.schedule} of blocks of {self.options.block} rows"]
        return "; ".join(words + ["float32"] * (self.bounds is not None))


def compared(rows: int, dims: int) -> dict[str, float]:
    """Return what two loops over rows look at, which no run need count."""
    pairs = rows * (rows - 1) // 2
    return {"candidates": pairs, "comparisons": pairs, "terms": pairs * dims}
