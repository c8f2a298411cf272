"""Each command's help has an example, whose words the command takes."""

import shlex

import click
import pytest

from dask_simjoin.cli.examples import EXAMPLES, example_of
from tests.checks.verb_tables import COMMANDS

WORDS = [words for words, command in COMMANDS.items() if not isinstance(command, click.Group)]


def test_every_command_has_an_example():
    assert {" ".join(words) for words in WORDS} == set(EXAMPLES)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_examples_are_allowed(words):
    name, command = " ".join(words), COMMANDS[words]
    assert command.epilog == example_of(name)
    assert command.make_context(name, shlex.split(EXAMPLES[name]))
