"""Run the code that messages recommend."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa

import dask_simjoin

LIBRARIES = {
    "pd": pd,
    "pa": pa,
    "np": np,
    "numpy": np,
    "dask_simjoin": dask_simjoin,
}

STATEMENT = re.compile(
    r"((?:df|frame|other)(?:\[[^=]*\])? \*?= .*?)(?:\. (?=[A-Z])|\.$|, (?:then|with) )"
)
"""Matches an assignment in a message, up to the end of the clause."""

VALUE = r"(\[[^\]]*\]|'[^']*'|[\w.]*\w)"


def repaired(text, df, **names):
    """Run the first assignment in a message; return the table that it changes.

    `df`: the table of the call. `names`: other tables.
    """
    found = STATEMENT.search(text)
    assert found, text
    tables = {**dict.fromkeys(("df", "frame"), df.copy()), **names}
    exec(found[1], dict(LIBRARIES), tables)
    return tables[re.match(r"\w+", found[1])[0]]


def recommended(text, *names):
    """Return the values of options after the first "use", "such as" or "then"."""
    advice = re.split(r"\b(?:[Uu]se|such as|then) ", text, maxsplit=1)[-1]
    found = {name: re.search(rf"(?<![\w.]){name}={VALUE}", advice) for name in names}
    assert all(found.values()), text
    return {name: eval(match[1]) for name, match in found.items()}


def meant(text):
    """Return the value after "did you mean"."""
    return eval(re.search(r"\(did you mean (.*?)\?\)", text)[1])


def rows_of_one_length(text, df):
    """Run the code that keeps the rows with lists of the most frequent length."""
    if "only the lists of length" in text:
        return repaired(text, df)
    one, other = re.search(r": (n = .*?)\. Then (df = .*)\.$", text).groups()
    names = {"df": df}
    exec(f"{one}\n{other}", names)
    return names["df"]
