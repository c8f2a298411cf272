"""Messages of the program name its own options, and the help of each command has an
example.
"""

import re
import shlex
from pathlib import Path

import click
import dask
import pandas as pd
import pytest
from click.testing import CliRunner

from dask_simjoin.cli.main import EXAMPLES, cli
from dask_simjoin.cli.messages import in_words, near_commands
from tests.cli.test_commands import run
from tools.verb_tables import COMMANDS

PYTHON = re.compile(
    r"Decimal|Fraction|\bpd\.|\bdask[._](config|simjoin)|astype|=\[|\w+=\S|\('|tokenizer="
)

NAMES = ("on", "tokenizer", "threshold", "dropna", "eps", "return_distance", "left_on")


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("id,t\n1,big red car\n2,big red bus\n3,\n")
    pd.DataFrame({"id": [1, 2]}).to_parquet("i.parquet")
    (tmp_path / "s.csv").write_text("id;x;y\n1;0;0\n2;1;1\n")
    (tmp_path / "s2.csv").write_text("id;x;y\n1;0;0\n")
    (tmp_path / "p.csv").write_text("id,x,y\n1,0,0\n2,1,1\n")


def failed(*words):
    ran = CliRunner().invoke(cli, [*words, "--scheduler", "synchronous", "-q"])
    assert ran.exit_code == 2, ran.output
    return ran.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "sets plan a.csv --on t --threshold 1.5",
            "--threshold 1.5 is not allowed with --similarity",
        ),
        ("sets plan a.csv --on t --threshold 4/3", "such as 0.8 or 1/3"),
        (
            "sets plan a.csv --on t --threshold .5 --tokenizer qgrams",
            "qgrams needs a value; use qgrams:3",
        ),
        (
            "sets plan a.csv --on t --threshold .5 --tokenizer wrds",
            "did you mean 'words'?",
        ),
        ("sets plan a.csv --on t --threshold .5 --tokenizer qgrams:0", "--tokenizer"),
        (
            "sets plan i.parquet --on id --threshold .5",
            "--on id is of dtype int64, which holds no sets",
        ),
        (
            "sets plan a.csv --on t --threshold .5 --tokenizer words:upper",
            "words:lower and qgrams:N:lower",
        ),
        (
            "sets plan a.csv --on t --threshold .5 --tokenizer qgrams:x:lower",
            "use a whole number from 1",
        ),
        ("sets self-join a.csv --on t --eps .3 -o b.csv", "Did you mean --threshold?"),
        ("knn p.csv --eps .3 -o b.csv", "Did you mean --max-distance?"),
        (
            "plan s.csv --eps 1 --on x,y",
            "The separator of s.csv looks like ';': add --separator ';'.",
        ),
        (
            "self-join s.csv --id id --eps 1 -o b.csv",
            "looks like ';': add --separator ';'.",
        ),
        (
            "join p.csv --other s.csv --eps 1 --on x -o b.csv",
            "The separator of s.csv looks like ';': add --other-separator ';'.",
        ),
        (
            "join s.csv --other p.csv --eps 1 --on x -o b.csv",
            "s.csv looks like ';': add --separator ';' --other-separator ','.",
        ),
        (
            "join p.csv --other s.csv --eps 1 --on x -o b.csv --separator ;",
            "p.csv looks like ',': add --separator ',' --other-separator ';'.",
        ),
        (
            "join s.csv --other s2.csv --eps 1 --on x -o b.csv",
            "The separator of s.csv looks like ';': add --separator ';'.",
        ),
        (
            "plan p.csv --eps 1 --on x --separator ;",
            "The separator of p.csv looks like ',': add --separator ','.",
        ),
        (
            "plan p.csv --eps 1 --metric euclid --on x,y",
            "--metric euclid is not allowed",
        ),
        ("plan p.csv --eps -1 --on x,y", "--eps -1.0 is not allowed"),
        ("plan a.csv --eps 1 --on t", "--on names 't' of dtype"),
        ("plan p.csv --eps 1 --on z", "--on names 'z', which is not a column"),
    ],
)
def test_options_are_flags_and_advice_is_not_python(tables, words, told):
    text = failed(*words.split())
    assert told in text and not PYTHON.search(text), text


