"""Make the commands: one per verb, and those of an index on disk."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import pandas as pd
from distributed import Client

from dask_simjoin.api.verbs import VERBS, Output, Verb
from dask_simjoin.cli.options import SHARED, TABLE, WRITTEN, Names, OneOf, given, log_lines, options_for
from dask_simjoin.cli.outputs import sink
from dask_simjoin.cli.running import agree, computing, stage
from dask_simjoin.cli.sources import read
from dask_simjoin.disk_index.checking import check_index
from dask_simjoin.disk_index.index import Index
from dask_simjoin.disk_index.making import open_index
from dask_simjoin.disk_index.reports import CheckReport
from dask_simjoin.disk_index.requests import IF_EXISTS, check_path
from dask_simjoin.graph.base import NEIGHBORS
from dask_simjoin.graph.lazy_join import LazyJoin
from dask_simjoin.graph.records import RUNS
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.columns import ROW_ID
from dask_simjoin.request.requests import ANTI, SEMI


@dataclass(frozen=True)
class Gives:
    """What is done with the result of a verb.

    Attributes
    ----------
    about : str
        What the command writes or prints, for its help.
    table : callable or None
        Makes of the frame and the result what is written; None: the result is printed.
    """

    about: str
    table: Callable[[Frame, Any], Frame] | None


def _with_columns(frame: Frame, values: Any) -> Frame:
    """The frame with values of its rows as further columns; refuses to replace some that it has."""
    told = [values.name] if values.ndim == 1 else list(values.columns)
    # those of several distances are called as the distances are
    names = {name: name if isinstance(name, str) else f"{NEIGHBORS}_{name}" for name in told}
    there = [name for name in names.values() if name in frame.columns]
    if there:
        raise click.UsageError(
            f"The table has a column {there[0]!r} already, which the command's own would replace; rename it."
        )
    if values.ndim == 1:
        return frame.assign(**{values.name: values})
    return frame.assign(**{names[name]: values[name] for name in names})


def _as_it_is(frame: Frame, result: Frame) -> Frame:
    return result


GIVES: dict[Output, Gives] = {
    "pairs": Gives("Writes the rows that the verb gives.", _as_it_is),
    "rows": Gives("Writes the table's rows that stay.", _as_it_is),
    "values": Gives("Writes the table's rows with further columns.", _with_columns),
    "number": Gives("Prints a number, or one for each of several distances.", None),
    "plan": Gives("Prints the plan, and computes nothing else.", None),
}


class VerbCommand(click.Command):
    """The command of a verb, whose options are those of the verb's request."""

    def __init__(self, name: str, verb: Verb) -> None:
        self.verb, self.request = verb, verb.request
        gives = GIVES[verb.output]
        text = (inspect.getdoc(verb.function) or "").partition("\n")[0].replace("`", "")
        tables = click.Argument(["tables"], nargs=-1, required=True, type=click.Path())
        super().__init__(
            name,
            params=[tables, *options_for(self.request), *(WRITTEN if gives.table else []), *SHARED],
            callback=self._called,
            help=f"{text}\n\n{gives.about}",
            short_help=text,
        )

    def _called(self, **params: Any) -> None:
        asked = given(click.get_current_context(), self.request)
        named = getattr(self.request, "names_rows", False)
        _run(Run(str(self.name), self.verb, asked, named, params))


@dataclass(frozen=True)
class Run:
    """A command with what it was given.

    Attributes
    ----------
    name : str
    verb : Verb
    asked : dict
        The verb's options.
    named : bool
        Whether the result names rows.
    params : dict
        All words of the command line, by name.
    """

    name: str
    verb: Verb
    asked: dict[str, Any]
    named: bool
    params: dict[str, Any]

    @property
    def quiet(self) -> bool:
        """Whether nothing but the result and errors is told."""
        return bool(self.params["quiet"])

    def result(self) -> tuple[Frame, Any]:
        """The frame, and what the verb makes of it; plans are made at once, the others are lazy."""
        kind, asked = self.params["input_format"], dict(self.asked)
        tables = [read(self.params["tables"], kind)]
        if TABLE in asked:
            tables.append(read(asked[TABLE], kind))
        ids = {"id", "left_id", "right_id"} & set(asked)
        if self.named and not ids and asked.get("how") not in (SEMI, ANTI):
            tables = [one if ROW_ID in one.columns else one.simjoin.with_row_id() for one in tables]
            asked["id"] = ROW_ID
        if TABLE in asked:
            asked[TABLE] = tables[1]
        return tables[0], self.verb.function(tables[0], **asked)

    def computing(self) -> contextlib.AbstractContextManager[Client | None]:
        """What computes, as long as it lasts."""
        return computing(*(self.params[name] for name in ("scheduler", "workers", "memory_limit", "backend")))

    def say(self, text: object) -> None:
        """Tell people something."""
        if not self.quiet:
            click.echo(text, err=True)


