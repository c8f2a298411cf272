"""Candidates in chunks: one is filled while the GPU verifies another."""

from fractions import Fraction

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

from dask_simjoin.sets.gpu.chunks import HostFilter, chunks
from dask_simjoin.sets.gpu.index import prefixes
from dask_simjoin.sets.gpu.launches import Operands
from dask_simjoin.sets.gpu.verify import flat
from dask_simjoin.sets.predicate import Rule
from tests.support.sets_joins import (
    on_device,
)

pytestmark = pytest.mark.gpu


SPIN = """
extern "C" __global__ void spin(long long clocks) {
    for (long long begin = clock64(); clock64() - begin < clocks;);
}
"""


def test_buffers_are_filled_again_once_they_are_copied(many):
    """While the GPU is busy, the CPU's filters fill their buffers again."""
    join = Operands.of(on_device(many[2], cupy), None, Rule("jaccard", Fraction("0.6")))
    busy = cupy.RawKernel(SPIN, "spin")

    def found(room):
        filters, pairs = HostFilter(join, prefixes(join, groups=False), 0, positional=False), []
        for part in chunks(filters, len(join.left), room):
            pairs.append(flat(part.found))
            busy((1,), (1,), (np.int64(5_000_000),))
        return cupy.concatenate(pairs).get()

    whole = found(10**7)
    assert (found(max(1000, len(whole) // 40)) == whole).all()
