"""The commands of the verbs, and the commands of an index on disk."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import pandas as pd
import pyarrow as pa
from dask.utils import format_time
from distributed import Client

from dask_simjoin.api.verbs import VERBS, Output, Verb
from dask_simjoin.calls.examples import NEIGHBORS
from dask_simjoin.cli.csv_types import BOOL, FLOAT, INT, TEXT, UINT, CsvColumns
from dask_simjoin.cli.messages import (
    NamedCommands,
    columns_of_files,
    in_words,
    listing_columns,
    naming_places,
    options_of_command,
)
from dask_simjoin.cli.options import (
    NAMES,
    READ,
    SHARED,
    TABLE,
    WRITTEN,
    OneOf,
    csv_columns,
    flag,
    given,
    log_lines,
    options_for,
    table_reader,
)
from dask_simjoin.cli.running import (
    computing,
    confirm_large,
    stage,
    starts_workers,
)
from dask_simjoin.cli.sources import SKIP, TableReader
from dask_simjoin.cli.tables import (
    check_bad_rows,
    is_on_store,
    sink,
    write_bad_rows,
)
from dask_simjoin.disk_index.index import DIFF, Index
from dask_simjoin.disk_index.reports import CheckReport, UpdateReport
from dask_simjoin.disk_index.updates import IF_EXISTS
from dask_simjoin.disk_index.verbs import check_path, open_index
from dask_simjoin.disk_index.versions import check_index
from dask_simjoin.graph.lazy_join import LazyJoin
from dask_simjoin.graph.records import RUNS
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.left_out import LeftOut, named_tables
from dask_simjoin.reports.run import RunReport
from dask_simjoin.request.columns import ROW_ID
from dask_simjoin.request.messages import NO_OPTIONS, OPTIONS, counted
from dask_simjoin.request.requests import ANTI, LEFT, SEMI
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
        text = (inspect.getdoc(verb.function) or "").partition("\n")[0].replace("`", "")
        text = text.replace(
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
                hint = f": {in_words(NO_OPTIONS[other], names).rstrip(';,.')}."
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
        compares_texts = not hasattr(self.verb.request, "metric")
        own = csv_columns(options, whole, compares_texts, "right_")
        tables = [self.reader.read(self.params["tables"], own)]
        if TABLE in options:
            other = csv_columns(options, whole, compares_texts, "left_")
            tables.append(self.reader.read(options[TABLE], other))
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
        with columns_of_files(files):
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
    with log_lines(run.params["verbose"]), naming_places(run.reader):
        run.reader.until_wide_enough(lambda: does(run), run.say)


def _show_plan(run: Run) -> None:
    with run.computing() as client, stage("planning", client, run.quiet):
        _, plan = run.result()
    summary = {"command": run.name, "plan": plan.to_dict()}
    _print(run.params["json"], summary | _bad_rows(run.params, run.reader), plan)


def _bad_rows(params: dict[str, Any], reader: TableReader) -> dict[str, int]:
    """Write the bad rows to the file of --bad-rows, say how many there are, and return
    their number for --json.
    """
    if not reader.written.skips:
        return {}
    rows = reader.bad_rows()
    if params["bad_rows"] != SKIP:
        write_bad_rows(params["bad_rows"], rows)
    if rows and not params["quiet"]:
        first = rows[0]
        click.echo(
            f"Left out {counted(len(rows), 'bad row')}; the first is in {first.file}, "
            f"line {first.line}: {first.reason}.",
            err=True,
        )
    return {"bad_rows": len(rows)}


JOIN_ALONE = (
    "Planning took {}. The time in the plan is for the join alone. The join reads the "
    "tables again, moves rows between workers, writes files, and compiles kernels at "
    "their first use."
)


def _compute(run: Run) -> None:
    params, begin = run.params, time.perf_counter()
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
                join = next(result.expr.find_operations(LazyJoin))
                plan = join.report
                planned = time.perf_counter() - before
            run.say(plan)
            for files, rows in zip(run.read_from, plan.plan.tables.rows, strict=False):
                if not rows:
                    run.say(_no_rows(files, "compare"))
            if getattr(plan, "seconds", None) is not None:
                run.say(JOIN_ALONE.format(format_time(planned)))
            confirm_large(plan, params["yes"], run.verb.output == "pairs")
            with stage("joining", client, run.quiet, lambda: _rows(join)):
                if target is None or table is None:
                    summary["number"] = _plain(result.compute())
                else:
                    target.write(table(frame, result), begun, _types(run))
            report = RUNS.find(join.named.name)
        if target is not None:
            rows = _rows_written(
                run, target.rows(begun, run.verb.output == "rows"), report
            )
            target.finish(begun)
            summary |= {"output": target.path, "rows_written": rows}
    tables = plan.plan.tables.left_out
    summary |= _bad_rows(params, run.reader)
    summary |= {"plan": plan.to_dict(), "report": report.to_dict() if report else None}
    summary["rows_left_out"] = plan.rows_left_out
    summary["seconds"] = round(time.perf_counter() - begin, 3)
    _print(params["json"], summary, summary.get("number"))
    if target is not None:
        size = "" if rows is None else f"{counted(rows, 'row')} to "
        if run.verb.output == "rows":
            every = sum(t.table_rows for t in tables) if tables else plan.rows
            size = f"{rows:,} of {counted(every, 'row')} to "
        text = f"Wrote {size}{target.name} in {summary['seconds']:.1f} s"
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
    kept = run.verb.output in ("rows", "values") or run.options.get("how") in KEEPING
    texts = []
    for which, table in named_tables(tables):
        stays = kept and which != "right"
        verb = "kept, but not compared," if stays else "left out"
        texts.append(f"{verb} {table.in_words(which)}")
    return texts


KEEPING = (LEFT, ANTI)
"""With these values of `how`, the output keeps left rows that cannot be compared."""

SELECTING = ("mutual", "n")
"""Options that drop pairs from the join's result. Then fewer rows are written than the
join counts.
"""


def _rows_written(run: Run, rows: int | None, report: RunReport | None) -> int | None:
    """Return the number of written rows.

    `rows`: the number of rows in the files; None: use the join's count if it is the
    same.
    """
    joined = run.verb.output == "pairs" and not any(
        run.options.get(name) for name in SELECTING
    )
    return (
        report.rows
        if rows is None and joined and report is not None and report.done
        else rows
    )


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


TABLES = click.Argument(["tables"], nargs=-1, required=True, type=click.Path())
NEW_ROWS = click.Argument(["tables"], nargs=-1, type=click.Path())
FOLDER = click.Argument(["folder"], type=click.Path())
UNTIL = click.Option(
    ["--until"], type=int, help="Last version to compare; default: the newest version."
)
SINCE = click.Option(
    ["--since"], type=int, required=True, help="First version to compare."
)
UPDATE = [
    click.Option(
        ["--delete"],
        type=NAMES,
        default="",
        help="Ids of rows to delete, separated by commas; TABLES may then be left out.",
    ),
    click.Option(
        ["--if-exists"],
        type=OneOf(IF_EXISTS),
        default=IF_EXISTS[0],
        show_default=True,
        help="Treatment of new rows whose ids are already in the index.",
    ),
    click.Option(
        ["--dropna"],
        is_flag=True,
        help="Leave out new rows with missing or infinite coordinates, also if the index was made without "
        "--dropna.",
    ),
    click.Option(
        ["--batch"],
        help="Name of this update. If it was committed before, nothing changes.",
    ),
]
INFINITE = [float("inf"), float("-inf")]

DAMAGED = 1
"""Exit code of a check that found damage."""

REPORTING = [option for option in SHARED if option.name != "yes"]


class MakeCommand(click.Command):
    """The command that writes tables as an index. Its options are in the request of the
    verb `index`.
    """

    def __init__(self) -> None:
        self.verb = VERBS["index"]
        self.request = self.verb.request
        super().__init__(
            "make",
            params=[TABLES, *options_for(self.request), *READ, *REPORTING],
            callback=self._called,
            help="Write tables to disk as an index that can be updated.",
        )

    def _called(self, **params: Any) -> None:
        options = given(click.get_current_context(), self.request)
        if "id" not in options:
            raise click.UsageError(
                "--id is missing: an index needs a column of permanent row ids."
            )

        reader = table_reader(params)
        check_bad_rows(params, params["tables"])

        def make(whole: bool) -> Index:
            table = reader.read(params["tables"], csv_columns(options, whole, False))
            with columns_of_files([table]):
                made: Index = self.verb.function(table, **options)
            return made

        with naming_places(reader):
            made = reader.until_wide_enough(
                lambda: _done(params, "indexing", lambda: listing_columns(make, False)),
                lambda text: None if params["quiet"] else click.echo(text, err=True),
            )
        if not len(made) and not params["quiet"]:
            click.echo(_no_rows(params["tables"], "add"), err=True)
        summary = {"command": "index make", "path": str(made.path), "rows": len(made)}
        _report(params, summary | _bad_rows(params, reader), made)


def _csv_type(dtype: Any) -> str:
    """Return the type of a CSV column for a column of an index."""
    kinds = {"b": BOOL, "i": INT, "u": UINT, "f": FLOAT}
    return kinds.get(getattr(dtype, "kind", "O"), TEXT)


def _update(**params: Any) -> None:
    if not params["tables"] and not params["delete"]:
        raise click.UsageError(
            "There is nothing to update: name TABLES with new rows, or ids with "
            "--delete."
        )
    found = open_index(params["folder"])
    dtypes = found.rows()._meta.dtypes
    ids = dtypes.iloc[0]
    types = {name: _csv_type(dtype) for name, dtype in dtypes.items()}
    on = list(found.options.on)
    gaps = frozenset(name for name in on if types[name] in (INT, UINT))
    read = frozenset(types)
    columns = CsvColumns(frozenset(), read=read, types=types, gaps=gaps)
    dropna = params["dropna"] or found.options.dropna
    reader = table_reader(params)
    try:
        delete = pd.Series(params["delete"]).astype(ids) if params["delete"] else None
    except (ValueError, TypeError) as error:
        raise click.UsageError(
            f"--delete takes ids of the index, which are {ids}, separated by commas: "
            f"{error}."
        ) from error
    target = sink(params, params["tables"], params["folder"])
    check_bad_rows(params, params["tables"])
    own = {name: dtypes[name] for name in gaps}
    dropped = 0

    def update() -> Any:
        nonlocal dropped
        new = reader.read(params["tables"], columns) if params["tables"] else None
        if new is not None and dropna:
            rows = len(new)
            new = new.map_partitions(_with_coordinates, on, meta=new._meta)
            dropped = rows - len(new)
        if new is not None:
            new = new.map_partitions(
                _without_gaps, own, meta=_without_gaps(new._meta, own)
            )
        return found.update(
            new, delete=delete, if_exists=params["if_exists"], batch=params["batch"]
        )

    with target.made() as begun:
        with naming_places(reader):
            changes = _done(params, "updating", update)
        pairs = found.changes(changes.since, changes.version)
        _done(params, "joining", lambda: target.write(pairs, begun))
        signs = target.tally(begun, DIFF)
        target.finish(begun)
    added, removed = signs[1], signs[-1]
    numbers = {
        "since": changes.since,
        "version": changes.version,
        **changes.report.numbers,
        **_bad_rows(params, reader),
        **({"dropped": dropped} if dropna else {}),
    }
    numbers |= {"pairs_added": added, "pairs_removed": removed}
    pairs_written = (
        f"{counted(added, 'added pair')} and {counted(removed, 'removed pair')}"
    )
    lines = [str(changes.report)]
    if dropped:
        lines.append(f"Left out {counted(dropped, 'row')} without coordinates.")
    if changes.report.known:
        lines = [
            f"Batch {params['batch']!r} was committed before, so the index did not "
            "change.",
            f"Wrote the changes of this batch again to {target.name}: {pairs_written}.",
        ]
    else:
        if params["tables"] and not _rows_of(changes.report) + dropped:
            lines.append(_no_rows(params["tables"], "add"))
        lines.append(f"Wrote {pairs_written} to {target.name}.")
    _report(
        params,
        {"command": "index update", "output": target.path, **numbers},
        "\n".join(lines),
    )


def _rows_of(report: UpdateReport) -> int:
    """Return the number of rows in the tables of an update."""
    return report.inserted + report.replaced + report.ignored + report.left_out


def _no_rows(tables: Sequence[str], use: str) -> str:
    """Return a sentence about tables without rows; `use`: what rows are for."""
    return f"There are no rows to {use} in {' and '.join(tables)}."


def _with_coordinates(rows: Any, on: list[str]) -> Any:
    """Return the rows with finite coordinates, in columns or in a column of lists."""
    points = rows[on]
    if len(on) == 1 and points.dtypes.iloc[0].name == "object":
        return rows[rows[on[0]].map(_is_finite).astype(bool)]
    return rows[points.notna().all(axis=1) & ~points.isin(INFINITE).any(axis=1)]


def _without_gaps(rows: Any, dtypes: Mapping[str, Any]) -> Any:
    """Give columns of nullable integers the dtypes of the index. Missing integers
    become NaN, which the index refuses.
    """
    nullable = [
        name for name in dtypes if name in rows and rows[name].dtype.kind in "iu"
    ]
    return rows.astype(
        {
            name: "float64" if rows[name].isna().any() else dtypes[name]
            for name in nullable
        }
    )


def _is_finite(numbers: Any) -> bool:
    return numbers is not None and bool(np.isfinite(np.asarray(numbers, float)).all())


def _pairs(**params: Any) -> None:
    _write("index pairs", params, lambda found: found.pairs())


def _changes(**params: Any) -> None:
    _write(
        "index changes",
        params,
        lambda found: found.changes(params["since"], params["until"]),
    )


def _write(name: str, params: dict[str, Any], pairs: Callable[[Index], Frame]) -> None:
    folder = params["folder"]
    found = open_index(folder)
    target = sink(params, [] if is_on_store(folder) else [folder], folder)
    with target.made() as begun:
        _done(params, "joining", lambda: target.write(pairs(found), begun))
        target.finish(begun)
    _report(
        params,
        {"command": name, "output": target.path, "version": found.version},
        f"Wrote {target.name}.",
    )


def _history(**params: Any) -> None:
    history = open_index(params["folder"]).history()
    records = history.reset_index().to_json(orient="records", date_format="iso")
    click.echo(records if params["json"] else history.to_string())


def _check(**params: Any) -> None:
    found: CheckReport = _done(
        params, "checking", lambda: check_index(check_path(params["folder"]))
    )
    if params["json"]:
        click.echo(
            json.dumps(
                found.numbers | {"damage": [one._asdict() for one in found.damage]}
            )
        )
    elif found.damaged or not params["quiet"]:
        click.echo(found)
    if found.damaged:
        click.get_current_context().exit(DAMAGED)


def _done(params: dict[str, Any], title: str, work: Callable[[], Any]) -> Any:
    how = (params[name] for name in COMPUTING)
    with (
        log_lines(params["verbose"]),
        computing(*how) as client,
        stage(title, client, params["quiet"]),
    ):
        return work()


def _report(params: dict[str, Any], summary: dict[str, Any], text: object) -> None:
    if params["json"]:
        click.echo(json.dumps(summary, default=str))
    elif not params["quiet"]:
        click.echo(text, err=True)


def _command(
    name: str, does: Callable[..., None], text: str, params: list[click.Parameter]
) -> click.Command:
    return click.Command(
        name, params=[FOLDER, *params, *REPORTING], callback=does, help=text
    )


indexes = NamedCommands(
    "index",
    short_help="An index on disk: updates, and the pairs that they change.",
    help="Keep growing tables as an index on disk, and write the pairs that change.",
)
for _made in (
    MakeCommand(),
    _command(
        "update",
        _update,
        "Add and delete rows, and write the added and removed pairs.",
        [NEW_ROWS, *UPDATE, *WRITTEN, *READ],
    ),
    _command("pairs", _pairs, "Write all pairs of an index.", [*WRITTEN]),
    _command(
        "changes",
        _changes,
        "Write the pairs that were added or removed between two versions.",
        [SINCE, UNTIL, *WRITTEN],
    ),
    _command("history", _history, "Print the versions of an index.", []),
    _command(
        "check",
        _check,
        "Check all files of an index; exit with 1 if one is damaged or missing.",
        [],
    ),
):
    indexes.add_command(_made)
