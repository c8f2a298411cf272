"""Types of CSV columns."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dask_simjoin.cli.csv_types import (
    FLOAT,
    INT,
    TEXT,
    TIME,
    UINT,
    ZONED,
    CsvColumns,
    Inferred,
    as_integers,
    as_numbers,
    common_type,
    inferred_type,
    which_fit,
)
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


TIMES = {
    TIME: [
        "2024-01-31",
        "2024-01-31 10:00",
        "2024-01-31T10:00:59",
        " 2024-02-29 10:00:00.123456 ",
    ],
    ZONED: [
        "2024-01-31T10:00Z",
        "2024-01-31 10:00:00+01:00",
        "2024-01-31T10:00:00.5 -0330",
        "2024-01-31 10:00+05",
    ],
}
NO_TIMES = [
    "2024-02-30",
    "31.01.2024",
    "2024",
    "20240131",
    "2024-01-31 25:00",
    "x",
    "5",
]


@pytest.mark.parametrize("kind", [TIME, ZONED])
def test_times_are_those_of_pandas(kind):
    other = TIMES[ZONED if kind == TIME else TIME]
    cells = pa.chunked_array([[*TIMES[kind], "", "NA", *NO_TIMES, *other]])
    number = len(TIMES[kind])
    fits = which_fit(cells, kind, False, ".")
    assert fits.tolist() == [n < number + 2 for n in range(len(cells))]
    found = as_numbers(cells, kind, ".").to_pandas()
    assert found.dtype == kind and found[number:].isna().all()
    want = [pd.Timestamp(text.strip()) for text in TIMES[kind]]
    assert found[:number].tolist() == want
    used = CsvColumns(times=frozenset({"t"}))
    assert inferred_type(cells[: number + 2], used, "t", ".").kind == kind
    assert inferred_type(cells[number : number + 2], used, "t", ".").kind == FLOAT


def test_columns_of_times_need_times():
    used = CsvColumns(times=frozenset({"t"}))
    for cells, kind in ((["1", "2"], INT), (["31.01.2024"], TEXT)):
        assert inferred_type(pa.chunked_array([cells]), used, "t", ".").kind == kind
        assert inferred_type(pa.chunked_array([cells]), used, "s", ".").kind == kind
    both = pa.chunked_array([[TIMES[TIME][0], TIMES[ZONED][0]]])
    assert inferred_type(both, used, "t", ".").kind == ZONED
    assert common_type([Inferred(TIME, False), Inferred(ZONED, False)]) == ZONED


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("zoned", [False, True])
def test_pairs_near_in_time(zoned):
    """The same pairs as from Parquet; bad and missing times are listed."""
    times = pd.Timestamp("2024-05-01 10:00") + pd.to_timedelta([0, 5, 90, 4, 7], "min")
    table = pd.DataFrame({"id": range(5), "x": 0.0, "t": times})
    if zoned:
        table["t"] = table["t"].dt.tz_localize("Asia/Tokyo")
    table.to_parquet("t.parquet")
    cells = table.assign(t=table["t"].astype(str))
    cells.loc[1, "t"] = cells.loc[1, "t"].replace(" ", "T")
    cells.to_csv("t.csv", index=False)
    near = "--eps", "1", "--on", "x", "--id", "id", "--within", "t=5 min", *SYNC, "-q"
    for kind in ("csv", "parquet"):
        run("self-join", f"t.{kind}", *near, "-o", f"{kind}.csv")
    want = {(0, 1), (0, 3), (1, 3), (1, 4), (3, 4)}
    for kind in ("csv", "parquet"):
        rows = pd.read_csv(f"{kind}.csv").itertuples(index=False, name=None)
        assert set(rows) == want
    cells.loc[[3, 4], "t"] = ["2024-02-30 10:00", None]
    cells.to_csv("t.csv", index=False)
    said = run("self-join", "t.csv", *near, "-o", "o.csv", code=3).stderr
    assert "t.csv, line 5: column 't' has '2024-02-30 10:00', which is not a" in said
    bad = "--bad-rows", "bad.csv", "--dropna"
    run("self-join", "t.csv", *near, *bad, "-o", "o.csv")
    assert pd.read_csv("bad.csv")["line"].tolist() == [5, 6]
    assert pd.read_csv("o.csv").to_numpy().tolist() == [[0, 1]]


@pytest.mark.usefixtures("folder")
def test_times_of_two_tables_with_other_names():
    write("a.csv", "id,x,seen\n1,0,2024-01-31\n2,0,2024-02-01\n")
    write("b.csv", "id,x,when\n3,0,2024-01-31 01:00\n4,0,2024-01-30 22:00\n")
    words = "join", "a.csv", "--other", "b.csv", "--eps", "1", "--on", "x"
    run(*words, "--id", "id", "--within", "seen=when=0 h..2 h", "-q", "-o", "o.csv")
    assert pd.read_csv("o.csv").to_numpy().tolist() == [[1, 3]]
    run(
        "counts",
        "a.csv",
        *words[4:6],
        "--id",
        "id",
        "--within",
        "seen=1 D",
        "-o",
        "c.csv",
    )
    assert pd.read_csv("c.csv")["neighbors"].tolist() == [1, 1]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("zone", ["", " 00:00Z"])
@pytest.mark.parametrize("cells", [[], ["", "NA"]])
def test_tables_without_times(zone, cells):
    """An empty night, or one without any time, has no pairs."""
    write("t.csv", f"id,x,t\n1,0,2024-01-31{zone}\n2,0,2024-02-01{zone}\n")
    write(
        "none.csv", "\n".join(["id,x,t", *(f"{n},0,{c}" for n, c in enumerate(cells))])
    )
    near = "--eps", "1", "--on", "x", "--within", "t=1 D", "--dropna", "-q", *SYNC
    assert run("count-pairs", "none.csv", *near).stdout == "0\n"
    for files in (("none.csv", "t.csv"), ("t.csv", "none.csv")):
        assert run("count-pairs", *files, *near).stdout == "1\n"
        words = "join", files[0], "--other", files[1], *near
        run(*words, "--id", "id", "--how", "outer", "-o", "o.csv", "--overwrite")
        found = pd.read_csv("o.csv")
        assert len(found) == 2 + len(cells) and found.isna().any(axis=1).all()
    assert run("count-pairs", "none.csv", *near[:4], "--within", "t=1", *near[6:])
