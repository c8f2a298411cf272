"""Tokenizers, compared with what Python says of each text."""

import pickle
import re
import unicodedata

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.tokenize import tokenize
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.errors import OptionError, OptionTypeError, TokenError
from dask_simjoin.sets import Custom, Delimiter, QGrams, Whitespace, Words
from dask_simjoin.sets.columns import occurrences
from dask_simjoin.sets.tokens import SAME_CAPITAL, lowered, tokenizer_of


def rows(found):
    """The tokens of each row, in their order."""
    tokens = [] if found.tokens is None else found.tokens.tolist()
    return [
        [tokens[code] for code in found.codes[start:stop]]
        for start, stop in zip(found.offsets[:-1], found.offsets[1:], strict=True)
    ]


def words(text):
    """Letters, marks and digits that follow each other, by the categories of Unicode."""
    kinds = "".join("x" if unicodedata.category(c)[0] in "LMN" else " " for c in text)
    return [text[match.start() : match.end()] for match in re.finditer("x+", kinds)]


ARROW = [
    pa.array([[1, 2], None, [], [2]], pa.list_(pa.int8())),
    pa.array([[1, 2], None, [], [2]], pa.large_list(pa.uint64())),
    pa.array([["x"], [1, 2], None, [], [2]][1:], pa.list_(pa.int32())),
    pa.chunked_array(
        [
            pa.array([[1, 2], None], pa.list_(pa.int64())),
            pa.array([[], [2]], pa.list_(pa.int64())),
        ]
    ),
    pa.array([[9], [1, 2], None, [], [2]], pa.list_(pa.int32())).slice(1),
]


@pytest.mark.parametrize("values", ARROW, ids=range(len(ARROW)))
def test_lists_of_arrow(values):
    column = pd.Series(pd.arrays.ArrowExtensionArray(values))
    present, found = occurrences(column, None)
    assert present.tolist() == [True, False, True, True]
    assert rows(found) == [[1, 2], [], [2]]


def test_lists_of_arrow_that_hide_what_is_missing():
    """A missing list may have numbers beneath it, which are no tokens of its
    neighbours.
    """
    values = pa.ListArray.from_arrays(
        pa.array([0, 2, 3, 3, 4], pa.int32()),
        pa.array([1, 2, 7, 2]),
        mask=pa.array([False, True, False, False]),
    )
    present, found = occurrences(pd.Series(pd.arrays.ArrowExtensionArray(values)), None)
    assert present.tolist() == [True, False, True, True]
    assert rows(found) == [[1, 2], [], [2]]


@pytest.mark.parametrize("kind", [list, tuple, np.array, np.int8, frozenset, object])
def test_lists_of_python(kind):
    make = {
        np.int8: lambda row: np.array(row, np.int8),
        object: lambda row: np.array(row, object),
    }.get(kind, kind)
    column = pd.Series([None, make([1, 2]), None, make([]), make([2])], dtype=object)
    present, found = occurrences(column, None)
    assert present.tolist() == [False, True, False, True, True]
    assert rows(found) == [[1, 2], [], [2]]


EMPTY = [["a", ""], ["a"], [""], [], ["", ""]]
ARROW_EMPTY = pa.array(EMPTY, pa.list_(pa.string()))


@pytest.mark.parametrize(
    "column",
    [
        *(
            pd.Series([kind(row) for row in EMPTY], dtype=object)
            for kind in (list, tuple, frozenset)
        ),
        pd.Series([np.array(row, dtype=object) for row in EMPTY], dtype=object),
        pd.Series([np.array(row, dtype="U1") for row in EMPTY], dtype=object),
        pd.Series(pd.arrays.ArrowExtensionArray(ARROW_EMPTY)),
    ],
    ids=["list", "tuple", "frozenset", "objects", "fixed", "arrow"],
)
def test_the_empty_string_is_a_token(column):
    check_empty_string(column)


def test_the_empty_string_is_a_token_of_views():
    try:
        views = ARROW_EMPTY.cast(pa.list_(pa.string_view()))
    except pa.ArrowNotImplementedError:
        pytest.skip("this PyArrow does not cast strings to views")
    check_empty_string(pd.Series(pd.arrays.ArrowExtensionArray(views)))


def check_empty_string(column):
    """Check that the empty string is a token of the lists `EMPTY`."""
    _, found = occurrences(column, None)
    assert [set(row) for row in rows(found)] == [set(row) for row in EMPTY]
    frame = pd.DataFrame({"sets": column})
    assert frame.simjoin.set_self_join("sets", 1).to_numpy().tolist() == [[2, 4]]


