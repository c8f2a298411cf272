"""The commands that make, change and read an index."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import click
import pandas as pd

from dask_simjoin.api.verbs import VERBS
from dask_simjoin.cli.commands import COMPUTING, bad_row_counts, no_rows
from dask_simjoin.cli.csv_types import BOOL, FLOAT, INT, TEXT, UINT, CsvColumns
from dask_simjoin.cli.left_out import left_out_of_frame, with_coordinates
from dask_simjoin.cli.messages import (
    NamedCommands,
    columns_of_files,
    listing_columns,
    naming_places,
)
from dask_simjoin.cli.options import (
    NAMES,
    READ,
    SHARED,
    WRITTEN,
    OneOf,
    csv_columns,
    given,
    log_lines,
    options_for,
    ranges_of,
    table_reader,
)
from dask_simjoin.cli.running import (
    FAILED,
    computing,
    stage,
)
from dask_simjoin.cli.sources import ERROR, SKIP
from dask_simjoin.cli.tables import (
    check_bad_rows,
    is_on_store,
    sink,
)
from dask_simjoin.disk_index.index import DIFF, Index, left_out_of
from dask_simjoin.disk_index.manifests import versions
from dask_simjoin.disk_index.reports import CheckReport, UpdateReport
from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.disk_index.updates import IF_EXISTS
from dask_simjoin.disk_index.verbs import check_path, open_index
from dask_simjoin.disk_index.versions import check_index
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.left_out import LeftOut
from dask_simjoin.request.messages import counted

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

        rows = LeftOut(0, ())

        def make(whole: bool) -> Index:
            nonlocal rows
            table = reader.read(
                params["tables"], csv_columns(options, whole, self.request)
            )
            with columns_of_files([table], reader, (params["tables"],) * 2):
                made: Index = self.verb.function(table, **options)
            if params["bad_rows"] not in (ERROR, SKIP) and left_out_of(made):
                how = list(made.options.on), made.options.metric
                rows = left_out_of_frame(table, *how)
            return made

        with naming_places(reader):
            made = reader.until_wide_enough(
                lambda: _done(params, "indexing", lambda: listing_columns(make, False)),
                lambda text: None if params["quiet"] else click.echo(text, err=True),
            )
        if not len(made) and not params["quiet"]:
            click.echo(no_rows(params["tables"], "add"), err=True)
        left_out = left_out_of(made)
        if left_out and not params["quiet"]:
            click.echo(
                f"Left out {counted(left_out, 'row')} without coordinates.", err=True
            )
        summary = {
            "command": "index make",
            "path": str(made.path),
            "rows": len(made),
            "rows_left_out": left_out,
        }
        listed = [(params["tables"], rows)]
        _report(params, summary | bad_row_counts(params, reader, listed), made)


def _csv_type(dtype: Any) -> str:
    kinds = {"b": BOOL, "i": INT, "u": UINT, "f": FLOAT}
    return kinds.get(getattr(dtype, "kind", "O"), TEXT)


def _root(folder: str) -> AnyPath:
    """Return the folder of an index. Refuse a folder without versions, which probably
    is misspelled.
    """
    root = check_path(folder)
    if not versions(root):
        raise click.UsageError(
            f"{folder} holds no index; name the folder of an index, or make one with "
            "dask-simjoin index make."
        )
    return root


def _opened(folder: str) -> Index:
    _root(folder)
    return open_index(folder)


def _update(**params: Any) -> None:
    if not params["tables"] and not params["delete"]:
        raise click.UsageError(
            "There is nothing to update: name TABLES with new rows, or ids with "
            "--delete."
        )
    found = _opened(params["folder"])
    dtypes = found.rows()._meta.dtypes
    ids = dtypes.iloc[0]
    types = {name: _csv_type(dtype) for name, dtype in dtypes.items()}
    on = list(found.options.on)
    gaps = frozenset(name for name in on if types[name] in (INT, UINT))
    read = frozenset(types)
    columns = CsvColumns(
        frozenset(),
        read=read,
        types=types,
        gaps=gaps,
        points=tuple(on),
        ranges=ranges_of(found.options.metric),
    )
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
    left_out = LeftOut(0, ())

    def update() -> Any:
        nonlocal left_out
        new = reader.read(params["tables"], columns) if params["tables"] else None
        if new is not None and dropna:
            how = on, found.options.metric
            left_out = left_out_of_frame(new, *how)
            new = new.map_partitions(with_coordinates, *how, meta=new._meta)
        if new is not None:
            new = new.map_partitions(
                _without_gaps, own, meta=_without_gaps(new._meta, own)
            )
        files = [] if new is None else [new]
        with columns_of_files(files, reader, (params["tables"],) * 2):
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
    report = replace(changes.report, rows_left_out=left_out.rows)
    numbers = {
        "since": changes.since,
        "version": changes.version,
        **report.numbers,
        **bad_row_counts(params, reader, [(params["tables"], left_out)]),
    }
    numbers |= {"pairs_added": added, "pairs_removed": removed}
    pairs_written = (
        f"{counted(added, 'added pair')} and {counted(removed, 'removed pair')}"
    )
    lines = [str(report)]
    if report.known:
        lines = [
            f"Batch {params['batch']!r} was committed before, so the index did not "
            "change.",
            f"Wrote the changes of this batch again to {target.name}: {pairs_written}.",
        ]
    else:
        if params["tables"] and not _rows_of(report):
            lines.append(no_rows(params["tables"], "add"))
        lines.append(f"Wrote {pairs_written} to {target.name}.")
    _report(
        params,
        {"command": "index update", "output": target.path, **numbers},
        "\n".join(lines),
    )


def _rows_of(report: UpdateReport) -> int:
    return report.inserted + report.replaced + report.ignored + report.rows_left_out


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
    found = _opened(folder)
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
    history = _opened(params["folder"]).history()
    records = history.reset_index().to_json(orient="records", date_format="iso")
    click.echo(records if params["json"] else history.to_string())


def _check(**params: Any) -> None:
    found: CheckReport = _done(
        params, "checking", lambda: check_index(_root(params["folder"]))
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
        click.get_current_context().exit(FAILED)


def _done(params: dict[str, Any], title: str, work: Callable[[], Any]) -> Any:
    how = (params[name] for name in COMPUTING)
    with (
        log_lines(params["verbose"], params["quiet"]),
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
