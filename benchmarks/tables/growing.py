"""Tables of joins that grow."""

from __future__ import annotations

from typing import Any

from dask.utils import format_bytes

from benchmarks.tables.cells import count, seconds, times

Found = dict[str, Any]
Rows = list[list[str]]


def growing(run: Found) -> Rows:
    """Tabulate updates of an index, compared with joining all rows anew."""
    table = [
        [
            "change",
            "pairs",
            "update, s",
            "full join, Dask, s",
            "ratio, Dask",
            "full join, pandas, s",
            "ratio, pandas",
            "row groups",
            "read",
            "written",
        ]
    ]
    for row in run["batches"]:
        what = f"{row['share']:.2%} {'new' if row['change'] == 'insert' else 'deleted'}, {row['where']}"
        anew = [
            cell
            for how in ("dask", "pandas")
            for cell in (seconds(row["anew"][how]["cpu"]), times(row["times"][how]))
        ]
        table.append(
            [
                what,
                count(row["added"] + row["removed"]),
                seconds(row["update"]["cpu"]),
                *anew,
                f"{row['row_groups_read']} of {row['row_groups']}",
                format_bytes(row["bytes_read"]),
                format_bytes(row["bytes_written"]),
            ]
        )
    return table


def held(run: Found) -> Rows:
    """Tabulate updates of an index that is held in memory, compared with joining all
    rows anew.
    """
    table = [
        [
            "change",
            "pairs",
            "update from disk, s",
            "persisted, s",
            "full join, Dask, s",
            "ratio, Dask",
            "full join, pandas, s",
            "ratio, pandas",
        ]
    ]
    for row in run["batches"]:
        what = f"{row['share']:.2%} {'new' if row['change'] == 'insert' else 'deleted'}, {row['where']}"
        clock = "cpu" if run["backend"] == "pandas" else "wall"
        anew = [
            cell
            for how in ("dask", "pandas")
            for cell in (
                seconds(row["anew"][how][clock]),
                times(row["times_held"][how]),
            )
        ]
        own = [seconds(row[name][clock]) for name in ("update", "held")]
        table.append([what, count(row["added"] + row["removed"]), *own, *anew])
    return table


def rejoin(batches: Found, queries: Found) -> Rows:
    """Make the tables of RE-JOIN: times as fast as joining once after each batch, here
    and published.
    """
    done = [row for row in batches["runs"] if row["figure"] == "T5.3"]
    done += [row for row in queries["runs"] if row["figure"] == "T5.4"]
    policies = ["each query", "always", "never", "auto", "1.5", "2.0"]
    table = [
        [
            "table",
            "setting",
            "one join per batch, s",
            "one join per query, ratio",
            *policies[1:],
            "published AR",
            "published NR",
            "published best",
        ]
    ]
    by: dict[tuple[str, int], dict[str, Found]] = {}
    for row in done:
        by.setdefault((row["figure"], row["setting"]), {})[str(row["policy"])] = row
    for (figure, setting), rows in by.items():
        what = f"{setting} rows a batch" if figure == "T5.3" else f"{setting} queries"
        cells = [
            f"{rows[name]['times']:.2f}" if name in rows else "" for name in policies
        ]
        told = [f"{rows[name]['published']:.2f}" for name in ("always", "never")]
        best = f"{rows['always']['published threshold']:.2f}"
        table.append(
            [figure, what, seconds(rows["anew"]["seconds"]), *cells, *told, best]
        )
    return table


TABLES = {"growing": growing, "held": held, "rejoin": rejoin}
