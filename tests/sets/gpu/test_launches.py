"""Operands of kernels, and kernels launched in batches within a budget."""

from fractions import Fraction

import pytest

from dask_simjoin.sets.methods import AllPairs, Bitmap, GroupJoin, PPJoin
from dask_simjoin.sets.predicate import Rule
from tests.sets.gpu.cases import METHODS
from tests.support.sets_joins import check, check_blocks, dense_matching, on_device
from tests.support.sets_oracle import block_of


def test_blocks_without_sets(device):
    cupy, joiner = device
    empty, some = (
        on_device(block_of(sets)[0], cupy) for sets in ([], [[1, 2], [1, 2, 3]])
    )
    rule = Rule("jaccard", Fraction("0.5"))
    for q, d in ((empty, None), (empty, some), (some, empty)):
        assert len(joiner.pairs(q, d, rule, "auto").left) == 0
        assert joiner.count(q, d, rule, "auto") == 0
        assert [one.tolist() for one in joiner.counts(q, d, rule, "auto")] == [
            [0] * len(one["weights"]) for one in (q, q if d is None else d)
        ]


@pytest.mark.parametrize(
    "method",
    [Bitmap(), *(one for one in METHODS if isinstance(one, GroupJoin))],
    ids=str,
)
def test_one_set(device, method):
    """Nothing meets, and nothing is left to go on with."""
    cupy, joiner = device
    check(
        joiner, [frozenset([0])], None, Rule("jaccard", Fraction("0.55")), method, cupy
    )


@pytest.mark.gpu
@pytest.mark.parametrize("chunk_bytes", [20_000, 100_000, 10**7])
@pytest.mark.parametrize("filtering", ["gpu", "cpu"])
@pytest.mark.parametrize("kind", [AllPairs, PPJoin, GroupJoin, Bitmap])
def test_budgets(many, kind, filtering, chunk_bytes):
    """Buffers that overflow, and chunks that end within a probe's candidates."""
    cupy = pytest.importorskip("cupy")
    from dask_simjoin.sets.gpu.joiner import JOINER

    if kind is Bitmap and filtering == "cpu":
        pytest.skip("bitmaps are compared by the GPU")
    more = {} if kind is Bitmap else {"filter": filtering}
    rule = Rule("jaccard", Fraction("0.6"))
    block = many[0]
    expected = dense_matching(block, None, rule)
    check_blocks(
        JOINER, block, None, rule, kind(chunk_bytes=chunk_bytes, **more), expected, cupy
    )
