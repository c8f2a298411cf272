"""Every method of the CPU against the definition."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.sets.cpu import joiner
from dask_simjoin.sets.cpu.candidates import (
    ADMISSIBLE,
    ENTRIES,
    LOOKUPS,
    OF_LISTS,
    OF_PAIRS,
    WORK,
)
from dask_simjoin.sets.cpu.choice import (
    usual_words,
)
from dask_simjoin.sets.cpu.joiner import JOINER, SetSearch
from dask_simjoin.sets.methods import CHOICES, AllPairs, Bitmap, PPJoin
from dask_simjoin.sets.predicate import COMPARISONS, SIMILARITIES, Rule
from tests.support.profiles import every_nth, examples, pairwise
from tests.support.sets_joins import found_by
from tests.support.sets_oracle import block_of, matching


@pytest.fixture(autouse=True)
def little(monkeypatch):
    """Give threads so little work that a few sets are joined by several."""
    monkeypatch.setattr(joiner, "MIN_PART", 4)


THRESHOLDS = [Fraction(t) for t in ("0.55", "0.65", "0.8", "0.9", "1/3", "1")]

TOLD = [
    *CHOICES,
    PPJoin(words=0),
    PPJoin(words=1),
    PPJoin(words=16),
    Bitmap(words=2),
    Bitmap(words=32),
]

TOKENS = st.sampled_from([*range(15), 64, 128, 1024, 4096, 4097, 10**6])
"""Few, so that sets are alike, and some whose last bits are alike, which share bits and
lists.
"""

SETS = st.lists(st.frozensets(TOKENS, min_size=1, max_size=12), max_size=20)


def rule_of(similarity, threshold, comparison):
    """A rule of a threshold that is a share, or of a number of tokens about as strict."""
    if similarity == "overlap":
        threshold = Fraction(1 + int(5 * threshold))
    return Rule(similarity, threshold, comparison)


def check(left, right, rule, method):
    """Compare all that a joiner tells with the definition."""
    q, q_sets = block_of(left)
    d, d_sets = (None, None) if right is None else block_of(right)
    expected = matching(q_sets, d_sets, rule)
    pairs = []
    for some in JOINER.batches(q, d, rule, method):
        pairs += zip(*(column.tolist() for column in some[:3]), strict=True)
        assert [column.dtype for column in some[:3]] == [np.int64, np.int64, np.int32]
    assert {(i, j): overlap for i, j, overlap in pairs} == expected and len(
        pairs
    ) == len(expected)
    weights = q["weights"], (q if d is None else d)["weights"]
    products = [weights[0][i] * weights[1][j] for i, j in expected]
    assert JOINER.count(q, d, rule, method) == sum(products)
    counts = [np.zeros(len(w), np.int64) for w in weights]
    if d is None:
        counts[1] = counts[0]
    for i, j in expected:
        counts[0][i] += weights[1][j]
        counts[1][j] += weights[0][i]
    told = JOINER.counts(q, d, rule, method)
    assert [side.tolist() for side in told] == [side.tolist() for side in counts]
    # the same pairs, in the same order
    how = q, d, rule, method
    assert found_by(JOINER, 3, *how) == found_by(JOINER, 1, *how)
    counters = JOINER.counters(q, d, rule, method)
    assert counters.distinct_pairs == len(expected)
    assert counters.candidates >= counters.comparisons >= counters.distinct_pairs
    assert method == "groupjoin" or counters.listed >= counters.candidates
    return q, d, expected


@pairwise(similarity=list(SIMILARITIES), comparison=list(COMPARISONS), method=TOLD)
def test_pairs_are_those_by_definition(similarity, comparison, method):
    @settings(max_examples=examples(60))
    @given(SETS, st.none() | SETS, st.sampled_from(THRESHOLDS))
    def check_some(left, right, threshold):
        check(left, right, rule_of(similarity, threshold, comparison), method)

    check_some()


def alike(rng, n, size, universe):
    """Sets of up to a size, some of which differ from another one in a few tokens."""
    found = []
    for k in range(n):
        tokens = rng.choice(universe, rng.integers(1, size + 1), replace=False)
        if k % 3:
            kept = found[rng.integers(len(found))]
            tokens = np.concatenate(
                [kept[rng.random(len(kept)) < 0.95], tokens[: rng.integers(4)]]
            )
        if len(tokens):
            found.append(np.unique(tokens))
    return [some.tolist() for some in found]


@pytest.mark.parametrize("method", TOLD, ids=str)
@pytest.mark.parametrize("two", [False, True])
def test_pairs_in_parts_are_all_pairs(two, method, monkeypatch):
    rng = np.random.default_rng(2)
    some = [
        [rng.choice(25, rng.integers(1, 15), replace=False).tolist() for _ in range(90)]
        for _ in "qd"
    ]
    rule = Rule("jaccard", Fraction("0.4"))
    for batch in (3, 7, 100):  # 3 is less than some sets have
        monkeypatch.setattr(joiner, "BATCH", batch)
        check(some[0], some[1] if two else None, rule, method)


@pytest.mark.parametrize("method", CHOICES)
def test_where_nothing_can_match_there_is_nothing(method):
    empty, _ = block_of([])
    some, _ = block_of([[1], [1, 2], [3, 4, 5]])
    strict = Rule("jaccard", Fraction(1), ">")
    many = Rule("overlap", Fraction(4))
    cases = [
        (empty, None, strict),
        (empty, some, strict),
        (some, empty, many),
        (some, None, strict),
    ]
    cases += [(some, some, strict), (some, None, many), (some, some, many)]
    for q, d, rule in cases:
        assert sum(len(some.left) for some in JOINER.batches(q, d, rule, method)) == 0
        assert JOINER.count(q, d, rule, method) == 0
        assert [side.tolist() for side in JOINER.counts(q, d, rule, method)] == [
            [0] * len(side["weights"]) for side in (q, q if d is None else d)
        ]


def test_arrays_that_are_read_only_or_apart_are_taken_as_they_are():
    rng = np.random.default_rng(3)
    block, _ = block_of(alike(rng, 60, 20, 60))
    rule = Rule("jaccard", Fraction("0.6"))
    expected = JOINER.count(block, None, rule, "auto")
    other = block | {
        "tokens": np.repeat(block["tokens"], 2)[::2],
        "weights": block["weights"].copy(),
    }
    other["weights"].flags.writeable = False
    assert JOINER.count(other, None, rule, "auto") == expected > 0


def filtered_by_prefixes(sets, rule):
    """Candidates of the published PPJoin: by prefixes, sizes and the positions of the
    first common token.

    Return how many sets are found, and how many of them are compared.
    """
    lists, candidates, verified = {}, 0, 0
    for one, tokens in enumerate(sets):
        size, seen = len(tokens), set()
        for i, token in enumerate(tokens[: size - rule.smallest(size) + 1]):
            for other, j in lists.get(token, ()):
                need = rule.need(size, len(sets[other]))
                if (
                    other in seen
                    or len(sets[other]) < rule.smallest(size)
                    or need > size - i
                ):
                    continue
                seen.add(other)
                candidates += 1
                verified += min(size - i, len(sets[other]) - j) >= need
        for j, token in enumerate(tokens[: size - rule.need(size, size) + 1]):
            lists.setdefault(token, []).append((one, j))
    return candidates, verified


@pytest.mark.parametrize("threshold", every_nth(2, ["0.5", "0.7", "0.9"]))
def test_ppjoin_without_bitmaps_is_the_published_one(threshold):
    rule = Rule("jaccard", Fraction(threshold))
    block, sets = block_of(alike(np.random.default_rng(4), 400, 30, 80))
    plain, usual = (
        JOINER.counters(block, None, rule, PPJoin(words=words)) for words in (0, None)
    )
    assert (plain.candidates, plain.comparisons) == filtered_by_prefixes(sets, rule)
    assert plain.distinct_pairs == usual.distinct_pairs > 0
    # bitmaps reject sets before their tokens are looked at
    assert plain.candidates > usual.candidates
    every = JOINER.counters(block, None, rule, "allpairs")
    assert (
        plain.candidates <= every.candidates and plain.comparisons < every.comparisons
    )
    search = [
        joiner.SetSearch(block, None, rule, PPJoin(words=words))
        for words in (0, None, 4)
    ]
    assert [one.choice.words for one in search] == [
        0,
        usual_words(np.diff(block["offsets"]).mean()),
        2,
    ]


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("threshold", ["0.5", "0.7"])
def test_the_sample_tells_the_work(two, threshold, monkeypatch):
    monkeypatch.setattr(joiner, "PROBED", 10**6)
    rng = np.random.default_rng(7)
    sets = [
        rng.choice(400, rng.integers(5, 40), replace=False).tolist()
        for _ in range(2000)
    ]
    left, right = (
        block_of(sets)[0],
        block_of(alike(rng, 500, 30, 400))[0] if two else None,
    )
    rule = Rule("jaccard", Fraction(threshold))
    search = SetSearch(left, right, rule, AllPairs())
    prefixes = search._prefixes()
    places, _ = search._lists(np.arange(len(search._d_sizes) + 1), prefixes[1])
    counted = search._sample(prefixes, places, 10**6)
    listed = JOINER.counters(left, right, rule, "allpairs").listed
    lookups = prefixes[0][search._q_sizes].sum()
    # sets without partners of admissible sizes look nothing up
    assert 0.99 * lookups <= counted[WORK, LOOKUPS] <= lookups
    assert 0.5 * listed < counted[WORK, ENTRIES] < 2 * listed
    by_bitmaps = JOINER.counters(left, right, rule, Bitmap(words=4))
    assert counted[WORK, ADMISSIBLE] == by_bitmaps.listed
    assert (np.diff(counted[OF_PAIRS]) <= 0).all() and (
        np.diff(counted[OF_LISTS]) <= 1e-6
    ).all()
