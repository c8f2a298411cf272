"""Disjoint-set forests on the GPU: see `components.cuh`."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.gpu import load
from dask_simjoin.metrics.norms import Array


def program(function: str, wide: bool = False) -> load.Program:
    """Return the program of a function of `components.cu`. `wide`: whether nodes are
    int64.
    """
    return "components", function, {"DIMS": 1, "EXACT": True, "NODES_64": wide}


def run(parent: Array, function: str, items: int, *arguments: Any) -> None:
    """Run a function of `components.cu`, whose threads loop over `items` items."""
    name, function, constants = program(function, parent.dtype == cupy.int64)
    load.kernel(name, function, **constants)(*load.shape_of(items), arguments)


def link(parent: Array, left: Array, right: Array) -> None:
    """Unite the sets of the nodes `left[i]` and `right[i]` for each edge i."""
    n = len(left)
    if n:
        sides = (cupy.ascontiguousarray(side, cupy.int64) for side in (left, right))
        run(parent, "link_edges", n, *sides, np.int64(n), parent)
