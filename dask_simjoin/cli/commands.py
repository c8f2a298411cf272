"""The commands of the verbs, and the commands of an index on disk."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import pyarrow as pa
from dask.utils import format_time
from distributed import Client

from dask_simjoin.api.introspect import lazy_joins
from dask_simjoin.api.verbs import Output, Verb
from dask_simjoin.calls.examples import NEIGHBORS
from dask_simjoin.cli.messages import (
    columns_of_files,
    in_words,
    listing_columns,
    naming_places,
    options_of_command,
)
from dask_simjoin.cli.options import (
    GROUPS,
    LEFT,
    OTHER_READ,
    READ,
    RIGHT,
    SHARED,
    TABLE,
    WITHIN,
    WRITTEN,
    csv_columns,
    flag,
    given,
    log_lines,
    options_for,
    pairs_of,
    table_reader,
    taken_options,
    with_pairs,
)
from dask_simjoin.cli.running import (
    computing,
    confirm_large,
    on_terminal,
    stage,
    starts_workers,
)
from dask_simjoin.cli.sources import SKIP, TableReader
from dask_simjoin.cli.tables import (
    OutputWriter,
    check_bad_rows,
    in_file_order,
    sink,
    write_bad_rows,
)
from dask_simjoin.engine.cpu.kernels.jit import compiled_here
from dask_simjoin.graph.lazy_join import LazyJoin
from dask_simjoin.graph.records import RUNS
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.left_out import LeftOut, named_tables
from dask_simjoin.reports.run import RunReport
from dask_simjoin.request.columns import ROW_ID
from dask_simjoin.request.messages import NO_OPTIONS, OPTIONS, counted
from dask_simjoin.request.requests import ANTI, KEEPS, SEMI
from dask_simjoin.sets.columns import TEXTS, content_of


@dataclass(frozen=True)
class OutputAction:
    """How a command shows the result of its verb."""

    about: str  # a sentence for the help of the command
    table: Callable[[Frame, Any], Frame] | None
    """Makes the table to write from the frame and the result; None: the result is
    printed.
    """


def _with_columns(frame: Frame, values: Any) -> Frame:
    """Add values of the rows to the frame as columns; refuse to replace a column."""
    columns = (
        {values.name: values}
        if values.ndim == 1
        else {name: values[name] for name in values.columns}
    )
    # with several distances, each column of counts is named by its distance; a table
    # needs names that are text
    named = {
        name if isinstance(name, str) else f"{NEIGHBORS}_{_shown(name)}": column
        for name, column in columns.items()
    }
    existing = [name for name in named if name in frame.columns]
    if existing:
        raise click.UsageError(
            f"The table already has a column {existing[0]!r}, which the command would "
            "replace. Rename it."
        )
    return frame.assign(**named)


def _shown(distance: float) -> str:
    """Return a distance as text: 1000.0 becomes 1000."""
    return str(distance).removesuffix(".0")


OUTPUT_ACTIONS: dict[Output, OutputAction] = {
    "pairs": OutputAction("Writes the pairs.", lambda _, result: result),
    "rows": OutputAction(
        "Writes the kept rows of the table.", lambda _, result: result
    ),
    "values": OutputAction("Writes the table with additional columns.", _with_columns),
    "number": OutputAction("Prints a number, or one per distance.", None),
    "plan": OutputAction("Prints the plan, without computing the result.", None),
}

COMPUTING = ("scheduler", "workers", "memory_limit", "threads", "backend")
"""Options of the program that are the arguments of `computing`."""

DEFAULT_TOKENIZER = "words"
"""The tokenizer for texts if the command line names none."""


class VerbCommand(click.Command):
    """The command of a verb; its options are those in the verb's request."""

    def __init__(self, name: str, verb: Verb) -> None:
        self.verb, self.request = verb, verb.request
        action = OUTPUT_ACTIONS[verb.output]
        text = (inspect.getdoc(verb.function) or "").partition("\n\n")[0]
        text = " ".join(text.replace("`", "").split()).replace(
            "this frame and a row of other", "the table and a row of --other"
        )
        text = text.replace("this frame", "the table")
        tables = click.Argument(["tables"], nargs=-1, required=True, type=click.Path())
        super().__init__(
            name,
            params=[
                tables,
                *options_for(self.request),
                *(WRITTEN if action.table else []),
                *READ,
                *(OTHER_READ if TABLE in taken_options(self.request) else []),
                *SHARED,
            ],
            callback=self._called,
            help=f"{text}\n\n{action.about}",
            short_help=text,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; for an option's name in another library, suggest our
        name.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            other = error.option_name.lstrip("-").replace("-", "_").lower()
            meant = [
                name
                for name in OPTIONS.get(other, ())
                if name in options_of_command(self)
            ]
            if meant:
                hint = f". Did you mean {flag(meant[0])}?"
            elif other in NO_OPTIONS:
                names = {*options_of_command(self), "keep", "return_distance"}
                hint = f". {in_words(NO_OPTIONS[other], names).rstrip(';,.')}."
            else:
                raise
            text = f"No such option {error.option_name!r}{hint}"
            raise click.NoSuchOption(error.option_name, text, ctx=ctx) from None

    def _called(self, **params: Any) -> None:
        options = given(click.get_current_context(), self.request)
        names_rows = getattr(self.request, "names_rows", False)
        words = str(self.verb.command)
        _run(Run(words, self.verb, options, names_rows, params, table_reader(params)))


@dataclass(frozen=True)
class Run:
    name: str  # the words of the command, such as "sets join"
    verb: Verb
    options: dict[str, Any]  # options of the verb
    names_rows: bool  # whether the result has row ids
    params: dict[str, Any]  # all arguments of the command line, by name
    reader: TableReader

    @property
    def quiet(self) -> bool:
        return bool(self.params["quiet"])

    def result(self) -> tuple[Frame, Any]:
        """Return the frame and the result of the verb. Plans are computed; other
        results are lazy.
        """
        return listing_columns(
            self._result, self.verb.output in ("rows", "values") or self.selects_rows
        )

    @property
    def read_from(self) -> tuple[Sequence[str], Sequence[str]]:
        """The left and the right table, which may be the same."""
        own = self.params["tables"]
        return own, self.options.get(TABLE, own)

    @property
    def selects_rows(self) -> bool:
        return self.options.get("how") in (SEMI, ANTI)

    def _result(self, whole: bool) -> tuple[Frame, Any]:
        options = dict(self.options)
        used = [csv_columns(options, whole, self.verb.request, RIGHT)]
        if TABLE in options:
            used.append(csv_columns(options, whole, self.verb.request, LEFT))
        tables = self.reader.read_tables(
            self.read_from,
            used,
            lambda some: pairs_of(with_pairs(options, some), GROUPS),
            lambda some: pairs_of(with_pairs(options, some), [WITHIN]),
        )
        options = with_pairs(options, tables)
        ids = {"id", "left_id", "right_id"} & set(options)
        numbered = self.names_rows and not ids and not self.selects_rows
        files = list(tables)
        if numbered:
            tables = [
                one if ROW_ID in one.columns else one.simjoin.with_row_id()
                for one in tables
            ]
            options["id"] = ROW_ID
        if TABLE in options:
            options[TABLE] = tables[1]
        if self._takes_texts(tables, options):
            options["tokenizer"] = DEFAULT_TOKENIZER
            self.say("Texts are compared by their words: --tokenizer words.")
        with columns_of_files(files, self.reader, self.read_from):
            return tables[0], self.verb.function(tables[0], **options)

    def _takes_texts(self, tables: list[Frame], options: dict[str, Any]) -> bool:
        """Return whether the column of sets holds texts, but the command line names no
        tokenizer.
        """
        if not hasattr(self.verb.request, "tokenizer") or "tokenizer" in options:
            return False
        both = options.get("on")
        columns = [options.get("left_on", both), options.get("right_on", both)]
        contents = [
            content_of(table[column].dtype)
            for table, column in zip(tables, columns, strict=False)
            if isinstance(column, str) and column in table.columns
        ]
        return TEXTS in contents

    def computing(self) -> contextlib.AbstractContextManager[Client | None]:
        how = [self.params[name] for name in COMPUTING]
        if starts_workers(*how[:3]):
            self.say("Starting workers.")
        return computing(*how)

    def say(self, text: object) -> None:
        """Print text to the standard error stream, unless the command is quiet."""
        if not self.quiet:
            click.echo(text, err=True)


def _run(run: Run) -> None:
    does = _show_plan if run.verb.output == "plan" else _compute
    check_bad_rows(run.params, [*run.params["tables"], *run.options.get(TABLE, ())])
    with log_lines(run.params["verbose"], run.quiet), naming_places(run.reader):
        run.reader.until_wide_enough(lambda: does(run), run.say)


def _show_plan(run: Run) -> None:
    with run.computing() as client, stage("planning", client, run.quiet):
        _, plan = run.result()
    left_out = [*zip(run.read_from, plan.plan.tables.left_out, strict=False)]
    summary = {"command": run.name, "plan": plan.to_dict()}
    summary |= bad_row_counts(run.params, run.reader, left_out)
    _print(run.params["json"], summary, plan)


def bad_row_counts(
    params: dict[str, Any],
    reader: TableReader,
    left_out: Iterable[tuple[Sequence[str], LeftOut]],
) -> dict[str, int]:
    """Write the bad rows and the rows that cannot be compared to the file of
    --bad-rows, say how many bad rows there are, and return their number for --json.

    `left_out`: for each table, its paths and the rows that cannot be compared.
    """
    if not reader.written.skips:
        return {}
    rows = reader.bad_rows()
    if params["bad_rows"] != SKIP:
        others = [row for one in left_out for row in reader.left_out_rows(*one)]
        write_bad_rows(params["bad_rows"], in_file_order([*rows, *others]))
    if rows and not params["quiet"]:
        first = rows[0]
        click.echo(
            f"Left out {counted(len(rows), 'bad row')}; the first is in {first.place}: "
            f"{first.reason}.",
            err=True,
        )
    return {"bad_rows": len(rows)}


JOIN_ALONE = (
    "Planning took {}. The time in the plan is for the join alone. The join reads the "
    "tables again, moves rows between workers, writes files, and compiles kernels at "
    "their first use."
)


def _compute(run: Run) -> None:
    params = run.params
    begin = click.get_current_context().obj or time.perf_counter()
    table = OUTPUT_ACTIONS[run.verb.output].table
    read_from = [*params["tables"], *run.options.get(TABLE, ())]
    target = sink(params, read_from) if table else None
    summary: dict[str, Any] = {"command": run.name}
    with contextlib.ExitStack() as stack:
        begun = stack.enter_context(target.made()) if target else ""
        with run.computing() as client:
            if client is not None and importlib.util.find_spec("bokeh") is not None:
                run.say(f"Dashboard: {client.dashboard_link}")
            with stage("planning", client, run.quiet):
                before = time.perf_counter()
                frame, result = run.result()
                join = lazy_joins(result)[0]
                plan = join.report
                planned = time.perf_counter() - before
            # a log is for what happened: `dask-simjoin plan` and --json have the plan
            if on_terminal():
                run.say(plan)
            for files, rows in zip(run.read_from, plan.plan.tables.rows, strict=False):
                if not rows:
                    run.say(no_rows(files, "compare"))
            if on_terminal() and getattr(plan, "seconds", None) is not None:
                run.say(JOIN_ALONE.format(format_time(planned)))
            confirm_large(plan, params["yes"], run.verb.output == "pairs")
            with stage("joining", client, run.quiet, lambda: _rows(join)):
                if target is None or table is None:
                    summary["number"] = _plain(result.compute())
                else:
                    target.write(table(frame, result), begun, _types(run))
            report = RUNS.find(join.named.name)
        if target is not None:
            rows = _rows_written(run, target, begun, report)
            target.finish(begun)
            summary |= {"output": target.path, "rows_written": rows}
    tables = plan.plan.tables.left_out
    listed = zip(run.read_from, tables, strict=False)
    summary |= bad_row_counts(params, run.reader, listed)
    written = summary.get("rows_written") if run.verb.output == "pairs" else None
    told = _report(report, written) if report else None
    summary |= {"plan": plan.to_dict(), "report": told}
    summary["rows_left_out"] = plan.rows_left_out
    summary["seconds"] = round(time.perf_counter() - begin, 3)
    _print(params["json"], summary, summary.get("number"))
    if target is not None:
        size = "" if rows is None else f"{counted(rows, 'row')} to "
        if run.verb.output == "rows":
            every = sum(t.table_rows for t in tables) if tables else plan.rows
            size = f"{rows:,} of {counted(every, 'row')} to "
        text = f"Wrote {size}{target.name} in {summary['seconds']:.1f} s"
        text += ", part of it to compile kernels" * compiled_here()
        run.say(f"{'; '.join([text, *_left_out(run, tables)])}.")
    elif plan.rows_left_out:
        text = "; ".join(_left_out(run, tables))
        run.say(f"{text[0].upper()}{text[1:]}.")


def _types(run: Run) -> Mapping[str, pa.DataType]:
    """Return the Arrow types of columns that the result has from Parquet tables."""
    own, other = (run.reader.types(tables) for tables in run.read_from)
    options = run.options
    if run.verb.output != "pairs" or run.selects_rows:
        return own
    found: dict[str, pa.DataType] = {}
    suffixes = options.get("suffixes", run.verb.request.suffixes)
    for side, types, end in zip(("left", "right"), (own, other), suffixes, strict=True):
        ids = options.get(f"{side}_id", options.get("id"))
        found |= {f"{name}{end}": kind for name, kind in types.items()}
        if ids in types:
            found[side] = types[ids]
    return found


def _left_out(run: Run, tables: Sequence[LeftOut]) -> list[str]:
    """Describe the rows that were not compared, and whether the output has them."""
    how = run.options.get("how")
    kept = KEEPS.get(how, ())
    if run.verb.output in ("rows", "values") or how == ANTI:
        kept = ("", "left")
    texts = []
    for which, table in named_tables(tables):
        verb = "kept, but not compared," if which in kept else "left out"
        texts.append(f"{verb} {table.in_words(which)}")
    return texts


def _rows_written(
    run: Run, target: OutputWriter, begun: str, report: RunReport | None
) -> int | None:
    """Return the number of written rows; None for CSV files with the rows of the table.

    CSV files are read again, unless the join has counted its rows.
    """
    joined = run.verb.output == "pairs"
    known = report.rows if joined and report is not None and report.done else None
    count = known is None and run.verb.output != "values"
    rows = target.rows(begun, count)
    return known if rows is None else rows


def _report(report: RunReport, rows: int | None) -> dict[str, Any]:
    """Return a report for --json. `rows`: the number of written pairs, which may differ
    from the number that the join found; None: unknown.
    """
    found = report.to_dict()
    if rows is not None:
        size = 0 if report.rows is None else round(rows * report.plan.pair_bytes)
        found |= {"rows": rows, "bytes": size}
    return found


def _rows(join: LazyJoin) -> int | None:
    report = RUNS.find(join.named.name)
    return None if report is None else report.rows


def _plain(number: Any) -> int | dict[str, int]:
    """Convert a number, or a dict of numbers by name, to types that JSON supports."""
    if not hasattr(number, "items"):
        return int(number)
    return {_shown(name): int(value) for name, value in number.items()}


def _print(as_json: bool, summary: dict[str, Any], text: object) -> None:
    if as_json:
        click.echo(json.dumps(summary, default=float))
    elif isinstance(text, dict):
        click.echo("\n".join(f"{name}\t{value}" for name, value in text.items()))
    elif text is not None:
        click.echo(text)


def no_rows(tables: Sequence[str], use: str) -> str:
    """Return a sentence about tables without rows; `use`: what rows are for."""
    files = "this file" if len(tables) == 1 else "these files"
    return (
        f"There are no rows to {use} in {' and '.join(tables)}. If you expected rows, "
        f"check {files}."
    )
