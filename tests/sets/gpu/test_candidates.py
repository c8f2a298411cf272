"""Candidates by an index on the GPU, and in chunks: one is filled while the GPU
verifies another.
"""

from fractions import Fraction

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")

from dask_simjoin.sets.gpu.candidates import HostFilter, chunks, prefixes
from dask_simjoin.sets.gpu.joiner import JOINER
from dask_simjoin.sets.gpu.launches import Operands
from dask_simjoin.sets.gpu.verify import flat
from dask_simjoin.sets.methods import AllPairs, Bitmap, GroupJoin, PPJoin
from dask_simjoin.sets.predicate import Rule
from tests.support.sets_joins import check_blocks, on_device
from tests.support.sets_oracle import block_of

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
        filters, pairs = (
            HostFilter(join, prefixes(join, groups=False), 0, positional=False),
            [],
        )
        for part in chunks(filters, len(join.left), room):
            pairs.append(flat(part.found))
            busy((1,), (1,), (np.int64(5_000_000),))
        return cupy.concatenate(pairs).get()

    whole = found(10**7)
    assert (found(max(1000, len(whole) // 40)) == whole).all()


def test_weights_and_universes():
    """Weights that multiply beyond int32, tokens near the end of int32, and sides that
    share few.
    """
    top = 2**31 - 2
    q, _ = block_of([[1, top], [1, 2, top]], [2**20, 3 * 2**20])
    d, _ = block_of([[1, 2, 3, top], [7]], [2**21, 5])
    rule = Rule("jaccard", Fraction("0.5"))
    for method in (Bitmap(), PPJoin(), AllPairs(verify="C"), GroupJoin()):
        check_blocks(JOINER, q, d, rule, method, {(0, 1): 2, (1, 1): 3}, cupy)
        check_blocks(JOINER, q, None, rule, method, {(0, 1): 2}, cupy)
