"""What verbs of sets refuse: each message names the value, what is allowed, and the
remedy.
"""

import re
from decimal import Decimal
from fractions import Fraction

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dask_simjoin.errors import (
    BudgetError,
    ColumnError,
    DuplicateIdError,
    OptionError,
    OptionTypeError,
    TokenError,
    UnsupportedFrameError,
)
from dask_simjoin.sets import plan
from dask_simjoin.sets.methods import METHODS
from tests.support.frames import computed

FRAME = pd.DataFrame(
    {"tags": [["a"], ["a", "b"]], "text": ["a", "a b"], "n": [1, 2], "twice": [7, 7]}
)
VERBS = (
    "set_self_join",
    "set_neighbor_counts",
    "count_set_pairs",
    "set_plan",
)


@pytest.fixture(params=["pandas", "dask"])
def frame(request):
    """A plain frame, and a lazy one: what options alone tell is refused at the call."""
    with dask.config.set({"dataframe.convert-string": False}):
        return (
            FRAME if request.param == "pandas" else dd.from_pandas(FRAME, npartitions=1)
        )


NO_NUMBER = r"is not a number; use a number above 0 and up to 1, such as 0\.8 or Fraction\(1, 3\)"
BEYOND = r"is not allowed.*use a number above 0 and up to 1, such as 0\.8 or Fraction\(1, 3\)"

CASES = {
    "threshold is text": (
        {"threshold": "0.8"},
        OptionTypeError,
        f"threshold='0.8' {NO_NUMBER}",
    ),
    "threshold is a truth value": (
        {"threshold": True},
        OptionTypeError,
        f"threshold=True {NO_NUMBER}",
    ),
    "threshold is complex": (
        {"threshold": 1j},
        OptionTypeError,
        f"threshold=1j {NO_NUMBER}",
    ),
    "threshold is 0": ({"threshold": 0}, OptionError, f"threshold=0 {BEYOND}"),
    "threshold is negative": (
        {"threshold": -0.5},
        OptionError,
        f"threshold=-0.5 {BEYOND}",
    ),
    "threshold is beyond 1": (
        {"threshold": 1.5},
        OptionError,
        f"threshold=1.5 {BEYOND}",
    ),
    "threshold is a percent": (
        {"threshold": 80},
        OptionError,
        r"threshold=80 .*\(divide percents by 100\)",
    ),
    "threshold is NaN": (
        {"threshold": float("nan")},
        OptionError,
        f"threshold=nan {BEYOND}",
    ),
    "threshold is infinite": (
        {"threshold": np.inf},
        OptionError,
        f"threshold=inf {BEYOND}",
    ),
    "overlap is no whole number": (
        {"threshold": 0.8, "similarity": "overlap"},
        OptionError,
        r"threshold=0.8 is not allowed with similarity='overlap'; use a whole number of tokens above 0",
    ),
    "similarity is unknown": (
        {"similarity": "jacard"},
        OptionError,
        r"similarity='jacard' is not allowed; use one of 'jaccard', .* \(did you mean 'jaccard'\?\)",
    ),
    "comparison is unknown": (
        {"comparison": "<="},
        OptionError,
        r"comparison='<=' is not allowed; use one of '>=',",
    ),
    "method is unknown": (
        {"method": "tiles"},
        OptionError,
        r"method='tiles' is not allowed; use one of 'auto', ",
    ),
    "method is a class": (
        {"method": type(METHODS["ppjoin"])},
        OptionTypeError,
        r"method=PPJoin is a class; use method=PPJoin\(\)",
    ),
    "a flag is no truth value": (
        {"allow_missing": "yes"},
        OptionTypeError,
        "allow_missing='yes' is not allowed; use True or False",
    ),
    "empty sets have no overlap": (
        {"allow_empty": True, "similarity": "overlap", "threshold": 1},
        OptionError,
        "allow_empty=True is not allowed with similarity='overlap'.*Leave out "
        "allow_empty=",
    ),
    "a column is missing": (
        {"on": "tag"},
        ColumnError,
        r"on= names 'tag', which is not a column \(did you mean 'tags'\?\); the columns are 'tags', 'text'",
    ),
    "two columns": (
        {"on": ["tags", "text"]},
        ColumnError,
        r"names 2 columns, but sets .* Use on='text', or another single column\. To .* "
        r"df\['both'\] = df\['tags'\] \+ ' ' \+ df\['text'\], then on='both'\.$",
    ),
    "no column": (
        {"on": None},
        ColumnError,
        "on=None names no columns; name the one that holds sets",
    ),
    "a column of numbers": (
        {"on": "n"},
        ColumnError,
        r"on='n' is of dtype int64, which holds no sets. Use a column of lists of strings or of integers",
    ),
    "blocksize is none": (
        {"blocksize": "big"},
        OptionError,
        "blocksize='big' is not allowed; use a number of bytes",
    ),
    "an option of another verb": (
        {"eps": 1.0},
        OptionTypeError,
        r"has no option 'eps' \(did you mean 'threshold'\?\); its options are on, threshold",
    ),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("case", CASES)
def test_options(frame, verb, case):
    given, error, says = CASES[case]
    with pytest.raises(error, match=says):
        getattr(frame.simjoin, verb)(**{"on": "tags", "threshold": 0.5} | given)


def test_texts_need_a_tokenizer_and_lists_take_none():
    text = pd.DataFrame({"t": pd.Series(["a b"], dtype="string")})
    with pytest.raises(
        ColumnError,
        match=r"on='t' is .* holds texts; say with tokenizer= how .* tokens: 'whi",
    ):
        text.simjoin.set_self_join("t", 0.5)
    lists = pd.DataFrame(
        {"t": pd.array([["a"]], dtype=pd.ArrowDtype(pa.list_(pa.string())))}
    )
    with pytest.raises(
        ColumnError, match="which holds lists of tokens already; leave out tokenizer="
    ):
        lists.simjoin.set_self_join("t", 0.5, tokenizer="words")
    with pytest.raises(
        TokenError,
        match=r"row 0 \(label 0\) holds a str, which is not a list.*\(use tokenizer= for texts",
    ):
        FRAME.astype({"text": object}).simjoin.set_self_join("text", 0.5)
    with pytest.raises(
        TokenError,
        match=r"row 0 .* holds a list, which is not text; leave out tokenizer= for lists",
    ):
        FRAME.simjoin.set_self_join("tags", 0.5, tokenizer="words")


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        (
            [["a"], 5],
            TokenError,
            r"row 1 \(label 1\) holds an int, which is not a list, tuple, set or array",
        ),
        (
            [["a"], [1]],
            TokenError,
            "A row of the column has the token 'a' among others. Tokens must be all "
            "strings",
        ),
        ([[1.5]], TokenError, "A row of the column has the token 1.5 among others"),
        ([[True]], TokenError, "has the token True among others"),
        ([[None, "a"]], TokenError, "has the token None among others"),
        ([["a", None], ["b"]], TokenError, "has the token None among others"),
        (
            [[2**63]],
            TokenError,
            "The token 9223372036854775808 does not fit in a signed 64-bit integer; "
            "convert tokens",
        ),
        (
            [np.array([2**63], np.uint64)],
            TokenError,
            "does not fit in a signed 64-bit integer",
        ),
        ([np.zeros((2, 2), int)], TokenError, "holds a ndarray, which is not a list"),
        ([["a"], {"a": 1}], TokenError, "holds a dict, which is not a list"),
    ],
    ids=repr,
)
def test_rows_that_hold_no_sets(values, error, says):
    frame = pd.DataFrame({"sets": pd.Series(values, dtype=object)})
    with pytest.raises(error, match=says):
        frame.simjoin.set_self_join("sets", 0.5)
    with pytest.raises(error, match=says):
        frame.simjoin.set_plan("sets", 0.5)


