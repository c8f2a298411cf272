"""Candidates by an index of prefixes that is built on the GPU."""

from fractions import Fraction

import pytest

cupy = pytest.importorskip("cupy")

from dask_simjoin.sets.gpu.joiner import JOINER
from dask_simjoin.sets.methods import AllPairs, Bitmap, GroupJoin, PPJoin
from dask_simjoin.sets.predicate import Rule
from tests.support.sets_joins import (
    check_blocks,
)
from tests.support.sets_oracle import block_of

pytestmark = pytest.mark.gpu


def test_weights_and_universes():
    """Weights that multiply beyond int32, tokens near the end of int32, and sides that share few."""
    top = 2**31 - 2
    q, _ = block_of([[1, top], [1, 2, top]], [2**20, 3 * 2**20])
    d, _ = block_of([[1, 2, 3, top], [7]], [2**21, 5])
    rule = Rule("jaccard", Fraction("0.5"))
    for method in (Bitmap(), PPJoin(), AllPairs(verify="C"), GroupJoin()):
        check_blocks(JOINER, q, d, rule, method, {(0, 1): 2, (1, 1): 3}, cupy)
        check_blocks(JOINER, q, None, rule, method, {(0, 1): 2}, cupy)
