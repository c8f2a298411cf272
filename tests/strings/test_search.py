import numpy as np
import pytest

from dask_simjoin.sets.cpu.joiner import NO_COUNTS
from dask_simjoin.strings.joiner import EditSearch
from dask_simjoin.strings.requests import EditRule
from dask_simjoin.strings.search import fill, set_signatures, with_tails
from tests.strings.test_joiner import block_of
from tests.support.edits import changed, edit_distance


def test_each_segment_has_an_entry():
    texts = ["abcdef", "abcxyz", "abcdefgh"]
    offsets = np.cumsum([0, *(len(text) + 1 for text in texts)])
    tokens = np.array([ord(c) for text in texts for c in text + "\0"], np.int32)
    signatures = np.arange(3) + 100
    starts, entries, marks = (
        np.zeros(17, np.int64),
        np.empty(8, np.int64),
        np.empty(8, np.int64),
    )
    kinds, firsts, parts = np.array([6, 8]), np.array([0, 2, 3]), np.array([2, 4])
    fill(
        offsets, tokens, signatures, 1, 0, kinds, firsts, parts, starts, entries, marks
    )
    assert starts[0] == 0 and starts[-1] == 8 and (np.diff(starts) >= 0).all()
    owners = entries & 0xFFFFFFFF
    assert np.bincount(owners).tolist() == [2, 2, 4]
    assert (marks == owners + 100).all()
    keys, counts = np.unique(entries >> 32, return_counts=True)
    # "abc" begins both texts of six characters
    assert len(keys) == 7 and sorted(counts)[-1] == 2


def test_edits_bound_the_bits_that_differ():
    rng = np.random.default_rng(1)
    for _ in range(200):
        one = "".join("abcdefgh"[k] for k in rng.integers(0, 8, rng.integers(1, 30)))
        other = one
        edits = int(rng.integers(1, 5))
        for _ in range(edits):
            other = changed(rng, other, "abcdefgh")
        offsets = np.cumsum([0, len(one) + 1, len(other) + 1])
        tokens = np.array([ord(c) for c in f"{one}\0{other}\0"], np.int32)
        codes, pairs = np.empty(2, np.int64), np.empty(2, np.int64)
        set_signatures(offsets, tokens, 1, np.zeros(64, np.int64), codes, pairs)
        for found, most in ((codes, 1), (pairs, 3)):
            a, b = (int(value) % (1 << 64) for value in found)
            assert max((a & ~b).bit_count(), (b & ~a).bit_count()) <= most * edits


def test_strings_get_their_tails():
    offsets, out = np.empty(4, np.int64), np.empty(9, np.int32)
    tails = np.array([[7, 8], [9, 10], [11, 12]], np.int32)
    with_tails(
        np.array([0, 2, 2, 3]), np.array([1, 2, 3], np.uint32), tails, offsets, out
    )
    assert offsets.tolist() == [0, 4, 6, 9]
    assert out.tolist() == [1, 2, 7, 8, 9, 10, 3, 11, 12]


def columns(room):
    return np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)


@pytest.mark.parametrize(("rows", "k", "room"), [(40, 1, 25), (100, 2, 120)])
def test_a_search_goes_on_where_pairs_did_not_fit(rows, k, room):
    block, texts = block_of([f"abcdefgh{number:02d}" for number in range(rows)])
    search, found = EditSearch(block, None, EditRule(k)), []
    while search.next is not None:
        out = columns(room)
        done = search.run((*out, NO_COUNTS, NO_COUNTS))
        found += [
            (i, j)
            for i, j in zip(out[0][:done].tolist(), out[1][:done].tolist(), strict=True)
        ]
    want = [
        (i, j)
        for i in range(rows)
        for j in range(i)
        if edit_distance(texts[i], texts[j]) <= k
    ]
    assert sorted(found) == want


def test_groups_are_compared_by_their_codes():
    # the last code and the end are the tail
    block, texts = block_of(["ab\x01", "ab\x02", "ac\x01"])
    search = EditSearch(block, None, EditRule(1, tail=2))
    out = columns(10)
    assert search.run((*out, NO_COUNTS, NO_COUNTS)) == 1
    assert {texts[out[0][0]], texts[out[1][0]]} == {"ab\x01", "ac\x01"}


def test_counters_do_not_depend_on_the_size_of_the_output():
    rng = np.random.default_rng(4)
    block, _ = block_of(
        sorted({"".join("ab"[k] for k in rng.integers(0, 2, 9)) for _ in range(300)})
    )
    searches = [EditSearch(block, None, EditRule(2)) for _ in range(2)]
    for search, capacity in zip(searches, (1 << 16, 64), strict=True):
        out = columns(capacity)
        while search.next is not None:
            search.run((*out, NO_COUNTS, NO_COUNTS))
    assert searches[0].tally[-1] > 64
    assert searches[0].tally.tolist() == searches[1].tally.tolist()
