import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.errors import DeprecatedWarning, TextError
from tests.support.edits import run_case
from tests.support.profiles import every_nth, examples


@pytest.mark.parametrize("case", every_nth(4, range(30)))
def test_verbs_give_what_the_definition_does(case):
    run_case(1, case)


@pytest.mark.slow
def test_verbs_give_what_the_definition_does_in_many_cases():
    for case in range(examples(500)):
        run_case(2, case)


def pairs_of(values, k, **options):
    frame = pd.DataFrame({"t": pd.Series(values, dtype="object")})
    found = frame.simjoin.edit_self_join("t", k, **options)
    return sorted(zip(found["left"].tolist(), found["right"].tolist(), strict=True))


def test_edges_of_texts():
    assert pairs_of(["", "", "a", "ab", None, np.nan, pd.NA], 1) == [
        (0, 1),
        (0, 2),
        (1, 2),
        (2, 3),
    ]
    assert pairs_of(["a", "b"], 10**9) == [(0, 1)]
    assert pairs_of(["a", "b", "a"], 0) == [(0, 2)]
    # a code point is one character
    assert pairs_of(["\U0001f600a", "a"], 1) == [(0, 1)]
    assert pairs_of(["\u00e9", "e\u0301"], 1) == []  # forms of Unicode differ
    assert pairs_of(["\u00e9", "e\u0301"], 2) == [(0, 1)]
    assert pairs_of(["a\0", "a"], 1) == [(0, 1)]
    assert pairs_of(["a\0", "a"], 0) == []


def test_similarities_at_ties():
    assert pairs_of(
        ["abcdefghij", "abcdefghix", "abcdefghyx"], None, similarity=0.9
    ) == [(0, 1), (1, 2)]
    assert pairs_of(["", "", "a"], None, similarity=1) == [(0, 1)]
    assert pairs_of(["ab", "ba"], None, similarity=0.5) == []
    assert pairs_of(["ab", "ba"], None, similarity=0.5, transpositions=True) == [(0, 1)]


def test_a_transposition_is_not_edited_again():
    assert pairs_of(["ca", "abc"], 2, transpositions=True) == []
    assert pairs_of(["ca", "abc"], 3, transpositions=True) == [(0, 1)]


def test_texts_of_a_megabyte():
    text = "abcdefgh" * (1 << 17)
    middle = len(text) // 2
    assert pairs_of(
        [text, f"{text[:middle]}x{text[middle + 1 :]}", text[1:], "a"], 2
    ) == [
        (0, 1),
        (0, 2),
        (1, 2),
    ]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("category", ["ab", "ac"]),
        ("string[pyarrow]", ["ab", "ac"]),
        ("str", ["ab", "ac"]),
    ],
)
def test_dtypes_of_texts(dtype, values):
    frame = pd.DataFrame({"t": pd.Series(values, dtype=dtype)})
    assert len(frame.simjoin.edit_self_join("t", 1)) == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [(b"bytes", "bytes"), (3, "3"), (["a"], "a list"), ("\ud800", "surrogate")],
)
def test_rows_without_a_text_are_refused(value, said):
    frame = pd.DataFrame({"t": pd.Series(["a", value], dtype="object")})
    with pytest.raises(TextError, match=r"must hold texts: row 1 .*holds"):
        frame.simjoin.edit_self_join("t", 1)


def test_groups_with_missing_values_match_nothing():
    frame = pd.DataFrame(
        {"t": ["ab", "ab", "ac", "ac"], "g": [1.0, np.nan, np.nan, 1.0]}
    )
    for table in (frame, dd.from_pandas(frame, npartitions=2)):
        found = table.simjoin.edit_self_join("t", 1, by="g")
        found = found.compute() if hasattr(found, "compute") else found
        assert found[["left", "right"]].values.tolist() == [[0, 3]]
    other = pd.DataFrame({"t": ["ab"], "g": [1]})
    found = frame.simjoin.edit_join(other, "t", 1, by="g", how="leftsemi")
    assert found.index.tolist() == [0, 3]
    assert list(found.columns) == ["t", "g"]


def test_functions_are_those_of_the_accessor():
    frame = pd.DataFrame({"t": ["ab", "ac"]})
    assert dask_simjoin.count_edit_pairs(frame, "t", 1) == 1
    assert dask_simjoin.drop_edit_near_duplicates(frame, "t", 1)["t"].tolist() == ["ab"]


def names(rows):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"t": ["".join("abc"[k] for k in row) for row in rng.integers(0, 3, (rows, 9))]}
    )


def test_plans_of_plain_and_lazy_frames():
    frame = names(200)
    pairs = len(frame.simjoin.edit_self_join("t", 2))
    whole = frame.simjoin.edit_plan("t", 2)
    assert (
        whole.rows == 200
        and whole.characters == 1800
        and whole.pairs == pairs
        and whole.blocks == 1
    )
    lazy = dd.from_pandas(frame, npartitions=3).simjoin.edit_plan(
        "t", 2, blocksize=8_000
    )
    assert lazy.blocks > 1 and lazy.characters == 1800 and lazy.pairs == pairs
    assert "Plan of a self-join by edit distance, k=2" in str(lazy)
    assert len(lazy.to_frame()) == lazy.block_pairs
    two = frame.simjoin.edit_plan("t", similarity=0.8, other=names(10), by="t")
    assert "join of two tables" in str(two) or "two tables" in two.title
    assert two.pairs == 10


def test_a_profile_counts_the_work():
    found = names(300).simjoin.profile(on="t", k=2)
    numbers = {name: int(value) for name, value in found.numbers.items()}
    assert (
        numbers["characters"] == 2700 and numbers["values"] == names(300)["t"].nunique()
    )
    assert (
        numbers["distinct_pairs"]
        < numbers["pairs"]
        == len(names(300).simjoin.edit_self_join("t", 2))
    )
    assert (
        numbers["listed"]
        >= numbers["candidates"]
        >= numbers["comparisons"]
        >= numbers["distinct_pairs"]
    )
    assert list(found.seconds) == ["read", "index", "join"]
    lazy = dd.from_pandas(names(300), npartitions=2)
    assert lazy.simjoin.profile(on="t", k=2).numbers == found.numbers
    with pytest.warns(DeprecatedWarning, match=r"use profile\(on=") as seen:
        assert names(300).simjoin.edit_profile("t", 2).numbers == found.numbers
    assert seen[0].filename == __file__
