"""The layout of joins with gates: see `dask_simjoin.metrics.gates`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dask_simjoin.engine.protocols import Layout, MethodSearch
from dask_simjoin.metrics.gates import Compared, Gates
from dask_simjoin.metrics.norms import Norm


@dataclass(frozen=True)
class GatedLayout:
    """Settings of a join whose candidates are decided by gates and by their totals.

    A point has coordinates, then a coordinate for each tolerance, then words: of gates,
    and of the columns whose numbers decide. The index has no words.
    """

    inner: Layout  # the layout of the index, whose pairs are the candidates
    gates: Gates
    limit: float  # largest total of a pair, without the coordinates of gates
    compared: Compared

    @property
    def method(self) -> str:
        return self.inner.method

    @property
    def norm(self) -> Norm:
        return self.inner.norm

    @property
    def threshold(self) -> float:
        """Largest total of a candidate."""
        return self.inner.threshold

    @property
    def grain(self) -> int:
        return self.inner.grain

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        return self.inner.in_words(names)


@dataclass(frozen=True)
class GatedSearch(MethodSearch):
    """Settings of a search for the nearest rows among the pairs of a join."""

    layout: GatedLayout

    @property
    def method(self) -> str:
        return self.layout.method

    @property
    def norm(self) -> Norm:
        return self.layout.norm

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        return f"{self.layout.in_words(names)}; rows search among their pairs"
