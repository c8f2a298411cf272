"""Columns of sets as they are rarely: what is there is read exactly, or refused in
words that help.
"""

from decimal import Decimal

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dask_simjoin  # noqa: F401
from dask_simjoin.errors import OptionError, TokenError
from dask_simjoin.sets import QGrams
from dask_simjoin.sets.methods import METHODS

TEXTS = ["a b c", "a b c d", None, ""]


def objects(*rows):
    return pd.DataFrame({"sets": pd.Series(rows, dtype=object)})


def test_arrays_with_and_without_sign_together_are_read_exactly():
    """Together NumPy makes float64 of them, in which these neighbours are equal."""
    near = objects(np.array([2**53 + 1], np.int64), np.array([2**53], np.uint64))
    assert near.simjoin.count_set_pairs("sets", 1) == 0
    far = objects(
        np.array([2**63 - 1, -1], np.int64), np.array([2**63 - 1, 7], np.uint64)
    )
    assert far.simjoin.set_self_join("sets", 0.1, return_similarity=True)[
        "similarity"
    ].tolist() == [1 / 3]


@pytest.mark.parametrize(
    "other", [np.array([True]), np.array(["2020"], "M8[D]"), np.array([1.0])], ids=repr
)
def test_arrays_of_integers_and_of_others(other):
    with pytest.raises(
        TokenError,
        match=r"has the token .* among others. Tokens must be all strings or",
    ):
        objects(np.array([1]), other).simjoin.count_set_pairs("sets", 1)


@pytest.mark.parametrize("method", ["auto", *METHODS])
@pytest.mark.parametrize("comparison", [">=", ">", "="])
@pytest.mark.parametrize("threshold", [4, 2**63, 10**30])
def test_more_common_tokens_than_sets_have(threshold, comparison, method):
    frame = objects([1, 2, 3], [1, 2, 3, 4], [1, 2, 3])
    options = {"similarity": "overlap", "comparison": comparison, "method": method}
    assert frame.simjoin.count_set_pairs("sets", threshold, **options) == 0


@pytest.mark.parametrize(
    "kind", [pa.dictionary(pa.int32(), pa.string()), pa.string_view()], ids=str
)
def test_texts_of_other_arrow_types(kind):
    frame = pd.DataFrame({"sets": pd.Series(TEXTS, dtype=pd.ArrowDtype(kind))})
    options = {"tokenizer": "whitespace", "allow_missing": True, "allow_empty": True}
    assert frame.simjoin.count_set_pairs("sets", 0.75, **options) == 1
    assert frame.simjoin.set_neighbor_counts("sets", 0.75, **options).tolist() == [
        1,
        1,
        0,
        0,
    ]


def test_a_dictionary_may_hold_what_is_missing():
    encoded = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 1, 0]), pa.array(["a", None])
    )
    texts = pd.DataFrame({"sets": pd.Series(pd.arrays.ArrowExtensionArray(encoded))})
    assert texts.simjoin.set_neighbor_counts("sets", 1, tokenizer="words").tolist() == [
        1,
        0,
        0,
        1,
    ]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2]), encoded[:2])
    frame = pd.DataFrame({"sets": pd.Series(pd.arrays.ArrowExtensionArray(lists))})
    with pytest.raises(
        TokenError, match=r"row 1 \(label 1\) holds a list with a missing token"
    ):
        frame.simjoin.set_self_join("sets", 1)


def test_a_missing_token_is_of_the_row_that_is_named():
    """Rows without a list are counted too."""
    values = pd.array(
        [None, [], ["a"], ["b", None]], dtype=pd.ArrowDtype(pa.list_(pa.string()))
    )
    with pytest.raises(
        TokenError, match=r"row 3 \(label 3\) holds a list with a missing token"
    ):
        pd.DataFrame({"sets": values}).simjoin.set_self_join("sets", 0.5)


def test_categories_that_are_no_texts():
    frame = pd.DataFrame({"sets": pd.Series(["a", None, 1], dtype="category")})
    for verb in ("set_self_join", "set_plan"):
        with pytest.raises(
            TokenError,
            match=r"must hold texts: row 2 \(label 2\) holds 1 \(int\), which is not text",
        ):
            getattr(frame.simjoin, verb)("sets", 0.5, tokenizer="words")


