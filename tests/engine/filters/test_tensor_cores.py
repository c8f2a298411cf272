"""The kernels of the tensor cores fit in the memory of a block."""

import itertools

from dask_simjoin.engine.filters import tensor_cores as wide


def test_kernels_of_the_tensor_cores_fit():
    assert wide.program(200, 227 * 1024)[0] == "tensor"
    for shared, dims in itertools.product((64, 99, 163, 227), (201, 384, 768, 1024, 2048)):
        found = wide.program(dims, shared * 1024)
        assert (found is None) == (shared == 64)
        if found:
            name, told, most = found
            assert name == "tensor_wide" and most + 9216 + 8 * dims <= shared * 1024
            assert told["WIDTH"] >= dims + 8 and -(-told["WIDTH"] // 16 // told["DEPTH"]) >= 2
            assert wide.program(dims, shared * 1024, counting=True)[2] < most
    assert wide.program(384, 227 * 1024)[1] == {"WIDTH": 400, "DEPTH": 4, "STAGES": 3}
