"""Tables of lists in Z-order, of k-means joins and of several distances."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import count, seconds, times

Found = dict[str, Any]
Rows = list[list[str]]

ROWS = {
    "clusters": "clusters",
    "uniform10": "uniform",
    "colours": "substitute for colors",
}
"""Descriptions of rows by their names."""


def of(run: Found, figure: str) -> list[Found]:
    """Return the rows of a figure."""
    return [row for row in run["runs"] if row["figure"] == figure and "seconds" in row]


def _grouped(rows: list[Found], *names: str) -> dict[tuple[Any, ...], dict[str, Found]]:
    """Group rows by the values of some names, and within a group by their setting."""
    found: dict[tuple[Any, ...], dict[str, Found]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), {})[row["setting"]] = row
    return found


def lists(run: Found) -> Rows:
    """Tabulate seconds by numbers of lists."""
    numbers = ("1", "3", "5", "9", "17", "33")
    table = [
        [
            "rows, columns, eps",
            *(f"{n} list{'s' * (n != '1')}" for n in numbers),
            'lists="auto"',
            '"auto"',
        ]
    ]
    rows = [row for figure in ("8c", "8ab", "8d") for row in of(run, figure)]
    for (number, dims, eps), found in sorted(
        _grouped(rows, "rows", "dims", "eps").items(), key=_by_dims
    ):
        own = [
            seconds(found.get(f"lists={n}", {}).get("seconds"))
            for n in (*numbers, "auto")
        ]
        table.append(
            [
                f"{count(number)}, {dims}, {eps:g}",
                *own,
                seconds(found["lists=auto"]["auto"]),
            ]
        )
    return table


def _by_dims(item: tuple[tuple[Any, ...], Any]) -> tuple[Any, ...]:
    rows, dims, eps = item[0]
    return dims, rows, eps


def clusters(run: Found) -> Rows:
    """Tabulate the speedups of the thesis's joins over its first loop, published and
    here.
    """
    table = [
        [
            "rows published, ours",
            "INLJ, published",
            "INLJ, ours",
            "thesis windows, published",
            "thesis windows, ours",
            "one-sided",
            "by tiles",
            '"auto"',
        ]
    ]
    whole = 10 if run["model"] else 1
    for (number,), found in _grouped(of(run, "T5.1"), "rows").items():
        loop, rotation, thesis = (
            found[name] for name in ("NLJ", "INLJ", "thesis windows")
        )
        first = loop["seconds"]
        own = [
            times(first / found[name]["seconds"])
            for name in ("one-sided windows", "one-sided, tiles")
        ]
        table.append(
            [
                f"{count(whole * number)}, {count(number)}",
                times(rotation["published"]),
                times(rotation["ratio"]),
                times(thesis["published"]),
                times(thesis["ratio"]),
                *own,
                times(first / loop["auto"]),
            ]
        )
    return table


def on_hosts(run: Found) -> Rows:
    """Tabulate table 5.2 of the thesis: seconds of loops on CPUs and a GPU, and
    speedups over one core.
    """
    ways = ("CPU-NLJ", "OMP-CPU-NLJ", "GPU-NLJ", "GPU-INLJ")
    heads = [f"{way}, {whose}" for way in ways[1:] for whose in ("published", "ours")]
    table = [["rows", *(f"{way}, s" for way in ways), *heads]]
    for row in of(run, "T5.2"):
        own = [seconds(row["seconds"].get(way, {}).get("seconds")) for way in ways]
        both = [
            times(row[name].get(way))
            for way in ways[1:]
            for name in ("published", "ratios")
        ]
        table.append([count(row["rows"]), *own, *both])
    return table


def clustered(run: Found) -> Rows:
    """Tabulate joins of rows in ten clusters, by the package's own tiles and by
    clusters.
    """
    ways = [f"one-sided, tiles, k={k}" for k in (10, 20, "auto")]
    table = [
        [
            "columns, eps",
            "rows",
            "pairs",
            '"auto"',
            "10 clusters",
            "20 clusters",
            'clusters="auto"',
        ]
    ]
    for (dims, eps, number), found in _grouped(
        of(run, "8 to 64"), "dims", "eps", "rows"
    ).items():
        own = [seconds(found[way]["seconds"]) for way in ways]
        one = found[ways[0]]
        table.append(
            [
                f"{dims}, {eps:g}",
                count(number),
                count(one["pairs"]),
                seconds(one["auto"]),
                *own,
            ]
        )
    return table


def by_distance(run: Found) -> Rows:
    """Tabulate figures 5.8, 5.12 and 5.14: seconds by distance."""
    table = [
        ["rows", "eps", "INLJ", "thesis windows", "two-sided", "one-sided", '"auto"']
    ]
    for figure in ("5.8-10", "5.11-12", "5.13-14"):
        for (data, eps), found in _grouped(of(run, figure), "data", "eps").items():
            own = [
                seconds(found[way]["seconds"])
                for way in ("INLJ", "thesis", "two-sided", "one-sided")
            ]
            table.append(
                [ROWS.get(data, data), f"{eps:g}", *own, seconds(found["INLJ"]["auto"])]
            )
    return table


def by_number(run: Found) -> Rows:
    """Tabulate figure 5.15: seconds by number of clusters."""
    numbers = (5, 10, 20, 40, 64, 256, 1024)
    table = [["rows", "windows", *(f"k={k}" for k in numbers), '"auto"']]
    for (data,), found in _grouped(of(run, "5.9, 5.15"), "data").items():
        for windows in ("thesis", "one-sided"):
            own = [
                seconds(found.get(f"{windows}, k={k}", {}).get("seconds"))
                for k in numbers
            ]
            table.append(
                [
                    ROWS.get(data, data),
                    windows,
                    *own,
                    seconds(found["thesis, k=5"]["auto"]),
                ]
            )
    return table


def several(run: Found) -> Rows:
    """Tabulate numbers within ten distances at a time."""
    ways = ("largest", "each", "together", "counts, each", "counts, together", "SciPy")
    table = [
        [
            "rows, columns, eps",
            "pairs",
            "one distance, s",
            "ten calls, s",
            "list of ten, s",
            "row counts, ten calls, s",
            "row counts, list of ten, s",
            "SciPy, s",
        ]
    ]
    for row in run["rows"]:
        head = f"{row['data']}, {count(row['rows'])}, {row['dims']}, {row['eps']:g}"
        table.append(
            [
                head,
                count(row["pairs"]),
                *(seconds(row["seconds"].get(way)) for way in ways),
            ]
        )
    return table


TABLES = {
    "z-lists": lists,
    "kmeans-loops": clusters,
    "kmeans-tiles": clustered,
    "kmeans-by-distance": by_distance,
    "kmeans-by-number": by_number,
    "kmeans-hosts": on_hosts,
    "several": several,
}
