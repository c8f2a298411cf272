"""The program: one command per verb, and what completion knows."""

import dataclasses

import pytest
from click.shell_completion import ShellComplete

from dask_simjoin.cli.main import cli
from dask_simjoin.cli.options import NO_FLAGS, READ, SHARED, WRITTEN
from tools.verb_tables import COMMANDS, of_verbs


@pytest.fixture(params=of_verbs(), ids=lambda name: " ".join(name))
def named(request):
    """A command and the request of its verb."""
    return COMMANDS[request.param], COMMANDS[request.param].request


def test_no_option_is_called_as_another(named):
    command, request = named
    names = [one.name for one in command.params]
    assert len(set(names)) == len(names)
    others = {"tables", *(one.name for one in [*READ, *SHARED, *WRITTEN])}
    taken = {field.name for field in dataclasses.fields(request)} - set(NO_FLAGS)
    assert taken == set(names) - others


def test_completion_knows_commands_and_choices():
    done = ShellComplete(cli, {}, "dask-simjoin", "_DASK_SIMJOIN_COMPLETE")
    assert [one.value for one in done.get_completions([], "self")] == ["self-join"]
    assert [one.value for one in done.get_completions(["join", "--metric"], "hav")] == [
        "haversine"
    ]
