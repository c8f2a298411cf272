"""What all lazy joins have in common before they are planned."""

from __future__ import annotations

from dask_simjoin.chunking import EntityChunks
from dask_simjoin.graph.chunked import Chunks, indexed_chunks
from dask_simjoin.graph.cluster import check_shuffle
from dask_simjoin.graph.named import Named
from dask_simjoin.graph.planner import plan_for
from dask_simjoin.plan import Plan


class Unplanned(Named):
    """A join of one sealed source with itself that is planned when it must be."""

    _parameters = ["source", "spec", "meta"]
    _named = False
    _known: int | None = None
    """Bytes that tasks find out of each row; see `make_plan`."""
    _neighbors: int | None = None
    """How many neighbours are sought of each row."""

    def __str__(self) -> str:
        spec = self.operand("spec")
        asked = next((name for name in ("max_eps", "k") if name in self._parameters), None)
        what = f"{asked}={self.operand(asked)!r}" if asked else f"eps={spec.eps!r}"
        return f"{type(self).__name__}({self.operand('source')}, {what}, on={list(spec.on)})"

    @property
    def plan(self) -> Plan:
        """The plan; made at the first call, which computes one pass over the columns."""
        spec = self.operand("spec")
        return plan_for(self.operand("source"), spec, self._named, self._known, self._neighbors)

    def _tree_repr_lines(self, indent: int = 0, recursive: bool = True) -> list[str]:
        return [" " * indent + str(self)]

    def _chunks(self) -> Chunks:
        chunks, spec = self.plan.chunks, self.operand("spec")
        if not isinstance(chunks, EntityChunks):
            check_shuffle(chunks.method, spec.settings.cluster)
        return indexed_chunks(self.operand("source"), spec, self.plan, self._named)
