"""Both sides of a join of sets on a GPU, compiled for the host."""

from fractions import Fraction

import pytest

from dask_simjoin.sets.methods import Bitmap, GroupJoin
from dask_simjoin.sets.predicate import Rule
from tests.sets.gpu.cases import METHODS
from tests.support.sets_joins import (
    check,
    on_device,
)
from tests.support.sets_oracle import block_of


def test_blocks_without_sets(device):
    cupy, joiner = device
    empty, some = (on_device(block_of(sets)[0], cupy) for sets in ([], [[1, 2], [1, 2, 3]]))
    rule = Rule("jaccard", Fraction("0.5"))
    for q, d in ((empty, None), (empty, some), (some, empty)):
        assert len(joiner.pairs(q, d, rule, "auto").left) == 0
        assert joiner.count(q, d, rule, "auto") == 0
        assert [one.tolist() for one in joiner.counts(q, d, rule, "auto")] == [
            [0] * len(one["weights"]) for one in (q, q if d is None else d)
        ]


@pytest.mark.parametrize(
    "method", [Bitmap(), *(one for one in METHODS if isinstance(one, GroupJoin))], ids=str
)
def test_one_set(device, method):
    """Nothing meets, and nothing is left to go on with."""
    cupy, joiner = device
    check(joiner, [frozenset([0])], None, Rule("jaccard", Fraction("0.55")), method, cupy)
