"""Tables of the documentation that follow from the table of verbs: calls, options and
commands.
"""

from dataclasses import fields
from inspect import Parameter, signature

import click

from dask_simjoin.api.verbs import VERBS
from dask_simjoin.calls.decorators import options_of
from dask_simjoin.cli.commands import VerbCommand
from dask_simjoin.cli.indexes import MakeCommand
from dask_simjoin.cli.main import cli
from dask_simjoin.cli.options import (
    OTHER_READ,
    READ,
    SHARED,
    WRITTEN,
    flag,
    taken_options,
)
from dask_simjoin.metrics import METRICS
from dask_simjoin.request.options import Conditions, MetricRequest, Partitioning
from dask_simjoin.request.requests import PlanRequest
from dask_simjoin.sets.requests import OneSetTable, SetOptions
from dask_simjoin.strings.requests import EditOptions, OneTextTable
from tools import ROOT

CALLS = ["| verb | gives |", "|---|---|"]
OPTIONS = ["| verb | metrics | also takes |", "|---|---|---|"]
SET_OPTIONS = ["| verb of sets | also takes |", "|---|---|"]
EDIT_OPTIONS = ["| verb of texts | also takes |", "|---|---|"]
COMMAND_OPTIONS = ["| command | verb | options of the verb |", "|---|---|---|"]
SHARED_OPTIONS = ["| option | commands | meaning |", "|---|---|---|"]

TOLD = {"eps", *(option.name for option in fields(MetricRequest))}
"""Options that the text above the table of options names."""

TOLD_OF_SETS = {option.name for option in options_of(OneSetTable)} | {"threads"}
TOLD_OF_EDITS = {option.name for option in options_of(OneTextTable)} | {"threads"}

COMMANDS = {
    (*group, name): command
    for group, commands in (
        ((), cli.commands),
        *(
            ((name,), one.commands)
            for name, one in cli.commands.items()
            if isinstance(one, click.Group)
        ),
    )
    for name, command in commands.items()
}
"""Commands by their words."""


def of_verbs():
    """The words of commands that are verbs."""
    return [
        words
        for words, command in COMMANDS.items()
        if isinstance(command, VerbCommand | MakeCommand)
    ]


def calls():
    """Each verb with its call and its result."""
    return [
        *CALLS,
        *(f"| `{_call(verb)}` | {verb.result} |" for verb in VERBS.values()),
    ]


def _call(verb):
    options = list(signature(verb.function).parameters.values())[1:]
    shown = [
        one
        for one in options
        if one.kind is not one.KEYWORD_ONLY or one.name in verb.shown
    ]
    words = [
        one.name if one.default is Parameter.empty else f"{one.name}={_value(one)}"
        for one in shown
    ]
    return f"{verb.name}({', '.join(words + ['...'] * (len(shown) < len(options)))})"


def _value(option):
    return (
        f'"{option.default}"'
        if isinstance(option.default, str)
        else repr(option.default)
    )


def options():
    """Return the table of options per verb; `plan` takes all, and some verbs compare no
    rows.
    """
    listed = [
        verb for verb in VERBS.values() if issubclass(verb.request, MetricRequest)
    ]
    return [
        *OPTIONS,
        *(_options(verb) for verb in listed if verb.request is not PlanRequest),
    ]


def _options(verb):
    request = verb.request
    others = ", ".join(name for name, kind in METRICS.items() if kind.formula)
    metrics = (
        "all"
        if issubclass(request, Conditions) or request.formulas
        else f"all but {others}"
    )
    words = ["`eps` as a column"] * request.radii + _names(request, TOLD)
    choices = {option.name: option.metadata["choices"] for option in fields(request)}[
        "partitioning"
    ]
    refused = [f'`"{one}"`' for one in Partitioning.__args__ if one not in choices]
    return f"| `{verb.name}` | {metrics} | {', '.join(words)}{'; not ' * bool(refused)}{', '.join(refused)} |"


def set_options():
    """Return the table of options for the verbs of sets."""
    return [*SET_OPTIONS, *_rows(SetOptions, TOLD_OF_SETS)]


def edit_options():
    """Return the table of options for the verbs of edits."""
    return [*EDIT_OPTIONS, *_rows(EditOptions, TOLD_OF_EDITS)]


def _rows(kind, shared):
    listed = [verb for verb in VERBS.values() if issubclass(verb.request, kind)]
    rows = [
        (verb.name, ", ".join(_names(verb.request, shared)) or "nothing")
        for verb in listed
    ]
    return [f"| `{name}` | {text} |" for name, text in rows]


def _names(request, shared):
    """The names of a verb's options but the shared ones; those of two tables are one."""
    names = [option.name for option in options_of(request) if option.name not in shared]
    two = [name for name in names if name.startswith(("left_", "right_"))]
    if two != ["left_on", "right_on", "left_id", "right_id"]:
        two = []
    return [f"`{name}`" for name in names if name not in two] + [
        "`left_*`, `right_*`"
    ] * bool(two)


def command_options():
    """Each command with its verb and the verb's options."""
    return [
        *COMMAND_OPTIONS,
        *(_command(words, COMMANDS[words]) for words in of_verbs()),
    ]


def _command(words, command):
    own = taken_options(command.request)
    options = [f"`{flag(one.name)}`" for one in command.params if one.name in own]
    return f"| `{' '.join(words)}` | `{command.verb.name}` | {', '.join(options)} |"


def shared_options():
    """Options that commands share."""
    kinds = [
        (WRITTEN, "commands that write"),
        (READ, "commands that read tables"),
        (OTHER_READ, "commands with `--other`"),
        (SHARED, "all"),
    ]
    return [
        *SHARED_OPTIONS,
        *(_shared(option, kind) for options, kind in kinds for option in options),
    ]


def _shared(option, kind):
    names = ", ".join(f"`{name}`" for name in option.opts)
    return (
        f"| {names} | {kind} | {option.help[0].lower()}{option.help[1:].rstrip('.')} |"
    )


def written(text, lines):
    """The page with these lines instead of the table that begins with the same two."""
    before, head, rest = text.partition("\n".join(lines[:2]))
    assert head, f"no table begins with {lines[0]}"
    return before + "\n".join(lines) + rest[rest.index("\n\n") :]


PAGES = {
    "docs/reference/verbs.md": (calls,),
    "docs/reference/options.md": (options, set_options, edit_options),
    "docs/guide/command-line.md": (command_options, shared_options),
}
"""Pages with their tables."""


def files():
    """Path -> text of each page, with the tables as they should be."""
    found = {}
    for name, tables in PAGES.items():
        text = (ROOT / name).read_text()
        for table in tables:
            text = written(text, table())
        found[ROOT / name] = text
    return found
