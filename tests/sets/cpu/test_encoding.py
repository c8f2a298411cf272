"""Kernels that number tokens: long ones, many, and far integers."""

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.sets import Whitespace
from dask_simjoin.sets.columns import occurrences
from tests.sets.test_tokens import rows


def test_many_long_tokens():
    """More than the first table holds, of which many begin alike."""
    random = np.random.default_rng(1)
    texts = [
        " ".join(
            f"{'ab' * n}{x}"
            for n, x in zip(*random.integers(0, (9, 40), (size, 2)).T, strict=True)
        )
        for size in random.integers(0, 60, 400)
    ]
    texts += [" ".join(map(str, range(9000))), "x" * 3000 + " " + "x" * 3001]
    for some in (texts, texts[3:]):
        found = Whitespace().split(
            pa.array(texts, pa.large_string())[len(texts) - len(some) :]
        )
        assert rows(found) == [text.split() for text in some]
        assert len(set(found.tokens.to_pylist())) == len(found.tokens)


def test_far_integers():
    values = [[2**62, -(2**62)], [-(2**62)], []]
    _, found = occurrences(pd.Series(values), None)
    assert rows(found) == values


def test_more_tokens_than_lie_near_a_core():
    """They are read some at a time, and told apart where they share a slot, or all but
    their ends.
    """
    random = np.random.default_rng(3)
    words = np.array(
        [
            f"{k:x}" if k % 2 else f"longer than a word {k}".replace(" ", "-")
            for k in range(90_000)
        ]
    )
    places = np.concatenate(
        [random.permutation(90_000), random.integers(0, 90_000, 60_000)]
    )
    cuts = np.sort(random.integers(0, len(places), 2000))
    texts = [" ".join(some) for some in np.split(words[places], cuts)]
    found = Whitespace().split(pa.array(texts, pa.large_string()))
    codes, tokens = pd.factorize(words[places])
    assert (
        found.codes.tolist() == codes.tolist()
        and found.tokens.to_pylist() == tokens.tolist()
    )
    assert found.offsets.tolist() == [0, *cuts.tolist(), len(places)]
