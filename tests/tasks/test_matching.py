"""One-to-one matching of pairs, against its definition."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.errors import BudgetError
from dask_simjoin.planning.budget import Cause
from dask_simjoin.planning.checks import check_matching
from dask_simjoin.tasks.closest import RowPairs
from dask_simjoin.tasks.matching import (
    check_numbers,
    greedy,
    greedy_of_frames,
    pair_order,
)
from tests.support.profiles import examples


def by_definition(pairs):
    """Take sorted pairs (total, left, right), unless one of their rows is taken."""
    lefts, rights, found = set(), set(), []
    for total, left, right in sorted(pairs):
        if left not in lefts and right not in rights:
            lefts.add(left)
            rights.add(right)
            found.append((total, left, right))
    return found


def mutual_rounds(pairs):
    """Take in rounds the pairs that are the first one of both rows."""
    found, rest = [], sorted(pairs)
    while rest:
        first = [{}, {}]
        for pair in rest:
            for side in (0, 1):
                first[side].setdefault(pair[1 + side], pair)
        taken = [p for p in rest if first[0][p[1]] == p == first[1][p[2]]]
        found += taken
        gone = [{pair[1 + side] for pair in taken} for side in (0, 1)]
        rest = [p for p in rest if p[1] not in gone[0] and p[2] not in gone[1]]
    return sorted(found)


ROWS = st.integers(0, 9)
PAIRS = st.sets(st.tuples(ROWS, ROWS), max_size=60)


@settings(max_examples=examples(300))
@given(pairs=PAIRS, data=st.data())
def test_pairs_are_taken_by_ascending_distance(pairs, data):
    total = st.sampled_from([0.0, 0.5, 1.0, 2.0])
    every = [
        (data.draw(total), *pair) for pair in data.draw(st.permutations(list(pairs)))
    ]
    columns = list(zip(*every, strict=True)) or [(), (), ()]
    totals, left, right = (
        np.array(c, kind) for c, kind in zip(columns, (float, int, int), strict=True)
    )
    found = greedy(RowPairs(left, right, totals))
    taken = list(zip(found.total, found.left, found.right, strict=True))
    assert taken == by_definition(every) == mutual_rounds(every)
    frames = [
        pd.DataFrame(
            {"left": left[part], "right": right[part], "distance": totals[part]}
        )
        for part in (slice(0, 7), slice(7, None))
    ]
    similar = [
        one.rename(columns={"distance": "similarity"}).assign(
            similarity=-one["distance"]
        )
        for one in frames
    ]
    for pairs in (greedy_of_frames(*frames), greedy_of_frames(*similar)):
        for one, other in zip(pairs[:3], found[:3], strict=True):
            assert one.tolist() == other.tolist()


@settings(max_examples=examples(100))
@given(data=st.data(), pairs=PAIRS)
def test_ties_are_in_the_order_of_rows(data, pairs):
    left, right = (np.array([p[k] for p in pairs], np.int64) for k in (0, 1))
    values = st.sampled_from([np.nan, -1.0, 0.0, -0.0, 1.0])
    total = np.array([data.draw(values) for _ in pairs])
    found = pair_order(RowPairs(left, right, total)).tolist()
    assert found == np.lexsort((right, left, total)).tolist()


def test_pairs_that_do_not_fit_are_refused():
    cause = Cause("eps=1", two=True)
    check_numbers(None, cause, 10**12)
    check_numbers(128, cause, 1, 1)
    with pytest.raises(BudgetError, match=r"needs all pairs at once: eps=1 gives 3, "):
        check_numbers(128, cause, 1, 2)
    with pytest.raises(
        BudgetError, match=r"eps=1 gives an estimated .* or more, which"
    ):
        check_matching(128, cause, 1e6, counted=False)
    with pytest.raises(BudgetError, match=r"Use a larger threshold\.$"):
        check_numbers(128, Cause("threshold=0.5", kind="set_"), 3)
