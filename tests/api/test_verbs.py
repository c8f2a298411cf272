"""Rows of the table of verbs say what is true of their functions."""

import typing
from dataclasses import fields

import pytest

import dask_simjoin
from dask_simjoin.api.verbs import TABLE, VERBS, Output
from dask_simjoin.cli.commands import OUTPUT_ACTIONS
from tools.verb_tables import COMMANDS


def test_each_verb_has_one_row():
    assert len(TABLE) == len(VERBS)
    commands = [verb.command for verb in TABLE if verb.command]
    assert len(set(commands)) == len(commands)
    assert len(set(dask_simjoin.__all__)) == len(dask_simjoin.__all__)


def test_tab_completion_lists_public_names():
    listed = set(dir(dask_simjoin))
    assert set(dask_simjoin.__all__) <= listed
    assert {"cluster", "errors", "sets"} <= listed - set(dask_simjoin.__all__)
    assert not listed & {"NoReturn", "find_spec", "engine", "request", "no_verb"}


def test_every_kind_of_output_has_its_command():
    assert set(OUTPUT_ACTIONS) == set(typing.get_args(Output))


@pytest.mark.parametrize("verb", TABLE, ids=lambda verb: verb.name)
def test_options_of_a_row_are_those_of_the_request(verb):
    keywords = {field.name: field.kw_only for field in fields(verb.request)}
    assert all(keywords[name] for name in verb.shown)
    assert set(verb.compiled or ()) <= set(keywords)
    assert verb.result and "|" not in verb.result and verb.result[-1] != "."
    if verb.command:
        command = COMMANDS[tuple(verb.command.split())]
        assert command.verb is verb
