"""Texts split into tokens and q-grams, as Python splits them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.sets import Custom, Delimiter, QGrams, Whitespace, Words
from dask_simjoin.sets.columns import occurrences
from tests.sets.test_tokens import rows, words

TEXT = st.text(st.sampled_from("aab ,\t\n#$_-é̂ß漢🙂\x00\u06619"), max_size=12)


ODD = ["", " ", "a", "ab", "a b", "\x00", "a\x00", "é", "🙂🙂", "#", "$$", "a,,b", ",", "a\u00a0b", "ﬀ"]


def grams(q, padding):
    def split(text):
        if padding and text:
            text = "#" * (q - 1) + text + "$" * (q - 1)
        return [text[k : k + q] for k in range(len(text) - q + 1)] if text else []

    return split


CASES = {
    "whitespace": (Whitespace(), str.split),
    "words": (Words(), words),
    "comma": (Delimiter(","), lambda text: [part for part in text.split(",") if part]),
    "two": (Delimiter("a "), lambda text: [part for part in text.split("a ") if part]),
    "custom": (Custom(list), list),
    **{f"{q}{p}": (QGrams(q, padding=p), grams(q, p)) for q in (1, 2, 3, 7) for p in (True, False)},
}


@pytest.mark.parametrize("name", CASES)
@given(texts=st.lists(TEXT, max_size=6))
def test_tokens_are_those_that_python_finds(name, texts):
    tokenizer, expected = CASES[name]
    found = rows(tokenizer.split(pa.array(texts, pa.large_string())))
    assert found == [expected(text) for text in texts]


def test_any_character_between_two_letters():
    """White space is Python's, and so are letters and digits of ASCII."""
    every = [chr(c) for c in range(0x3100)]
    for form in ("a{}b", "a {}"):
        texts = [form.format(one) for one in every]
        assert rows(Whitespace().split(pa.array(texts, pa.large_string()))) == [t.split() for t in texts]
        plain = [text for text in texts if text.isascii()]
        assert rows(Words().split(pa.array(plain, pa.large_string()))) == [words(t) for t in plain]


def test_what_lies_behind_the_last_text_does_not_matter():
    for behind in (b"", b"\xff\xff", b"b ", b" b", b"\x00\x00"):
        offsets = pa.py_buffer(np.array([0, 5, 8], dtype=np.int64).tobytes())
        texts = pa.Array.from_buffers(
            pa.large_string(), 2, [None, offsets, pa.py_buffer(b"ab c   \n" + behind)]
        )
        assert rows(Whitespace().split(texts)) == [["ab", "c"], []]


@pytest.mark.parametrize("name", CASES)
def test_odd_texts(name):
    tokenizer, expected = CASES[name]
    assert rows(tokenizer.split(pa.array(ODD, pa.large_string()))) == [expected(text) for text in ODD]
    assert rows(tokenizer.split(pa.array([], pa.large_string()))) == []


def test_many_letters_and_long_grams():
    """Numbers of grams are numbered anew before they leave 64 bits."""
    letters = [chr(c) for c in range(0x4E00, 0x4E00 + 3000)]
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(letters, 40)) for _ in range(50)] + ["".join(letters)]
    for q in (5, 9, 32):
        found = rows(QGrams(q, padding=False).split(pa.array(texts, pa.large_string())))
        assert found == [grams(q, False)(text) for text in texts]


def test_lower_case():
    texts = pa.array(["Ab C", "ÀÉ"], pa.large_string())
    assert rows(Words(lower=True).split(texts)) == [["ab", "c"], ["àé"]]
    assert rows(QGrams(2, padding=False, lower=True).split(texts)) == [["ab", "b ", " c"], ["àé"]]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["a b", None, "", "b"], dtype="str"),
        pd.Series(["a b", None, "", "b"], dtype="string[pyarrow]"),
        pd.Series(["a b", None, "", "b"], dtype="string[python]"),
        pd.Series(["a b", np.nan, "", "b"], dtype=object),
        pd.Series(["a b", pd.NA, "", "b"], dtype=object),
        pd.Series(["a b", None, "", "b"], dtype="category"),
        pd.Series(["a b", None, "", "b"], dtype=pd.ArrowDtype(pa.string())),
        pd.Series(["x", "a b", None, "", "b"], dtype="str").iloc[1:],
    ],
    ids=lambda column: str(column.dtype),
)
def test_texts_of_every_dtype(column):
    present, found = occurrences(column, Whitespace())
    assert present.tolist() == [True, False, True, True]
    assert rows(found) == [["a", "b"], [], ["b"]]