def test_half_of_a_surrogate_pair():
    with pytest.raises(
        TokenError,
        match=r"row 1 \(label 1\) holds 'a.ud800', which is not valid U.*enc",
    ):
        objects(None, "a\ud800").simjoin.set_self_join("sets", 0.5, tokenizer="words")
    with pytest.raises(
        TokenError,
        match=r"A row of the column has the token '.udfff', which is not valid U",
    ):
        objects(["a"], ["\udfff"]).simjoin.set_self_join("sets", 0.5)
    with pytest.raises(
        TokenError,
        match=r"^tokenizer=.* returned the token '.ud800', which is not valid",
    ):
        objects("a").simjoin.set_self_join(
            "sets", 0.5, tokenizer=lambda text: ["\ud800"]
        )


@pytest.mark.parametrize("kind", ["text", "categories", "list"])
@pytest.mark.parametrize("lazy", [False, True])
def test_bytes_that_are_no_utf8(kind, lazy):
    """Arrow takes what files and buffers hold as it is, and fails later or never."""
    ends = pa.py_buffer(np.array([0, 4, 8, 12], np.int32))
    texts = pa.Array.from_buffers(
        pa.string(), 3, [None, ends, pa.py_buffer(b"a bcd \xffef gh")]
    )
    broken, how = (
        r"b'd ..ffe', whose bytes are not valid UTF-8 \(.*encoding=",
        {"tokenizer": "words"},
    )
    if kind == "categories":
        texts = texts.dictionary_encode()
    if kind == "list":
        texts = pa.ListArray.from_arrays(pa.array([0, 1, 3, 3], pa.int32()), texts)
        broken, how = "a list with the token " + broken, {}
    frame = pd.DataFrame({"sets": pd.Series(pd.arrays.ArrowExtensionArray(texts))})
    held = dd.from_pandas(frame, npartitions=1) if lazy else frame
    for verb in ("set_plan", "count_set_pairs"):
        with pytest.raises(
            TokenError, match=rf"row 1( of partition 0)? \(label 1\) holds {broken}"
        ):
            dask.compute(getattr(held.simjoin, verb)("sets", 0.5, **how))
    assert frame.iloc[[0, 2]].simjoin.count_set_pairs("sets", 0.5, **how) == 0


def test_a_signaling_nan():
    with pytest.raises(
        OptionError, match=r"threshold=Decimal\('sNaN'\) is not allowed; use a number"
    ):
        objects(["a"]).simjoin.count_set_pairs("sets", Decimal("sNaN"))


def test_lists_of_views_of_texts():
    lists = pa.array([["a"], None, ["a"], ["b", None]], pa.list_(pa.string_view()))
    frame = pd.DataFrame({"sets": pd.Series(pd.arrays.ArrowExtensionArray(lists[:3]))})
    assert frame.simjoin.set_neighbor_counts("sets", 1).tolist() == [1, 0, 1]
    frame = pd.DataFrame({"sets": pd.Series(pd.arrays.ArrowExtensionArray(lists))})
    with pytest.raises(
        TokenError, match=r"row 3 \(label 3\) holds a list with a missing token"
    ):
        frame.simjoin.set_self_join("sets", 1)


def test_decimals_of_very_many_digits():
    """Written out, they would take a gigabyte."""
    frame = objects([1, 2], [2, 3], [4])
    tiny, huge = Decimal("1E-999999999"), Decimal("1E+999999999")
    assert frame.simjoin.count_set_pairs("sets", tiny) == 1
    assert frame.simjoin.count_set_pairs("sets", tiny, comparison="=") == 0
    assert frame.simjoin.count_set_pairs("sets", huge, similarity="overlap") == 0
    for refused in (
        huge,
        *map(Decimal, ("-1E+999999999", "-1E-999999999", "0E-999999999")),
    ):
        with pytest.raises(
            OptionError,
            match="is not allowed with similarity='jaccard'; use a number above 0",
        ):
            frame.simjoin.count_set_pairs("sets", refused)


@pytest.mark.parametrize("at_once", [1, 4, 6, 7])
def test_grams_are_written_some_at_a_time(at_once, monkeypatch):
    """However many at once, they are the same."""
    monkeypatch.setattr("dask_simjoin.sets.tokens.BATCH", at_once)
    found = QGrams(2).split(
        pa.array(["a\u00e9\U0001f642b", "", "b"], pa.large_string())
    )
    grams = ["#a", "a\u00e9", "\u00e9\U0001f642", "\U0001f642b", "b$", "#b", "b$"]
    assert [found.tokens[code].as_py() for code in found.codes] == grams