def test_a_function_may_give_the_empty_string():
    """Tokenizers that leave it out say so; a function decides by itself."""
    texts = pd.DataFrame({"texts": ["a,", "a", ",", ""]})
    counts = texts.simjoin.set_neighbor_counts(
        "texts", 1, tokenizer=lambda text: text.split(",")
    )
    assert counts.tolist() == [0, 0, 1, 1]
    counts = texts.simjoin.set_neighbor_counts("texts", 1, tokenizer=("delimiter", ","))
    assert counts.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "missing", [None, np.nan, pd.NA, pd.NaT, np.datetime64("NaT", "ns")]
)
@pytest.mark.parametrize("kind", [list, tuple, lambda row: np.array(row, dtype=object)])
def test_what_is_missing_in_a_list_is_refused(missing, kind):
    column = pd.Series([kind(["a"]), None, kind(["b", missing])], dtype=object)
    with pytest.raises(
        TokenError,
        match=r"the token .* among others. Tokens must be all strings or all int",
    ):
        occurrences(column, None)


@pytest.mark.parametrize(
    "token", [b"", b"a", 1.0, True, np.True_, ("a",), np.timedelta64(1, "s")]
)
def test_tokens_that_are_neither_strings_nor_integers_are_refused(token):
    with pytest.raises(
        TokenError,
        match=r"the token .* among others. Tokens must be all strings or all int",
    ):
        occurrences(pd.Series([[token], [token]], dtype=object), None)


def test_fixed_size_lists_and_dictionaries():
    fixed = pa.array([[1, 2], None, [2, 1]], pa.list_(pa.int64(), 2))
    present, found = occurrences(pd.Series(pd.arrays.ArrowExtensionArray(fixed)), None)
    assert (present.tolist(), rows(found)) == ([True, False, True], [[1, 2], [2, 1]])
    encoded = pa.ListArray.from_arrays(
        [0, 2, 3], pa.array(["a", "b", "a"]).dictionary_encode()
    )
    _, found = occurrences(pd.Series(pd.arrays.ArrowExtensionArray(encoded)), None)
    assert rows(found) == [["a", "b"], ["a"]]


def test_arrays_of_signed_and_of_unsigned_integers():
    """Put together as they are they would be float64, in which the first two are one."""
    values = [
        np.array([2**53, 2**53 + 1], np.uint64),
        np.array([-1], np.int8),
        np.array([], np.float64),
    ]
    _, found = occurrences(pd.Series(values), None)
    assert rows(found) == [[2**53, 2**53 + 1], [-1], []]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("whitespace", Whitespace()),
        ("words", Words()),
        (("delimiter", ";"), Delimiter(";")),
        (["qgrams", 3], QGrams(3)),
        (("qgrams", np.int64(2)), QGrams(2)),
        (str.split, Custom(str.split)),
        (QGrams(4, padding=False), QGrams(4, padding=False)),
        (None, None),
    ],
)
def test_short_forms(value, expected):
    assert tokenizer_of(value) == expected


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (
            "spaces",
            OptionError,
            r"tokenizer='spaces' is not allowed; use 'whitespace', 'words', \(",
        ),
        ("whitespaces", OptionError, r"did you mean 'whitespace'\?"),
        (
            "qgrams",
            OptionError,
            r"tokenizer='qgrams' needs a value; use \('qgrams', 3\)",
        ),
        ("delimiter", OptionError, r"needs a value; use \('delimiter', ','\)"),
        (
            ("qgrams", 0),
            OptionError,
            r"QGrams\(q=0\) is not allowed; use a whole number from 1 to 32",
        ),
        (("qgrams", 2.0), OptionError, r"QGrams\(q=2.0\) is not allowed"),
        (("qgrams", True), OptionError, r"QGrams\(q=True\) is not allowed"),
        (("qgrams", 33), OptionError, r"QGrams\(q=33\) is not allowed"),
        (
            ("delimiter", ""),
            OptionError,
            r"splits nothing; use a text, such as Delimiter\(','\)",
        ),
        (("delimiter", 1), OptionTypeError, r"Delimiter\(delimiter=1\) is not text"),
        (("grams", 3), OptionError, r"tokenizer=\('grams', 3\) is not allowed"),
        (3, OptionTypeError, r"tokenizer=3 is not allowed"),
        (Whitespace, OptionTypeError, r"tokenizer=Whitespace is a class"),
    ],
)
def test_what_is_no_tokenizer(value, error, says):
    with pytest.raises(error, match=says):
        tokenizer_of(value)
    with pytest.raises(error, match=says):
        pd.DataFrame({"t": ["a"]}).simjoin.set_self_join("t", 0.5, tokenizer=value)


