"""What methods do with pairs that they find one by one, and do not keep."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels import components
from dask_simjoin.engine.cpu.methods.method import CpuMethod, Sides
from dask_simjoin.engine.cpu.methods.sinks import Shown
from dask_simjoin.metrics.types import Index


def connect(method: CpuMethod, q: Index, d: Index, layout: Any, same: bool, nodes: Sides,
            parent: np.ndarray) -> None:  # fmt: skip
    """Do what `CpuMethod.connect` says."""

    def link(left: np.ndarray, right: np.ndarray) -> None:
        components.link(parent, left, right, *nodes)

    method.pairs(q, d, layout, same, _places(q, d), Shown(link), False)


def lowest(method: CpuMethod, q: Index, d: Index, layout: Any, same: bool, labels: Sides, low: Sides) -> None:
    """Do what `CpuMethod.lowest` says."""

    def lower(left: np.ndarray, right: np.ndarray) -> None:
        components.lowest(left, right, *labels, *low)

    method.pairs(q, d, layout, same, _places(q, d), Shown(lower), False)


def _places(*sides: Index) -> list[np.ndarray]:
    return [np.arange(len(side["order"]), dtype=np.int32) for side in sides]
