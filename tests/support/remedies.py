"""Run the code that messages recommend."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa

import dask_simjoin

STATEMENT = re.compile(
    r"((?:df|frame|other)(?:\[[^=]*\])? = .*?)(?:\. (?=[A-Z])|\.$|, (?:then|with) )"
)


def repaired(text, df, **names):
    """Run the first assignment in a message; return the tables by their names.

    `df`: the table of the call, which the assignment may change.
    """
    found = STATEMENT.search(text)
    assert found, text
    libraries = {
        "pd": pd,
        "pa": pa,
        "np": np,
        "numpy": np,
        "dask_simjoin": dask_simjoin,
    }
    tables = {"df": df, "frame": df, **names}
    exec(found[1], libraries, tables)
    return tables
