"""Kernels of nested loops: each two blocks meet once."""

import itertools

import numpy as np
import pytest

from dask_simjoin.papers.cpu.kernels import lists as kernels
from dask_simjoin.papers.lists import SCHEDULES, NestedLoop
from tests.engine.cpu.test_joiner import check

partners = kernels.partners.py_func


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("n", [0, 1, 2, 31, 32, 33, 63, 64, 65, 96, 128, 129, 160])
def test_around_the_width_of_blocks(schedule, n):
    """Odd and even numbers of blocks of 32 rows, the last one whole or not; half of the rows coincide."""
    x = np.random.default_rng(n).integers(0, 4, (n, 2)).astype(float)
    check(x, 1.0, (n // 2,), method=NestedLoop(schedule=schedule, block=32))


@pytest.mark.parametrize("blocks", range(1, 10))
def test_each_two_blocks_meet_once(blocks):
    met = [(b, (b + i) % blocks) for b in range(blocks) for i in range(partners(blocks * 32, 32, b))]
    assert sorted({frozenset(two) for two in met}, key=sorted) == sorted(
        (frozenset(two) for two in itertools.combinations_with_replacement(range(blocks), 2)), key=sorted
    )
    assert len(met) == blocks * (blocks + 1) // 2
    loads = [partners(blocks * 32, 32, b) for b in range(blocks)]
    assert max(loads) - min(loads) <= 1


def test_without_the_rule_for_an_even_number_pairs_are_lost_or_repeated():
    """What the thesis avoids by padding to an odd number of blocks, with rows that pair with each other."""
    for most in (lambda n: n // 2, lambda n: n // 2 + 1):
        met = [frozenset((b, (b + i) % 6)) for b in range(6) for i in range(most(6))]
        assert len(set(met)) != 21 or len(met) != 21
