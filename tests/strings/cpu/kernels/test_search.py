import numpy as np
import pytest

from dask_simjoin.strings.cpu.joiner import NONE, EditSearch
from dask_simjoin.strings.predicate import EditRule
from tests.strings.cpu.test_joiner import block_of
from tests.support.edits import edit_distance


def columns(room):
    return np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)


@pytest.mark.parametrize(("rows", "k", "room"), [(40, 1, 25), (100, 2, 120)])
def test_a_search_goes_on_where_pairs_did_not_fit(rows, k, room):
    block, texts = block_of([f"abcdefgh{number:02d}" for number in range(rows)])
    search, found = EditSearch(block, None, EditRule(k)), []
    while search.next is not None:
        out = columns(room)
        done = search.run((*out, NONE, NONE))
        found += [(i, j) for i, j in zip(out[0][:done].tolist(), out[1][:done].tolist(), strict=True)]
    want = [(i, j) for i in range(rows) for j in range(i) if edit_distance(texts[i], texts[j]) <= k]
    assert sorted(found) == want


def test_groups_are_compared_by_their_codes():
    block, texts = block_of(["ab\x01", "ab\x02", "ac\x01"])  # the last code and the end are the tail
    search = EditSearch(block, None, EditRule(1, tail=2))
    out = columns(10)
    assert search.run((*out, NONE, NONE)) == 1
    assert {texts[out[0][0]], texts[out[1][0]]} == {"ab\x01", "ac\x01"}