def _run(run: Run) -> None:
    with log_lines(run.params["verbose"]):
        if run.verb.output == "plan":
            _show_plan(run)
        else:
            _compute(run)


def _show_plan(run: Run) -> None:
    with run.computing() as client, stage("planning", client, run.quiet):
        _, plan = run.result()
    _print(run.params["json"], {"command": run.name, "plan": plan.to_dict()}, plan)


def _compute(run: Run) -> None:
    params, begin = run.params, time.perf_counter()
    table = GIVES[run.verb.output].table
    read_from = [*params["tables"], *run.asked.get(TABLE, ())]
    target = sink(params, read_from) if table else None
    told: dict[str, Any] = {"command": run.name}
    with contextlib.ExitStack() as stack:
        begun = stack.enter_context(target.made()) if target else ""
        with run.computing() as client:
            if client is not None and importlib.util.find_spec("bokeh") is not None:
                run.say(f"Dashboard: {client.dashboard_link}")
            with stage("planning", client, run.quiet):
                frame, result = run.result()
                join = next(result.expr.find_operations(LazyJoin))
                plan = join.report
            run.say(plan)
            agree(plan, params["yes"], run.verb.output == "pairs")
            with stage("joining", client, run.quiet, lambda: _rows(join)):
                if target is None or table is None:
                    told["number"] = _plain(result.compute())
                else:
                    target.write(table(frame, result), begun)
            did = RUNS.find(join.named.name)
        if target is not None:
            target.finish(begun)
            told["output"] = target.path
    told |= {"plan": plan.to_dict(), "report": did.to_dict() if did else None}
    told["seconds"] = round(time.perf_counter() - begin, 3)
    _print(params["json"], told, told.get("number"))
    if target is not None:
        run.say(f"Wrote {params['output']} in {told['seconds']:.1f} s.")


def _rows(join: LazyJoin) -> int | None:
    """Rows that a join has found so far, if it tells of rows."""
    told = RUNS.find(join.named.name)
    return None if told is None else told.rows


def _plain(number: Any) -> int | dict[str, int]:
    """A number, or several by name, as JSON has them."""
    if not hasattr(number, "items"):
        return int(number)
    return {str(name): int(value) for name, value in number.items()}


def _print(as_json: bool, told: dict[str, Any], text: object) -> None:
    """Print what scripts read, or what people do."""
    if as_json:
        click.echo(json.dumps(told, default=float))
    elif isinstance(text, dict):
        click.echo("\n".join(f"{name}\t{value}" for name, value in text.items()))
    elif text is not None:
        click.echo(text)


TABLES = click.Argument(["tables"], nargs=-1, required=True, type=click.Path())
FOLDER = click.Argument(["folder"], type=click.Path())
UNTIL = click.Option(["--until"], type=int, help="The last version that is compared; default: the newest.")
SINCE = click.Option(["--since"], type=int, required=True, help="The version that changes are told from.")
UPDATE = [
    click.Option(["--delete"], type=Names(), default="", help="Ids of rows that go."),
    click.Option(["--if-exists"], type=OneOf(IF_EXISTS), default=IF_EXISTS[0], show_default=True,
                 help="What to do with rows whose ids the index has."),
    click.Option(["--batch"], help="A name of this update: one that was taken in is not taken in again."),
]  # fmt: skip
DAMAGED = 1
"""The exit code of a check that found damage."""

TELLING = [option for option in SHARED if option.name != "yes"]


