"""Commands of tables that grow: make an index on disk, take rows in, write what changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
import pandas as pd

from dask_simjoin.api.cli.options import given, options_for
from dask_simjoin.api.cli.progress import stage
from dask_simjoin.api.cli.running import computing
from dask_simjoin.api.cli.shared import SHARED, WRITTEN
from dask_simjoin.api.cli.sinks import sink
from dask_simjoin.api.cli.sources import read
from dask_simjoin.api.cli.talk import log_lines
from dask_simjoin.api.cli.values import Names, OneOf
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.incremental.checking import Check, check_index
from dask_simjoin.incremental.index import Index
from dask_simjoin.incremental.making import open_index
from dask_simjoin.incremental.requests import IF_EXISTS, check_path
from dask_simjoin.metrics.types import Frame

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
        self.verb, self.request = "index", VERBS["index"].request
        super().__init__(
            "make", params=[TABLES, *options_for(self.request), *TELLING], callback=self._called,
            help="Write tables to disk as an index that grows.",
        )  # fmt: skip

    def _called(self, **params: Any) -> None:
        asked = given(click.get_current_context(), self.request)
        if "id" not in asked:
            raise click.UsageError("--id is missing: rows of an index are known by an id that lasts.")

        def make() -> Index:
            made: Index = VERBS[self.verb].function(read(params["tables"], params["input_format"]), **asked)
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
    found: Check = _done(params, "checking", lambda: check_index(check_path(params["folder"])))
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
