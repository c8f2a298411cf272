import numpy as np

from dask_simjoin.sets.cpu import joiner as set_joiner
from dask_simjoin.sets.token_ids import EncodedSets, collapse
from dask_simjoin.strings import joiner as module
from dask_simjoin.strings.joiner import JOINER
from dask_simjoin.strings.requests import EditRule
from tests.support.edits import ALPHABETS, changed, edit_distance
from tests.support.profiles import everything, in_turns
from tests.support.sets_joins import found_by


def block_of(texts):
    """The block of distinct texts, and the texts in its order."""
    offsets = np.cumsum([0, *(len(text) + 1 for text in texts)])
    codes = np.array([ord(c) for text in texts for c in text + "\0"], np.int32)
    made = collapse(
        EncodedSets(offsets=offsets, codes=codes), int(codes.max(initial=0)) + 1
    )
    return made["block"], [texts[row] for row in made["order"][made["firsts"][:-3]]]


def texts_of(rng, rows, longest):
    letters = ALPHABETS[rng.integers(len(ALPHABETS))]
    found = [
        "".join(
            letters[k] for k in rng.integers(0, len(letters), rng.integers(longest))
        )
    ]
    while len(found) < rows:
        text = found[rng.integers(len(found))]
        for _ in range(rng.integers(0, 6)):
            text = changed(rng, text, letters)
        found.append(text)
    return found


# without an index, by cost, and with one
@in_turns(1, swaps=[False, True], compared=[0.0, 1.0, 1e9])
def test_pairs_are_those_of_brute_force(monkeypatch, compared, swaps):
    monkeypatch.setattr(module, "COMPARED", compared)
    monkeypatch.setattr(set_joiner, "BATCH", 4)
    monkeypatch.setattr(set_joiner, "MIN_PART", 4)
    rng = np.random.default_rng(3)
    for _ in range(15 if everything() else 8):
        rule = EditRule(int(rng.integers(0, 7)), None, swaps)
        (left, one), (right, other) = (
            block_of(texts_of(rng, 30, 25)) for _ in range(2)
        )
        for second, texts in ((None, one), (right, other)):
            want = {
                (i, j): edit_distance(one[i], texts[j], swaps)
                for i in range(len(one))
                for j in range(0 if second is not None else i + 1, len(texts))
            }
            want = {
                pair: distance for pair, distance in want.items() if distance <= rule.k
            }
            found = {}
            for some in JOINER.batches(left, second, rule):
                found |= {
                    (i, j): distance
                    for i, j, distance in zip(
                        *(column.tolist() for column in some[:3]), strict=True
                    )
                }
            assert found == want
            how = left, second, rule, "auto"
            assert found_by(JOINER, 3, *how) == found_by(JOINER, 1, *how)
        weights = left["weights"], right["weights"]
        rows = sum(weights[0][i] * weights[1][j] for i, j in want)
        counts = JOINER.counts(left, right, rule)
        assert (
            JOINER.count(left, right, rule)
            == rows
            == counts[0] @ weights[0]
            == counts[1] @ weights[1]
        )


def test_an_index_saves_comparisons():
    rng = np.random.default_rng(4)
    texts = [
        "".join("abcdefghij"[k] for k in rng.integers(0, 10, 30)) for _ in range(3000)
    ]
    block, _ = block_of([*texts, *(text[:-1] for text in texts[:50])])
    did = JOINER.counters(block, None, EditRule(2))
    assert did.distinct_pairs == 50
    assert did.listed < 3000 * 300  # of 4.6 million pairs
    assert did.comparisons < 60
