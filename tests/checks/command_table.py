"""Write the commands' options into docs/guide/command-line.md: `python -m tests.checks.command_table`."""

from dataclasses import fields
from pathlib import Path

import click

from dask_simjoin.cli.commands import MakeCommand, VerbCommand
from dask_simjoin.cli.main import cli
from dask_simjoin.cli.options import SHARED, WRITTEN, flag
from tests.checks.option_table import written

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "command-line.md"
HEAD = ["| command | verb | options of the verb |", "|---|---|---|"]
HEAD_SHARED = ["| option | of | for |", "|---|---|---|"]

COMMANDS = {
    (*group, name): command
    for group, commands in (
        ((), cli.commands),
        *(((name,), one.commands) for name, one in cli.commands.items() if isinstance(one, click.Group)),
    )
    for name, command in commands.items()
}
"""Commands by their words."""


def of_verbs():
    """The words of commands that are verbs."""
    return [words for words, command in COMMANDS.items() if isinstance(command, VerbCommand | MakeCommand)]


def command_table():
    """The lines of the table of commands."""
    return [*HEAD, *(_row(words, COMMANDS[words]) for words in of_verbs())]


def _row(words, command):
    own = {field.name for field in fields(command.request)}
    options = [f"`{flag(one.name)}`" for one in command.params if one.name in own]
    return f"| `{' '.join(words)}` | `{command.verb}` | {', '.join(options)} |"


def shared_table():
    """The lines of the table of what commands share."""
    kinds = [(WRITTEN, "what writes"), (SHARED, "all")]
    return [*HEAD_SHARED, *(_shared(option, kind) for options, kind in kinds for option in options)]


def _shared(option, kind):
    names = ", ".join(f"`{name}`" for name in option.opts)
    return f"| {names} | {kind} | {option.help[0].lower()}{option.help[1:].rstrip('.')} |"


if __name__ == "__main__":
    text = written(PAGE.read_text(), command_table())
    PAGE.write_text(written(text, shared_table()))
