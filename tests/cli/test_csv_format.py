"""Separators and endings of CSV files."""

import pandas as pd
import pytest

from tests.cli.csv_cases import GOOD, NEAR, write
from tests.cli.test_commands import run

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(("given", "used"), [(";", ";"), ("\\t", "\t"), ("|", "|")])
def test_separators(given, used):
    write("a.csv", "id;x\n1;0,5\n2;0\n3;9\n".replace(";", used).replace(",", "."))
    words = "count-pairs", "a.csv", *NEAR
    assert run(*words, "--separator", given).stdout == "1\n"
    said = run(*words, code=2).stderr
    assert f"looks like '{given}': add --separator '{given}'." in said
    for wrong in ("", "ab", '"', "é"):
        assert "is not a separator" in run(*words, "--separator", wrong, code=2).stderr


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