def test_flags_of_tokenizers():
    with pytest.raises(
        OptionTypeError, match=r"QGrams\(padding=1\) is not allowed; use True or False"
    ):
        QGrams(2, padding=1)
    with pytest.raises(OptionTypeError, match=r"Words\(lower='no'\) is not allowed"):
        Words(lower="no")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (
            lambda text: text,
            "must return a list of strings or integers, but for the text 'a b' it "
            "returned 'a b'",
        ),
        (
            lambda text: None,
            "must return a list of strings or integers, but for the text 'a b' it "
            "returned None",
        ),
        (lambda text: [1.5], "returned the token 1.5 among others"),
        (lambda text: ["a", 1], "returned the token 'a' among others"),
        (lambda text: [None], "returned the token None among others"),
        (
            lambda text: [2**63],
            "The token 9223372036854775808 does not fit in a signed 64-bit integer",
        ),
    ],
)
def test_functions_that_give_no_tokens(function, says):
    frame = pd.DataFrame({"t": ["a b", "c"]})
    with pytest.raises(TokenError, match=says):
        frame.simjoin.set_self_join("t", 0.5, tokenizer=function)


def test_tokenizers_travel():
    for tokenizer in (
        Whitespace(),
        Words(lower=True),
        Delimiter(","),
        QGrams(3),
        Custom(str.split),
    ):
        assert pickle.loads(pickle.dumps(tokenizer)) == tokenizer
        assert tokenize(tokenizer) == tokenize(pickle.loads(pickle.dumps(tokenizer)))
    assert tokenize(QGrams(2)) != tokenize(QGrams(3))


TEXT = st.text(st.sampled_from("aab ,\t\n#$_-é̂ß漢🙂\x00\u06619"), max_size=12)


ODD = [
    "",
    " ",
    "a",
    "ab",
    "a b",
    "\x00",
    "a\x00",
    "é",
    "🙂🙂",
    "#",
    "$$",
    "a,,b",
    ",",
    "a\u00a0b",
    "ﬀ",
]


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
    **{
        f"{q}{p}": (QGrams(q, padding=p), grams(q, p))
        for q in (1, 2, 3, 7)
        for p in (True, False)
    },
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
        assert rows(Whitespace().split(pa.array(texts, pa.large_string()))) == [
            t.split() for t in texts
        ]
        plain = [text for text in texts if text.isascii()]
        assert rows(Words().split(pa.array(plain, pa.large_string()))) == [
            words(t) for t in plain
        ]


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
    assert rows(tokenizer.split(pa.array(ODD, pa.large_string()))) == [
        expected(text) for text in ODD
    ]
    assert rows(tokenizer.split(pa.array([], pa.large_string()))) == []


def test_many_letters_and_long_grams():
    """Numbers of grams are numbered anew before they leave 64 bits."""
    letters = [chr(c) for c in range(0x4E00, 0x4E00 + 3000)]
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(letters, 40)) for _ in range(50)] + [
        "".join(letters)
    ]
    for q in (5, 9, 32):
        found = rows(QGrams(q, padding=False).split(pa.array(texts, pa.large_string())))
        assert found == [grams(q, False)(text) for text in texts]


def test_letters_with_the_same_capital_letter_become_one():
    for letter, other in SAME_CAPITAL.items():
        assert letter.upper() == other.upper() and letter.lower() == letter
        found = lowered(pa.array([letter, other, "a"], pa.large_string()))
        assert found.to_pylist() == [other, other, "a"]
    texts = pa.array(
        ["\u03a3\u0391\u03a3", "\u03c3\u03b1\u03c2", "\u00df"], pa.large_string()
    )
    one, other, sharp = rows(Words(lower=True).split(texts))
    assert one == other == ["\u03c3\u03b1\u03c3"] and sharp == ["\u00df"]
    one, other, _ = rows(QGrams(2, lower=True).split(texts))
    assert one == other


def test_lower_case():
    texts = pa.array(["Ab C", "ÀÉ"], pa.large_string())
    assert rows(Words(lower=True).split(texts)) == [["ab", "c"], ["àé"]]
    assert rows(QGrams(2, padding=False, lower=True).split(texts)) == [
        ["ab", "b ", " c"],
        ["àé"],
    ]


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
