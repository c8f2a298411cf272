"""Calls without a pool of RMM take memory from a pool of the driver."""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")

import rmm
from rmm.allocators.cupy import rmm_cupy_allocator

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from dask_simjoin.engine.gpu.pool import pooled

pytestmark = pytest.mark.gpu

N = 5000


def test_results_are_the_same_and_stay_valid():
    frame = cudf.DataFrame({"x": np.random.default_rng(1).random(N)})
    before = rmm.mr.get_current_device_resource()
    try:
        rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
        cupy.cuda.set_allocator(rmm_cupy_allocator)
        with pooled():
            inside = cupy.cuda.get_allocator()
            kept = cupy.arange(10)
        assert inside is not cupy.cuda.get_allocator()
        assert kept.tolist() == list(range(10))
        found = frame.simjoin.self_join(1e-4)
        rmm.mr.set_current_device_resource(
            rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 2**28)
        )
        with pooled():
            assert cupy.cuda.get_allocator() is rmm_cupy_allocator
        again = frame.simjoin.self_join(1e-4)
    finally:
        rmm.mr.set_current_device_resource(before)
    key = ["left", "right"]
    pairs = (one.to_pandas().sort_values(key).to_numpy() for one in (found, again))
    np.testing.assert_array_equal(*pairs)