def test_advice_about_a_box_is_in_flags(tables):
    of_points = "count-pairs", "p.csv", "--eps", "1", "--on", "x,y", "--box"
    text = failed(*of_points, "1,1,1")
    assert "or one for each column, such as --box 10,10,none (none: an open" in text
    assert "--box x=10,y=20." in text and "dict" not in text
    assert "or none for a column that is open" in failed(*of_points, "1,0")
    ran = CliRunner().invoke(cli, [*of_points, "0.5", "-q"])
    assert ran.exit_code == 3 and "or use a box that contains them." in ran.output
    assert "df[" not in ran.output


@pytest.mark.parametrize(
    "words",
    ["self-join s.csv --on x -o b.csv", "self-join p.csv --on z --eps 1 -o b.csv"],
)
def test_added_row_numbers_are_not_listed(tables, words):
    text = failed(*words.split(), *([] if "--eps" in words else ["--eps", "1"]))
    assert "which is not a column" in text and "row_id" not in text


def test_row_numbers_of_a_file_are_listed(tables):
    Path("r.csv").write_text("row_id,x\n1,0\n")
    assert "the columns are 'row_id', 'x'" in failed(
        "self-join", "r.csv", "--on", "z", "--eps", "1", "-o", "b.csv"
    )


def test_case_is_ignored(tables):
    Path("c.csv").write_text("id,t\n1,Big Red\n2,big red\n")
    words = [
        "sets",
        "count-pairs",
        "c.csv",
        "--on",
        "t",
        "--threshold",
        "1",
        "--scheduler",
        "synchronous",
        "-q",
    ]
    for tokenizer, number in (
        ("words", "0"),
        ("words:lower", "1"),
        ("qgrams:3", "0"),
        ("qgrams:3:lower", "1"),
    ):
        assert (
            CliRunner().invoke(cli, [*words, "--tokenizer", tokenizer]).output.strip()
            == number
        )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "self-join p.csv --id id --eps 9",
            "If you only need counts, use the commands count-pairs or counts.",
        ),
        (
            "sets self-join a.csv --on t --threshold .1",
            "If you only need counts, use the commands sets count-pairs or sets counts.",
        ),
    ],
)
def test_large_results_name_commands_and_variables(tables, words, told, monkeypatch):
    monkeypatch.setenv("DASK_SIMJOIN__RESULT_LIMIT", "1")
    with dask.config.set({"simjoin.result-limit": 1}):
        ran = CliRunner().invoke(
            cli, [*words.split(), "-o", "b.csv", "--scheduler", "synchronous", "-q"]
        )
    text = ran.output.replace("\n", " ")
    assert ran.exit_code == 4 and told in text and "()" not in text, text
    assert re.search(
        r"raise the limit: the environment variable DASK_SIMJOIN__RESULT_LIMIT='\d+ \w+'\.",
        text,
    )
    assert "(the environment variable DASK_SIMJOIN__RESULT_LIMIT)" in text


def test_messages_in_words():
    for text, want in (
        (
            "on=['a', 'b'] is wrong; use dropna=True.",
            "--on a,b is wrong; use --dropna.",
        ),
        (
            "threshold=Decimal('0.5') and left_on= are given.",
            "--threshold 0.5 and --left-on are given.",
        ),
        (
            "eps=2 is large. Call df.astype('float64'). Use less.",
            "--eps 2 is large. Use less.",
        ),
        (
            "name the coordinates with on=[...].",
            "name the coordinates with --on COLUMN,COLUMN.",
        ),
        ("use tokenizer=('delimiter', ',').", "use tokenizer=('delimiter', ',')."),
        ("reason=1 is not an option", "reason=1 is not an option"),
    ):
        assert (
            in_words(
                text,
                [name for name in NAMES if "('" not in text or name != "tokenizer"],
            )
            == want
        )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["selfjoin"], "no command selfjoin. Did you mean self-join"),
        (["dbscn"], "Did you mean dbscan"),
        (["neighbour"], "no command neighbour. Did you mean counts"),
        (["neighbor-count"], "Did you mean counts"),
        (["cluster"], "Did you mean dbscan?"),
        (["set_self_join"], "Did you mean sets self-join"),
        (["sets", "dedupe"], "no command sets dedupe. Did you mean dedup?"),
        (["index", "hstory"], "Did you mean history?"),
        (["xyzzy"], "no command xyzzy."),
    ],
)
def test_near_commands_are_suggested(words, told):
    ran = CliRunner().invoke(cli, words)
    assert ran.exit_code == 2 and told in ran.output, ran.output


