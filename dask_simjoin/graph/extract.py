"""Lazy clusters from a result of OPTICS."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.backends.base import backend_for
from dask_simjoin.density.extract import labels_of
from dask_simjoin.graph.aligned import Aligned
from dask_simjoin.graph.named import Named
from dask_simjoin.graph.private import Expr, Task, TaskRef


class Extracted(Named, Aligned):
    """Labels of all rows of `frame`."""

    _label = "simjoin_labels"
    _parameters = ["frame", "eps", "options", "meta"]

    def _simplify_up(self, parent: Any, dependents: Any) -> Expr | None:
        return None

    def _values(self, partitions: list[int] | None = None) -> Expr:
        return ExtractedParts(self.frame, self.operand("eps"), self.operand("options"), self._meta)


class ExtractedParts(Named):
    """One task that finds the labels of all rows, and their partitions."""

    _label = "simjoin_labels_rows"
    _parameters = ["frame", "eps", "options", "meta"]

    def _divisions(self) -> Any:
        return self.frame.divisions

    def _layer(self) -> dict[Any, Any]:
        whole = (f"simjoin_labels_found-{self.deterministic_token}", 0)
        parts = [TaskRef((self.frame._name, n)) for n in range(self.frame.npartitions)]
        how = self.operand("eps"), self.operand("options")
        layer: dict[Any, Any] = {whole: Task(whole, _labels, *how, *parts)}
        for n, part in enumerate(parts):
            key = (self._name, n)
            layer[key] = Task(key, _rows, TaskRef(whole), n, part, self._meta.name)
        return layer


def _labels(eps: float | None, options: Any, *parts: Any) -> list[np.ndarray]:
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return np.split(labels_of(parts, eps, options), ends)


def _rows(labels: list[np.ndarray], number: int, part: Any, name: str) -> Any:
    backend = backend_for(part)
    return backend.series(backend.xp.asarray(labels[number]), part.index, name)
