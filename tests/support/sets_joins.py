"""Comparison of a joiner's results for blocks of sets with the definition."""

from fractions import Fraction

import numpy as np

from dask_simjoin.sets.predicate import NONE, PRODUCT
from tests.support.sets_oracle import block_of, matching

THRESHOLDS = [Fraction(t) for t in ("0.55", "0.65", "0.8", "0.9", "1/3", "1")]


def found_by(joiner, threads, *how):
    """The pairs, the counts and the number of pairs that a joiner of the host finds with
    several threads.
    """

    def batches(search):
        return [
            tuple(column.tolist() for column in some[:3]) for some in search.batches()
        ]

    pairs = [
        pair
        for share in joiner.search(*how).by_threads(threads, batches)
        for some in share
        for pair in zip(*some, strict=True)
    ]
    counts = [side.tolist() for side in joiner.counts(*how, threads)]
    return pairs, counts, joiner.count(*how, threads)


def rule_values(similarity, threshold):
    """Return a share as a threshold, or a number of tokens that is about as strict."""
    return Fraction(1 + int(5 * threshold)) if similarity == "overlap" else threshold


def on_device(block, xp):
    """Return a block whose arrays are of another module, or the same block for None."""
    if block is None:
        return None
    return {
        key: xp.asarray(one) if isinstance(one, np.ndarray) else one
        for key, one in block.items()
    }


def dense_matching(left, right, rule):
    """Return pairs -> overlap of blocks, all compared at once: fast for many sets of
    few tokens.
    """
    same, right = right is None, left if right is None else right
    tables, sizes = [], []
    for block in (left, right):
        size = np.diff(block["offsets"])
        table = np.zeros(
            (len(size), max(left["universe"], right["universe"])), np.float32
        )
        table[np.repeat(np.arange(len(size)), size), block["tokens"]] = 1
        tables.append(table)
        sizes.append(size)
    overlap = (tables[0] @ tables[1].T).astype(np.int64)
    a, b = sizes[0][:, None], sizes[1][None, :]
    limits = rule.limits(int(a.max()), int(b.max()))
    value = overlap * limits.denominator * (overlap if limits.kind == PRODUCT else 1)
    bound = limits.numerator * (
        1 if limits.kind == NONE else a * b if limits.kind == PRODUCT else a + b
    )
    found = value >= bound + limits.above
    if limits.exact:
        found &= value < bound + limits.more_above
    if same:
        found &= np.arange(len(overlap))[:, None] < np.arange(len(overlap))[None, :]
    pairs = np.argwhere(found).tolist()
    return {(i, j): int(overlap[i, j]) for i, j in pairs}


def random_sets(rng, number, universe, most):
    """Draw sets of tokens; the last tokens are frequent, and some sets are nearly
    equal.
    """
    weights = np.arange(1.0, universe + 1)
    weights /= weights.sum()
    found = []
    for k in range(number):
        if k % 3 and found:  # a copy of an earlier set, with a token or two changed
            some = set(found[rng.integers(len(found))])
            some ^= set(rng.choice(universe, rng.integers(1, 3)).tolist())
        else:
            some = set(
                rng.choice(
                    universe, rng.integers(1, most), replace=False, p=weights
                ).tolist()
            )
        found.append(sorted(some or {0}))
    return found


def pairs_of(found):
    """Return pairs -> overlap; a pair that repeats is an error."""
    left, right, overlap = (column.tolist() for column in found[:3])
    pairs = list(zip(left, right, strict=True))
    assert len(set(pairs)) == len(pairs)
    return dict(zip(pairs, overlap, strict=True))


def check_blocks(joiner, q, d, rule, method, expected, xp=np):
    """Compare all results of a joiner for two blocks, or for one, with the matching
    pairs.
    """
    q, d = on_device(q, xp), on_device(d, xp)
    found = joiner.pairs(q, d, rule, method)
    assert found.next is None
    assert pairs_of(found) == expected
    weights = [
        np.asarray(side["weights"].tolist()) for side in (q, q if d is None else d)
    ]
    assert joiner.count(q, d, rule, method) == sum(
        int(weights[0][i] * weights[1][j]) for i, j in expected
    )
    counts = [np.zeros(len(w), np.int64) for w in weights]
    if d is None:
        counts[1] = counts[0]
    for i, j in expected:
        counts[0][i] += weights[1][j]
        counts[1][j] += weights[0][i]
    told = joiner.counts(q, d, rule, method)
    assert [side.tolist() for side in told] == [side.tolist() for side in counts]
    counters = joiner.counters(q, d, rule, method)
    assert counters.distinct_pairs == len(expected)
    assert counters.candidates >= counters.comparisons >= counters.distinct_pairs


def check_in_parts(joiner, q, d, rule, method, expected, limits, xp=np):
    """Compare pairs that a joiner finds by and by; return the most of one time for each
    limit.
    """
    q, d = on_device(q, xp), on_device(d, xp)
    longest = []
    for limit in limits:
        found, start, most = [], 0, 0
        while start is not None:
            part = joiner.pairs(q, d, rule, method, limit=limit, start=start)
            found += zip(part.left.tolist(), part.right.tolist(), strict=True)
            assert part.next is None or part.next > start
            most, start = max(most, len(part.left)), part.next
        assert sorted(found) == sorted(expected)
        longest.append(most)
    return longest


def check(joiner, left, right, rule, method, xp=np):
    """Compare all results of a joiner for two lists of sets, or for one, with the
    definition.
    """
    q, q_sets = block_of(left)
    d, d_sets = (None, None) if right is None else block_of(right)
    check_blocks(joiner, q, d, rule, method, matching(q_sets, d_sets, rule), xp)