def test_words_without_a_near_command():
    assert near_commands("xyzzy", ["join"]) == ""
    assert near_commands("cluster", ["join"]) == ""


def test_texts_need_no_tokenizer(tables):
    words = [
        "sets",
        "self-join",
        "a.csv",
        "--on",
        "t",
        "--threshold",
        "0.5",
        "--id",
        "id",
    ]
    ran = CliRunner().invoke(
        cli, [*words, "-o", "pairs.csv", "--scheduler", "synchronous"]
    )
    assert ran.exit_code == 0 and "--tokenizer words" in ran.output, ran.output
    assert Path("pairs.csv").read_text().split() == ["left,right", "1,2"]
    words = [
        "sets",
        "count-pairs",
        "a.csv",
        "--on",
        "t",
        "--scheduler",
        "synchronous",
        "-q",
        "--threshold",
    ]
    assert (
        CliRunner()
        .invoke(cli, [*words, ".9", "--tokenizer", "qgrams:3"])
        .output.strip()
        == "0"
    )
    two = [
        "sets",
        "join",
        "a.csv",
        "--other",
        "a.csv",
        "--on",
        "t",
        "--threshold",
        "1",
        "-o",
        "two.csv",
    ]
    ran = CliRunner().invoke(cli, [*two, "--scheduler", "synchronous", "-q"])
    assert ran.exit_code == 0 and len(Path("two.csv").read_text().split()) == 3, (
        ran.output
    )


WORDS = [
    words for words, command in COMMANDS.items() if not isinstance(command, click.Group)
]


def test_every_command_has_an_example():
    assert {" ".join(words) for words in WORDS} == set(EXAMPLES)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_examples_are_allowed(words):
    name, command = " ".join(words), COMMANDS[words]
    assert command.epilog == f"Example: dask-simjoin {name} {EXAMPLES[name]}"
    assert command.make_context(name, shlex.split(EXAMPLES[name]))


def test_a_text_among_coordinates_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{k},{k}.5" for k in range(30)]
    for name, below in (
        ("near.csv", "x,y"),
        ("far.csv", "x,y\n" + "\n".join(["1,1.5"] * 30_000)),
    ):
        (tmp_path / name).write_text("\n".join([below, *rows, "-2,abc"]))
    words = "--eps", "1", "--on", "x,y", "-q", "-o", "out.csv"
    for name, line in (("near.csv", 32), ("far.csv", 30_032)):
        said = run("self-join", name, *words, code=3).stderr
        assert f"{name}, line {line}: column 'y' has 'abc', which is not" in said
    make = "index", "make", "near.csv", *words[:5], "--id", "x", "--path", "grown"
    assert "near.csv, line 32: column 'y' has 'abc'" in run(*make, code=3).stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("cell", ["1,000.5", "$10", "5%"])
def test_numbers_with_other_characters(cell):
    pd.DataFrame({"id": [1, 2], "x": [cell] * 2}).to_csv("a.csv", index=False)
    said = run("count-pairs", "a.csv", "--eps", "1", "--on", "x", code=2).stderr
    assert "Numbers in files have no unit, currency or separator of thousands." in said
    assert "makes other" not in said and repr(cell) in said


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("cell", ["inf", "-inf", "1e400"])
def test_the_line_of_an_infinite_number_is_named(cell):
    pd.DataFrame({"id": [1, 2], "x": ["0", cell]}).to_csv("a.csv", index=False)
    said = run("count-pairs", "a.csv", "--eps", "1", "--on", "x", code=3).stderr
    assert "See a.csv, line 3." in said
    said = run("self-join", "a.csv", "--eps", "1", "--id", "k", "-o", "o.csv", code=2)
    assert "Leave out --id to number the rows from 0." in said.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_times_as_coordinates(kind):
    table = pd.DataFrame({"t": pd.to_datetime(["2024-01-01", "2024-01-02"])})
    getattr(table, f"to_{kind}")(f"a.{kind}", index=False)
    said = run("count-pairs", f"a.{kind}", "--eps", "1", "--on", "t", code=2).stderr
    assert "near in time, use --within" in said


@pytest.mark.usefixtures("folder")
def test_a_comment_above_the_header():
    Path("a.csv").write_text("# made by X\nid,x\n1,5\n2,6\n")
    said = run("count-pairs", "a.csv", "--eps", "1", "--on", "x", code=2).stderr
    assert "looks like a comment: remove the lines above the header." in said
