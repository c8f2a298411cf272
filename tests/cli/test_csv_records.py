"""Separators, quotes and encodings of CSV files; blocks end between two rows."""

import csv
import io

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cli import csv_records
from dask_simjoin.cli.csv_records import quote_toggles
from tests.cli.test_commands import run
from tests.support.csv_tables import GOOD, NEAR, read, write
from tests.support.profiles import in_turns

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_blocks_end_between_rows(ends, monkeypatch):
    """Not at line ends in quoted cells, and whatever quotes are in other cells."""
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", 25)
    monkeypatch.setattr(csv_records, "READ_BYTES", 7)
    cells = ["a\nb", 'q"q', "c,d", "", "e", '"', "\n", "x\r\ny", "é"]
    rows = [[n, n / 4, cells[n % 9], cells[n // 9 % 9]] for n in range(90)]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=ends).writerows([["id", "x", "t", "u"], *rows])
    plain = f'90,1,5" pipe,"a{ends}b"{ends}91,2,7" pipe and 8" pipe,z{ends}'
    write("a.csv", text.getvalue() + plain)
    found = read("a.csv", inferred=frozenset("x"), ids=frozenset(["id"]))
    assert found["id"].tolist() == list(range(92))
    assert found["t"].tolist()[90:] == ['5" pipe', '7" pipe and 8" pipe']
    assert found["u"].fillna("").tolist()[:90] == [row[3] for row in rows]


def test_quotes_that_are_never_closed_are_refused():
    write("a.csv", 'id,x,t\n1,0,a\n2,1,"b\n3,2,c\n')
    said = run("count-pairs", "a.csv", *NEAR, code=3).stderr
    assert 'a.csv, line 3: a quote (") begins a cell and is never closed.' in said


@in_turns(1, encoding=["latin-1", "cp1252", "utf-16", "utf-8-sig"], size=[40, 10**6])
def test_encodings(encoding, size, monkeypatch):
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", size)
    text = "größe,x\n" + "".join(f"café {n},{n}\n" for n in range(30))
    with open("a.csv", "wb") as file:
        file.write(text.encode(encoding))
    words = "self-join", "a.csv", *NEAR, "--keep", "größe", "-o", "o.csv"
    run(*words, "--encoding", encoding)
    assert pd.read_csv("o.csv")["größe_left"].tolist()[3] == "café 3"
    if encoding == "utf-8-sig":
        return
    said = run(*words, "--overwrite", code=3).stderr
    assert "a.csv, line 1: byte 0x" in said and "Name the encoding of the file" in said
    assert f"--encoding {encoding.replace('cp1252', 'latin-1')}" in said
    assert "--encoding" in run(*words, "--encoding", "klingon", code=2).stderr


@pytest.mark.parametrize(("given", "used"), [(";", ";"), ("\\t", "\t"), ("|", "|")])
def test_separators(given, used):
    write("a.csv", "id;x\n1;0,5\n2;0\n3;9\n".replace(";", used).replace(",", "."))
    words = "count-pairs", "a.csv", *NEAR
    assert run(*words, "--separator", given).stdout == "1\n"
    said = run(*words, code=2).stderr
    assert f"looks like '{given}': add --separator '{given}'." in said
    for wrong in ("", "ab", '"', "é"):
        assert "is not a separator" in run(*words, "--separator", wrong, code=2).stderr


def test_messages_name_the_option_for_decimal_commas():
    words = "count-pairs", "a.csv", *NEAR, "--separator", ";"
    advice = "'0,5'{} (for decimal commas add --decimal ',')."
    for others, code in (("1,5", 2), ("0", 3)):
        write("a.csv", f"id;x\n1;0,5\n2;{others}\n")
        reason = ", which is not a number" if code == 3 else ""
        assert advice.format(reason) in run(*words, code=code).stderr
    assert run(*words, "--decimal", ",").stdout == "1\n"
    assert run(*words, "--decimal", ";", code=2).stderr


def test_names_end_in_any_case():
    write("POINTS.CSV", GOOD)
    for name in ("pairs.CSV", "Pairs.Parquet", "pairs.TSV"):
        run("self-join", "POINTS.CSV", *NEAR, "-o", name)
    assert len(pd.read_csv("pairs.CSV")) == len(pd.read_parquet("Pairs.Parquet")) == 19
    assert len(pd.read_csv("pairs.TSV", sep="\t")) == 19


@pytest.mark.parametrize("name", ["pairs.dat", "pairs.parquet.gzip", "o.CSV.GZ"])
def test_unknown_endings_are_refused(name, folder):
    write("a.csv", GOOD)
    said = run("self-join", "a.csv", *NEAR, "-o", name, code=2).stderr
    assert "is not supported. End the name in .parquet or .csv" in said
    assert [path.name for path in folder.iterdir()] == ["a.csv"]


def test_literal_quotes_do_not_begin_cells():
    codes = np.frombuffer(b'5" x,"a""b",c"\n', np.uint8)
    assert quote_toggles(codes, False, ",").tolist() == [5, 10]
