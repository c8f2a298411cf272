"""Types of CSV columns."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dask_simjoin.cli.csv_types import FLOAT, INT, TEXT, UINT, as_integers
from tests.cli.test_commands import run
from tests.support.csv_tables import NEAR, SYNC, read, write

pytestmark = pytest.mark.usefixtures("folder")


def test_numbers_in_unusual_form_are_read():
    cells = ["+1", " 2 ", "3.", ".5", "1e3", "-0", "1E+2", "inf", "NA", "", "7"]
    wanted = [1, 2, 3, 0.5, 1000, 0, 100, np.inf, np.nan, np.nan, 7]
    write("a.csv", "x,t\n" + "\n".join(f"{cell},a" for cell in cells))
    for types in ({}, {"x": FLOAT}):
        assert read("a.csv", types=types)["x"].tolist() == pytest.approx(
            wanted, nan_ok=True
        )


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2"], INT),
        ([str(2**60 + 1), "2"], INT),
        ([str(2**64 - 1), "2"], UINT),
        (["1", ""], FLOAT),
        (["1", "NA"], FLOAT),
        (["1", "2.5"], FLOAT),
        (["", "NA"], FLOAT),
        ([str(2**60 + 1), ""], "string"),
        ([str(2**64), "1"], "string"),
        (["True", "false"], "bool"),
        (["True", ""], "string"),
        (["0x10", "1"], "string"),
        (["2020-01-01", "2020-01-02"], "string"),
    ],
)
def test_types_are_inferred_as_pandas_infers_them(cells, kind):
    write("a.csv", "v,t\n" + "".join(f"{cell},a\n" for cell in cells))
    used = {"inferred": frozenset("v"), "numbers": frozenset()}
    assert read("a.csv", **used)["v"].dtype == kind


def test_groups_get_wider_types_below_the_first_rows():
    """Values of --by that are not numbers there are not bad."""
    rows = [f"{n},{n % 7}" for n in range(5_500)]
    write("a.csv", "\n".join(["x,k", *rows, "5500,seven", "5500.5,seven"]))
    words = "count-pairs", "a.csv", "--eps", "0.5", "--on", "x", "--by", "k"
    ran = run(*words, *SYNC[:2])
    assert ran.stdout == "1\n" and "'seven' below its first rows" in ran.stderr
    assert "Column 'x' has '5500.5' below its first rows" in ran.stderr


def test_ids_of_several_files_have_one_type():
    write("a.csv", "id,x\n1,0\n")
    write("b.csv", "id,x\n02,0\n")
    run("self-join", "a.csv", "b.csv", *NEAR, "--id", "id", "-o", "o.parquet")
    assert pd.read_parquet("o.parquet").to_numpy().tolist() == [["1", "02"]]
    assert TEXT == "str"


def test_large_unsigned_ids():
    numbers = as_integers(pa.array(["0", str(2**64 - 1)]), UINT)
    assert numbers.to_pylist() == [0, 2**64 - 1]
