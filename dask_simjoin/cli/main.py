"""The program ``dask-simjoin``, with one command per verb."""

from __future__ import annotations

import json
import logging
import signal
import warnings
from collections.abc import Sequence
from typing import Any

import click
import pyarrow as pa
from distributed.scheduler import KilledWorker

from dask_simjoin.api.compile_kernels import DIMS, OPTIONS, compile_kernels
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.catalog import HOME, LIBRARIES
from dask_simjoin.cli.commands import VerbCommand
from dask_simjoin.cli.indexes import indexes
from dask_simjoin.cli.messages import (
    OTHER_EXAMPLES,
    NamedCommands,
    commands_of,
    in_words,
    options_of_command,
)
from dask_simjoin.cli.options import NAMES
from dask_simjoin.cli.running import (
    DECLINED,
    FAILED,
    REFUSED,
    SIGNALS,
    TOO_LARGE,
    USAGE,
    stoppable,
)
from dask_simjoin.errors import (
    BudgetError,
    ColumnError,
    OptionError,
    OptionTypeError,
    SimJoinError,
)


@click.command(
    "compile",
    short_help="Compile kernels ahead of time, for example in an image build.",
)
@click.option(
    "--verbs",
    type=NAMES,
    help=f"Verbs to compile: {', '.join(OPTIONS)}.  [default: all]",
)
@click.option(
    "--dims",
    type=NAMES,
    default=",".join(map(str, DIMS)),
    show_default=True,
    help="Numbers of columns.",
)
@click.option(
    "--metric", default="euclidean", show_default=True, help="Metric of the kernels."
)
@click.option(
    "--backend",
    type=click.Choice(LIBRARIES),
    default=HOME,
    show_default=True,
    help="Compile for pandas (CPUs) or cudf (GPUs).",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Processes that compile in parallel.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the seconds as JSON.")
def compiled(
    verbs: list[str] | None,
    dims: list[str],
    metric: str,
    backend: str,
    processes: int,
    as_json: bool,
) -> None:
    """Compile the kernels of verbs, and print the seconds of each."""
    wrong = [one for one in dims if not one.strip().isdigit()]
    if wrong:
        raise click.BadParameter(
            f"{wrong[0]!r} is not a whole number.", param_hint="--dims"
        )
    seconds = compile_kernels(
        verbs, map(int, dims), metric=metric, backend=backend, processes=processes
    )
    click.echo(
        seconds.to_json(orient="records")
        if as_json
        else seconds.round(2).to_string(index=False)
    )


LOG = logging.getLogger(__name__)

STOPPED = 128 + signal.SIGINT

CODES = {
    0: "done",
    FAILED: "a file, a worker or a library failed, or an index is damaged",
    USAGE: "an option or a column is not allowed, or a table or an index does not exist",
    REFUSED: "the data are damaged, have bad rows, invalid values or ids, or changed during the run",
    TOO_LARGE: "the result or a task needs more memory than available",
    DECLINED: "a large plan was not confirmed",
    **{128 + number: f"stopped by {number.name}" for number in sorted(SIGNALS)},
}
"""Exit codes of the program, and their meanings."""


class Commands(NamedCommands):
    """The program's commands. An error is printed as one message, and its type decides
    the exit code.
    """

    def invoke(self, ctx: click.Context) -> Any:
        args = [*ctx._protected_args, *ctx.args]
        try:
            return self._invoked(ctx)
        except click.ClickException as error:
            if "--json" in args:
                click.echo(json.dumps(failure_of(args, error)))
            raise

    def _invoked(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            try:
                return super().invoke(ctx)
            except SimJoinError as error:
                raise Failed(
                    in_words(str(error), _option_names()), _code(error)
                ) from error
            except (
                OSError,
                ImportError,
                MemoryError,
                ValueError,
                pa.ArrowException,
                KilledWorker,
            ) as error:
                LOG.debug("The command failed:", exc_info=True)
                raise Failed(str(error) or type(error).__name__, FAILED) from error
            except KeyboardInterrupt as error:
                raise Failed("Stopped; the output is unchanged.", STOPPED) from error


def failure_of(args: Sequence[str], error: click.ClickException) -> dict[str, Any]:
    """Return the object that --json prints if a command fails. `args`: the arguments of
    the program, which begin with the words of the command.
    """
    words = [" ".join(args[:2]), *args[:1]]
    cause = error.__cause__ if isinstance(error, Failed) else None
    return {
        "command": next((one for one in words if one in commands_of(cli)), ""),
        "error": type(error if cause is None else cause).__name__,
        "message": error.format_message(),
        "exit_code": error.exit_code,
    }


class Failed(click.ClickException):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit_code = code  # type: ignore[misc]


def _code(error: SimJoinError) -> int:
    if isinstance(error, (OptionError, OptionTypeError, ColumnError)):
        return USAGE
    return TOO_LARGE if isinstance(error, BudgetError) else REFUSED


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"Warning: {in_words(str(message), _option_names())}", err=True)


def _option_names() -> set[str]:
    return {
        name
        for command in commands_of(cli).values()
        for name in options_of_command(command)
    }


HELP = """Find all pairs of rows within a distance, exactly.

TABLES are parquet or CSV: files, folders, globs (in quotes) and URLs. Option --id names the column of
row ids. By default rows are numbered from 0.

Exit codes: {codes}.
"""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help=HELP.format(
        codes="; ".join(f"{code}: {text}" for code, text in CODES.items())
    ),
)
@click.version_option(package_name="dask-simjoin")
def cli() -> None:
    """Group the commands."""


@cli.group(
    "sets", cls=NamedCommands, short_help="Join sets of tokens: texts, tags, baskets."
)
def sets() -> None:
    """Join rows with similar sets of tokens."""


@cli.group(
    "strings", cls=NamedCommands, short_help="Join texts within an edit distance."
)
def strings() -> None:
    """Join rows whose texts are within an edit distance."""


for _verb in VERBS.values():
    if _verb.command is not None:
        _group, _, _name = _verb.command.rpartition(" ")
        {"": cli, "sets": sets, "strings": strings}[_group].add_command(
            VerbCommand(_name, _verb)
        )
cli.add_command(compiled)
cli.add_command(indexes)
EXAMPLES = {
    **OTHER_EXAMPLES,
    **{verb.command: verb.example for verb in VERBS.values() if verb.command},
}
"""Command -> its arguments in the example that its help shows."""
for _words, _command in commands_of(cli).items():
    _command.epilog = f"Example: dask-simjoin {_words} {EXAMPLES[_words]}"


def main(begin: float | None = None) -> None:
    """Run the program. `begin`: the time of `time.perf_counter` at its start."""
    with stoppable():
        cli(prog_name="dask-simjoin", obj=begin)
