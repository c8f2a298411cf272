"""Blocks by size: all rows that may match are compared."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.planning.size_blocks import (
    MISSING,
    SizeBlocks,
    compared_blocks,
    count_compared_blocks,
    size_blocks,
)
from dask_simjoin.sets.predicate import Rule
from tests.support.sets import COMPARISONS, SIMILARITIES, THRESHOLDS


@given(
    left=st.lists(st.integers(1, 60), min_size=1, max_size=60),
    right=st.lists(st.integers(1, 60), min_size=1, max_size=60),
    similarity=st.sampled_from(SIMILARITIES),
    comparison=st.sampled_from(COMPARISONS),
    threshold=st.sampled_from(THRESHOLDS),
    number=st.integers(1, 9),
    two=st.booleans(),
)
def test_blocks_of_sizes_that_may_match_are_compared(
    left, right, similarity, comparison, threshold, number, two
):
    """For any sample, each size has a block, and each pair of matching sizes is
    compared.
    """
    threshold = 7 if similarity == "overlap" else Fraction(str(threshold))
    rule = Rule(similarity, Fraction(threshold), comparison)
    sides = [
        size_blocks(
            np.array(sizes),
            np.arange(len(sizes), dtype=np.uint64),
            np.ones(len(sizes)),
            number,
        )
        for sizes in (left, right if two else left)
    ]
    tables = sides[0], sides[1] if two else None, rule, False
    met = {tuple(pair) for pair in compared_blocks(*tables).tolist()}
    assert count_compared_blocks(*tables) == len(met)
    for side, sizes in zip(sides, (left, right if two else left), strict=True):
        assert side.rows.sum() == len(sizes) and len(side) <= 2 * number + 1
    every = np.arange(1, 70)
    blocks = [
        {
            (size, int(side.block_of(np.array([size]), np.array([h], np.uint64))[0]))
            for size in every
            for h in range(9)
        }
        for side in sides
    ]
    for a, i in blocks[0]:
        for b, j in blocks[1]:
            needed = rule.need(int(a), int(b))
            if needed <= min(a, b) and needed < rule.beyond(int(a), int(b)):
                pair = (i, j + len(sides[0])) if two else (min(i, j), max(i, j))
                assert pair in met


def test_rows_without_elements_are_in_the_first_block():
    blocks = SizeBlocks(np.array([MISSING, 3]), np.array([2, 2]), *np.zeros((3, 4)))
    sizes, hashed = (
        np.array([-1, 0, 2, 2, 3, 9]),
        np.array([1, 1, 0, 1, 0, 1], np.uint64),
    )
    assert blocks.block_of(sizes, hashed).tolist() == [0, 0, 0, 1, 2, 3]
    alone = compared_blocks(blocks, blocks, Rule("jaccard", Fraction(1)), True)
    assert [0, 4] in alone.tolist()
