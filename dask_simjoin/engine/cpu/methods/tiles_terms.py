"""What a join of tiles is told of both sides' vectors, by the filters that they are compared by."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels.quantized_simd import WAYS
from dask_simjoin.engine.cpu.kernels.sides import Decided, Filtered, Quantized, QuantizedLongs, Rounded
from dask_simjoin.engine.index.cpu_tiles import TilesLayout
from dask_simjoin.metrics.types import Index


def _at(array: np.ndarray) -> tuple[int, int]:
    """Where an array lies, and bytes of each of its parts."""
    return array.ctypes.data, array.strides[0]


_KINDS = {"longs": QuantizedLongs, "words": Quantized}


def _way(index: Index) -> str:
    """In which way an index's 8-bit vectors are to be read: chunks may come from another machine."""
    if "tiles" not in index:
        return ""
    return "longs" if index["take"].dtype == np.int32 else "words"


def terms_of(q: Index, d: Index, layout: TilesLayout) -> tuple[Any, Any, tuple[int, int]]:
    """What the kernel is told of both sides, and which vectors it reads first: while the arrays live."""
    dims, width = q["z"].shape[1], q["y"].shape[1]
    if layout.rounded is not None:
        f = layout.rounded
        one, two = (
            (Rounded(side["z"].ctypes.data, dims, f.reach, f.sure, side["y"].ctypes.data),) for side in (q, d)
        )
        return one, two, _at(d["z"])
    if layout.filter is None:
        sure = np.uint64(0 if dims < width else 2**64 - 1)
        own, other = (
            (Decided(side["z"].ctypes.data, dims, layout.threshold, side["y"].ctypes.data, width, sure),)
            for side in (q, d)
        )
        return own, other, _at(d["z"])
    terms = ({"term": "limit", "sure": "sure"}, {"term": "start", "sure": "tile_sure"})
    sides: list[tuple[Any, ...]] = []
    for side, names in zip((q, d), terms, strict=True):
        addresses = {name: side[own].ctypes.data for name, own in ({"z": "z", "y": "y"} | names).items()}
        sides.append((Filtered(dims=dims, width=width, **addresses),))
    way = _way(q)
    if way not in WAYS or way != _way(d):
        return sides[0], sides[1], _at(d["z"])
    assert layout.quantized is not None
    steps, least = q["queries"].shape[1], np.int32(2 * layout.quantized.bias)
    for k, side in enumerate((q, d)):
        at = {name: side[name].ctypes.data for name in ("queries", "take", "tiles", "first", "marked")}
        sides[k] += (_KINDS[way](**at, steps=steps, least=least),)
    return sides[0], sides[1], _at(d["tiles"])