@pytest.mark.parametrize(
    ("values", "kind", "says"),
    [
        (
            [["a", None]],
            pa.list_(pa.string()),
            r"row 0 \(label 0\) holds a list with a missing token",
        ),
        (
            [None, [], ["a"], ["b", None]],
            pa.list_(pa.string()),
            r"row 3 \(label 3\) holds a list with a missing token",
        ),
        ([[2**63]], pa.list_(pa.uint64()), "does not fit in a signed 64-bit integer"),
    ],
)
def test_arrow_lists_that_hold_no_sets(values, kind, says):
    frame = pd.DataFrame({"sets": pd.array(values, dtype=pd.ArrowDtype(kind))})
    with pytest.raises(TokenError, match=says):
        frame.simjoin.set_self_join("sets", 0.5)


def test_arrow_lists_of_other_numbers():
    frame = pd.DataFrame(
        {"sets": pd.array([[0.5]], dtype=pd.ArrowDtype(pa.list_(pa.float64())))}
    )
    with pytest.raises(
        ColumnError, match=r"of dtype list<.*double>.*, which holds no sets"
    ):
        frame.simjoin.set_self_join("sets", 0.5)


def test_two_tables(frame):
    with pytest.raises(
        UnsupportedFrameError,
        match=r"other='tags' is not a data frame.*Use set_join\(other, on",
    ):
        frame.simjoin.set_join("tags", 0.5)
    with pytest.raises(
        OptionTypeError,
        match=r"threshold= is missing: use set_join\(other, on, threshold",
    ):
        frame.simjoin.set_join(FRAME, "tags")
    with pytest.raises(
        OptionError,
        match=r"on= is missing; name the columns of both tables, or use on=",
    ):
        frame.simjoin.set_join(FRAME, threshold=0.5)
    with pytest.raises(
        OptionError, match=r"right_on= is missing; name the columns of both tables"
    ):
        frame.simjoin.set_join(FRAME, threshold=0.5, left_on="tags")
    with pytest.raises(OptionError, match=r"use either on=, or left_on= and right_on="):
        frame.simjoin.set_join(FRAME, "tags", 0.5, left_on="tags")
    with pytest.raises(OptionError, match=r"how='cross' is not allowed; use one of"):
        frame.simjoin.set_join(FRAME, "tags", 0.5, how="cross")
    with pytest.raises(
        ColumnError,
        match=r"^In the right table, on= names 'tags', which is not a column",
    ):
        frame.simjoin.set_join(FRAME[["n"]], "tags", 0.5)
    with pytest.raises(OptionError, match=r"keep=.* and suffixes="):
        frame.simjoin.set_join(FRAME, "tags", 0.5, keep="n", suffixes=("", ""))
    numbers = pd.DataFrame({"tags": [[1]]})
    with pytest.raises(
        TokenError,
        match="Some tokens are strings and others are integers, which are never equal",
    ):
        dask.compute(frame.simjoin.set_join(numbers, "tags", 0.5))


