"""The program: one command per verb, and what completion knows."""

import dataclasses
import json

import pytest
from click.shell_completion import ShellComplete

from dask_simjoin.cli.main import cli
from dask_simjoin.cli.options import NO_FLAGS, OTHER_READ, READ, SHARED, WRITTEN
from tests.cli.test_commands import run
from tools.verb_tables import COMMANDS, of_verbs


@pytest.fixture(params=of_verbs(), ids=lambda name: " ".join(name))
def named(request):
    """A command and the request of its verb."""
    return COMMANDS[request.param], COMMANDS[request.param].request


def test_no_option_is_called_as_another(named):
    command, request = named
    names = [one.name for one in command.params]
    assert len(set(names)) == len(names)
    others = {"tables", *(one.name for one in [*READ, *OTHER_READ, *SHARED, *WRITTEN])}
    taken = {field.name for field in dataclasses.fields(request)} - set(NO_FLAGS)
    assert taken == set(names) - others


def test_completion_knows_commands_and_choices():
    done = ShellComplete(cli, {}, "dask-simjoin", "_DASK_SIMJOIN_COMPLETE")
    assert [one.value for one in done.get_completions([], "self")] == ["self-join"]
    assert [one.value for one in done.get_completions(["join", "--metric"], "hav")] == [
        "haversine"
    ]


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        ("self-join none.csv --eps 1 --on x -o o.csv", "UsageError", 2),
        ("self-join a.csv --eps 1 --onn x -o o.csv", "NoSuchOption", 2),
        ("sets count-pairs a.csv --on k --threshold 2", "OptionError", 2),
        ("count-pairs a.csv --eps 1 --on x", "CoordinateError", 3),
        ("index make a.csv --eps 1 --on x --id k --path i", "CoordinateError", 3),
        ("index history a.csv", "UsageError", 2),
    ],
)
def test_a_failure_is_printed_as_json(words, kind, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("k,x\na,1\nb,\n")
    ran = run(*words.split(), "--json", code=code)
    told = json.loads(ran.stdout)
    named = words.split()[0]
    assert told["command"] == named or words.startswith(told["command"])
    assert (told["error"], told["exit_code"]) == (kind, code)
    assert told["message"] and told["message"] in ran.stderr
    assert run(*words.split(), code=code).stdout == ""
