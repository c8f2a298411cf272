"""Named tuples cross from worker to worker field by field, so that arrays of GPUs stay
on GPUs.
"""

import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
from distributed.protocol import deserialize, serialize
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize

from dask_simjoin.tasks.named_tuples import sent_by_fields


class OnGpu:
    """An array of a GPU, as far as Dask can see."""

    def __init__(self, size):
        self.size = size

    def __reduce__(self):
        raise AssertionError("pickled: it would be copied to the host")


@sent_by_fields
class Counts(NamedTuple):
    start: int
    counts: object


@pytest.fixture(autouse=True, scope="module")
def _gpu_arrays():
    cuda_serialize.register(OnGpu)(lambda value: ({"size": value.size}, []))
    cuda_deserialize.register(OnGpu)(lambda header, frames: OnGpu(header["size"]))


def test_fields_on_a_gpu_are_not_pickled():
    value = (Counts(3, OnGpu(5)), Counts(4, OnGpu(6)))
    header, frames = serialize(
        value, serializers=("cuda", "dask", "pickle"), on_error="raise"
    )
    found = deserialize(header, frames)
    assert [(type(one), one.start, one.counts.size) for one in found] == [
        (Counts, 3, 5),
        (Counts, 4, 6),
    ]


def test_fields_on_the_host_are_sent_without_a_copy():
    counts = np.arange(1000)
    header, frames = serialize(
        Counts(0, counts), serializers=("dask", "pickle"), on_error="raise"
    )
    views = [np.frombuffer(frame, np.uint8) for frame in frames]
    assert any(np.shares_memory(view, counts) for view in views)
    found = deserialize(header, frames)
    assert found.start == 0 and (found.counts == counts).all()


@pytest.mark.slow
@pytest.mark.processes
def test_a_worker_that_has_only_read_the_class_knows_it():
    """A receiver reads the class from a message, and nothing else of this package."""
    code = (
        "import distributed, sys\n"
        "from dask_simjoin.cluster.algorithms.edges import PlaceCounts\n"
        "from distributed.protocol.cuda import cuda_deserialize, cuda_serialize\n"
        "assert 'dask_simjoin.graph.shuffle' not in sys.modules\n"
        "cuda_serialize.dispatch(PlaceCounts), cuda_deserialize.dispatch(PlaceCounts)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