class MakeCommand(click.Command):
    """Write tables as an index, whose options are those of its request."""

    def __init__(self) -> None:
        self.verb = VERBS["index"]
        self.request = self.verb.request
        super().__init__(
            "make", params=[TABLES, *options_for(self.request), *TELLING], callback=self._called,
            help="Write tables to disk as an index that grows.",
        )  # fmt: skip

    def _called(self, **params: Any) -> None:
        asked = given(click.get_current_context(), self.request)
        if "id" not in asked:
            raise click.UsageError("--id is missing: rows of an index are known by an id that lasts.")

        def make() -> Index:
            made: Index = self.verb.function(read(params["tables"], params["input_format"]), **asked)
            return made

        made = _done(params, "indexing", make)
        _tell(params, {"command": "index make", "path": str(made.path), "rows": len(made)}, made)


def _update(**params: Any) -> None:
    found = open_index(params["folder"])
    ids = found.rows()._meta.iloc[:, 0].dtype
    delete = pd.Series(params["delete"]).astype(ids) if params["delete"] else None
    target = sink(params, params["tables"], params["folder"])

    def update() -> Any:
        new = read(params["tables"], params["input_format"])
        return found.update(new, delete=delete, if_exists=params["if_exists"], batch=params["batch"])

    with target.made() as begun:
        changes = _done(params, "updating", update)
        pairs = found.changes(changes.since, changes.version)
        _done(params, "joining", lambda: target.write(pairs, begun))
        target.finish(begun)
    numbers = {"since": changes.since, "version": changes.version, **changes.report.numbers}
    _tell(params, {"command": "index update", "output": target.path, **numbers}, changes.report)


def _pairs(**params: Any) -> None:
    _write("index pairs", params, lambda found: found.pairs())


def _changes(**params: Any) -> None:
    _write("index changes", params, lambda found: found.changes(params["since"], params["until"]))


def _write(name: str, params: dict[str, Any], pairs: Callable[[Index], Frame]) -> None:
    found = open_index(params["folder"])
    target = sink(params, [params["folder"]], params["folder"])
    with target.made() as begun:
        _done(params, "joining", lambda: target.write(pairs(found), begun))
        target.finish(begun)
    _tell(
        params,
        {"command": name, "output": target.path, "version": found.version},
        f"Wrote {params['output']}.",
    )


def _history(**params: Any) -> None:
    told = open_index(params["folder"]).history()
    records = told.reset_index().to_json(orient="records", date_format="iso")
    click.echo(records if params["json"] else told.to_string())


def _check(**params: Any) -> None:
    found: CheckReport = _done(params, "checking", lambda: check_index(check_path(params["folder"])))
    if params["json"]:
        click.echo(json.dumps(found.numbers | {"damage": [one._asdict() for one in found.damage]}))
    elif found.damaged or not params["quiet"]:
        click.echo(found)
    if found.damaged:
        click.get_current_context().exit(DAMAGED)


def _done(params: dict[str, Any], title: str, work: Callable[[], Any]) -> Any:
    """Do what computes, and tell how far it is."""
    how = (params[name] for name in ("scheduler", "workers", "memory_limit", "backend"))
    with log_lines(params["verbose"]), computing(*how) as client, stage(title, client, params["quiet"]):
        return work()


def _tell(params: dict[str, Any], told: dict[str, Any], text: object) -> None:
    if params["json"]:
        click.echo(json.dumps(told, default=str))
    elif not params["quiet"]:
        click.echo(text, err=True)


def _command(name: str, does: Callable[..., None], text: str, params: list[click.Parameter]) -> click.Command:
    return click.Command(name, params=[FOLDER, *params, *TELLING], callback=does, help=text)


indexes = click.Group(
    "index",
    short_help="Tables that grow: an index on disk, and pairs that changed.",
    help="Keep tables that grow as an index on disk, and tell which pairs change.",
)
for _made in (
    MakeCommand(),
    _command("update", _update, "Take rows in, let others go, and write the pairs that came and went.",
             [TABLES, *UPDATE, *WRITTEN]),
    _command("pairs", _pairs, "Write all pairs of the rows of an index.", [*WRITTEN]),
    _command("changes", _changes, "Write the pairs that came and went between two versions.",
             [SINCE, UNTIL, *WRITTEN]),
    _command("history", _history, "Print the versions of an index.", []),
    _command("check", _check, "Read all files of an index; exit with 1 if some are damaged or missing.", []),
):  # fmt: skip
    indexes.add_command(_made)
