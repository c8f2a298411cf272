"""Lanes are written side by side by every way that the machine has."""

import numpy as np
import pytest
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.simd import (
    F64,
    I32,
    I64,
    WAYS,
    load,
    store_compressed,
)

KINDS = {"int32": I32, "int64": I64, "float64": F64}


def writer(kind, lanes, way):
    vector = ir.VectorType(KINDS[kind], lanes)

    @intrinsic
    def write(typingctx, numbers, mask, out):
        def codegen(context, builder, sig, args):
            store_compressed(
                builder, load(builder, args[0], vector, 4), args[1], args[2], way
            )
            return context.get_dummy_value()

        return types.void(types.int64, types.uint64, types.int64), codegen

    return njit(
        lambda numbers, mask, out: write(numbers.ctypes.data, mask, out.ctypes.data)
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lanes", [8, 16])
def test_selected_lanes_follow_each_other(way, kind, lanes):
    write = writer(kind, lanes, way)
    numbers = np.arange(lanes).astype(kind) + 100
    for mask in range(0, 1 << lanes, 1 if lanes == 8 else 37):
        out = np.full(2 * lanes, -1).astype(kind)
        write(numbers, np.uint64(mask), out)
        chosen = [n for k, n in enumerate(numbers.tolist()) if mask >> k & 1]
        assert out[: len(chosen)].tolist() == chosen
        assert (out[lanes:] == -1).all()  # nothing is written further than a vector
