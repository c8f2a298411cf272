"""Make the expressions of lazy clusters from a result of OPTICS."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.cluster.algorithms.extract import labels_of
from dask_simjoin.engine.base import frames_for
from dask_simjoin.expressions.aligned import Aligned
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.dask_private import Expr, PartitionsFiltered, Task, TaskRef
from dask_simjoin.expressions.source import FrozenSource, optimise_in_place, pick
from dask_simjoin.metrics.types import Frame, Series
from dask_simjoin.tasks.fingerprints import PREDECESSOR, Groups


class Extracted(Aligned):
    """Stand for labels of all rows of a result before it is known what they are combined with."""

    _label = "simjoin_labels"
    _parameters = ["frame", "source", "eps", "options", "meta", "chosen"]

    @property
    def _groups(self) -> Groups:
        # numbers of rows are others in another order of them
        return (tuple(name for name in self.frame.columns if name != PREDECESSOR),)

    def _values(self) -> Expr:
        source = self._source.inner
        how = self.operand("eps"), self.operand("options"), self._meta
        return ExtractedParts(
            FrozenSource(optimise_in_place(source)), *how, source.divisions, self.operand("chosen")
        )


class ExtractedParts(PartitionsFiltered, LabelledExpr):
    """Find the labels of all rows by one task, and make their partitions."""

    _label = "simjoin_labels_rows"
    _parameters = ["result", "eps", "options", "meta", "source_divisions", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> Any:
        return self.operand("source_divisions")

    def _layer(self) -> dict[Any, Any]:
        result = self.operand("result").inner
        layer = dict(result.__dask_graph__())
        parts = [TaskRef(key) for key in result.__dask_keys__()]
        whole = (f"simjoin_labels_found-{self.deterministic_token}", 0)
        layer[whole] = Task(whole, _labels, self.operand("eps"), self.operand("options"), *parts)
        for place, n in enumerate(self._partitions):
            found, key = (f"simjoin_labels_of-{self.deterministic_token}", n), (self._name, place)
            layer[found] = Task(found, pick, TaskRef(whole), n)
            layer[key] = Task(key, _rows, TaskRef(found), parts[n], self._meta.name)
        return layer


def _labels(eps: float | None, options: dict[str, Any], *parts: Frame) -> list[np.ndarray]:
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return np.split(labels_of(parts, eps, options), ends)


def _rows(labels: np.ndarray, part: Frame, name: str) -> Series:
    frames = frames_for(part)
    return frames.series(frames.xp.asarray(labels), part.index, name)