def test_ids():
    with pytest.raises(
        DuplicateIdError, match="The ids in column 'twice' are not unique: 7 repeats"
    ):
        FRAME.simjoin.set_self_join("tags", 0.5, id="twice")
    with pytest.raises(ColumnError, match="id='nobody' is not a column"):
        FRAME.simjoin.set_self_join("tags", 0.5, id="nobody")


@pytest.mark.parametrize(
    "threshold",
    [
        0.8,
        np.float32(0.8),
        np.float64(0.8),
        Fraction(4, 5),
        Decimal("0.8"),
        Decimal("0.80"),
    ],
    ids=repr,
)
def test_thresholds_are_the_fractions_that_their_text_is(threshold):
    """Of five tokens four are common: just enough at 0.8, and next to it on either side
    they are not.
    """
    frame = pd.DataFrame({"sets": [[1, 2, 3, 4], [1, 2, 3, 4, 5]]})
    assert frame.simjoin.count_set_pairs("sets", threshold) == 1
    assert frame.simjoin.count_set_pairs("sets", threshold, comparison="=") == 1
    assert frame.simjoin.count_set_pairs("sets", threshold, comparison=">") == 0


@pytest.mark.parametrize(
    "threshold", [1, 1.0, np.int8(1), Fraction(1), Decimal(1)], ids=repr
)
def test_a_threshold_of_one(threshold):
    assert FRAME.simjoin.count_set_pairs("tags", threshold) == 0
    assert FRAME.simjoin.count_set_pairs("tags", threshold, similarity="overlap") == 1


def test_a_third_is_a_third():
    frame = pd.DataFrame({"sets": [[1, 2], [2, 3]]})
    assert frame.simjoin.count_set_pairs("sets", Fraction(1, 3)) == 1
    # 0.3333333333333333, which is less
    assert frame.simjoin.count_set_pairs("sets", 1 / 3) == 1
    assert frame.simjoin.count_set_pairs("sets", Fraction(1, 3), comparison="=") == 1
    assert frame.simjoin.count_set_pairs("sets", 1 / 3, comparison="=") == 0
    assert frame.simjoin.count_set_pairs("sets", 0.33333333333333337) == 0


@pytest.mark.parametrize(
    "verb", ["set_self_join", "set_near_duplicated", "set_neighbor_counts"]
)
def test_blocks_so_small_that_their_pairs_are_not_listed(verb, monkeypatch):
    """They are counted: to list them took minutes, and gigabytes."""
    monkeypatch.setattr(plan, "compared_blocks", None)
    rows = pd.DataFrame({"text": [f"a{k % 7} b{k % 11} c{k % 13}" for k in range(60)]})
    ddf = dd.from_pandas(rows, npartitions=2)
    with pytest.raises(
        BudgetError, match=r"blocksize='1 B' makes [\d,]+ chunks .* at least blocksize="
    ):
        getattr(ddf.simjoin, verb)(
            "text", 0.5, tokenizer="whitespace", blocksize=1
        ).compute()


@pytest.mark.parametrize("kind", ["str", object])
@pytest.mark.parametrize("how", [{}, {"tokenizer": "words"}])
@pytest.mark.parametrize("texts_first", [False, True])
@pytest.mark.parametrize("lazy", [False, True])
def test_lists_in_one_table_and_texts_in_the_other(kind, how, texts_first, lazy):
    lists = pd.DataFrame({"tags": [["a", "b"], ["c"]]})
    texts = pd.DataFrame({"tags": pd.Series(["d", "a b"], dtype=kind)})

    def join(texts, how):
        tables = [texts, lists] if texts_first else [lists, texts]
        with dask.config.set({"dataframe.convert-string": False}):
            if lazy:
                tables = [dd.from_pandas(table, npartitions=1) for table in tables]
            found = tables[0].simjoin.set_join(tables[1], "tags", 0.5, **how)
            return computed(found)

    with pytest.raises((ColumnError, TokenError), match="split the texts first") as e:
        join(texts, how)
    known = {"df": texts}
    exec(re.search(r"such as (df.*?), and leave out", str(e.value))[1], known)
    found = join(known["df"], {})
    assert found.to_numpy().tolist() == [[1, 0] if texts_first else [0, 1]]


def test_one_table_of_texts_needs_no_other_advice():
    with pytest.raises(TokenError) as e:
        FRAME.astype({"text": object}).simjoin.set_self_join("text", 0.5)
    assert "split the texts" not in str(e.value)
