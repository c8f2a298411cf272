"""Kernels of set joins launched in batches within a budget."""

from fractions import Fraction

import pytest

cupy = pytest.importorskip("cupy")

from dask_simjoin.sets.gpu.joiner import JOINER
from dask_simjoin.sets.methods import AllPairs, Bitmap, GroupJoin, PPJoin
from dask_simjoin.sets.predicate import Rule
from tests.support.sets_joins import (
    check_blocks,
    dense_matching,
)

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("chunk_bytes", [20_000, 100_000, 10**7])
@pytest.mark.parametrize("filtering", ["gpu", "cpu"])
@pytest.mark.parametrize("kind", [AllPairs, PPJoin, GroupJoin, Bitmap])
def test_budgets(many, kind, filtering, chunk_bytes):
    """Buffers that overflow, and chunks that end within a probe's candidates."""
    if kind is Bitmap and filtering == "cpu":
        pytest.skip("bitmaps are compared by the GPU")
    more = {} if kind is Bitmap else {"filter": filtering}
    rule = Rule("jaccard", Fraction("0.6"))
    block = many[0]
    expected = dense_matching(block, None, rule)
    check_blocks(JOINER, block, None, rule, kind(chunk_bytes=chunk_bytes, **more), expected, cupy)
