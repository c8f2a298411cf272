"""Tables of the two grid papers' figures in seconds on a GPU, with the spread of their
runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.papers.files import named
from benchmarks.papers.rows import MASKED, PRESORTED
from benchmarks.tables.cells import count, seconds

Found = dict[str, Any]
Rows = list[list[str]]


def _rows(runs: Iterable[Found], figure: str) -> list[Found]:
    return [row for run in runs for row in run["runs"] if row["figure"] == figure]


def _totals(row: Found) -> list[float]:
    return [run["total"] for run in row["runs"]]


def spread(rows: Iterable[Found]) -> str:
    """Return the largest difference of two runs of a row, in percent of its median."""
    return f"{max(100 * (max(_totals(row)) - min(_totals(row))) / row['total'] for row in rows):.1f}"


def repeats(rows: Iterable[Found]) -> str:
    """Return the least and the largest number of runs."""
    numbers = {len(row["runs"]) for row in rows}
    return " to ".join(str(one) for one in sorted({min(numbers), max(numbers)}))


def _points(row: Found) -> str:
    name = row["data"].removesuffix(PRESORTED)
    return f"{count(row['rows'])} of {named(name)}, {row['eps']:.4g}"


def _chosen(row: Found | None) -> str:
    return f"{seconds(row['total'])} ({row['indexed']})" if row else ""


def _by_points(rows: list[Found]) -> dict[str, dict[str, Found]]:
    found: dict[str, dict[str, Found]] = {}
    for row in rows:
        found.setdefault(_points(row), {})[row["setting"]] = row
    return found


def columns(*runs: Found) -> Rows:
    """Tabulate figure 9 of GPU-Join."""
    table = [
        [
            "points, eps",
            "pairs",
            "six dimensions, s",
            "chosen by the model, s",
            "by the model with masks, s",
            "tiles, s",
            "spread, %",
            "runs",
        ]
    ]
    for points, each in _by_points(_rows(runs, "fig9")).items():
        six, every = each["k=6"], list(each.values())
        table.append(
            [
                points,
                count(six["pairs"]),
                seconds(six["total"]),
                _chosen(each.get("k=auto")),
                _chosen(each.get(f"k=auto, {MASKED}")),
                seconds(six["tiles"]),
                spread(every),
                repeats(every),
            ]
        )
    return table


def model(*runs: Found) -> Rows:
    """Tabulate figure 7: seconds by indexed dimensions, and the cost model's estimates."""
    table = [
        [
            "indexed dimensions",
            "time, s",
            "comparisons",
            "lookups",
            "reads to find cells, as published",
            "with masks",
            "coordinates compared, estimated",
            "spread, %",
            "runs",
        ]
    ]
    for row in _rows(runs, "fig7"):
        counted = [
            f"{row[key]:.3g}" if key in row else ""
            for key in ("comparisons", "lookups")
        ]
        table.append(
            [
                str(row["indexed"]),
                seconds(row["total"]),
                *counted,
                f"{row['estimated search_ops']:.2g}",
                f"{row['estimated search_ops with masks']:.2g}",
                f"{row['estimated compare_ops']:.2g}",
                spread([row]),
                repeats([row]),
            ]
        )
    return table


def indexed(*runs: Found) -> Rows:
    """Tabulate figure 6: seconds by the number of indexed dimensions, with columns as
    given and reordered.
    """
    each_k = [f"k={k}, s" for k in range(1, 9)]
    table = [
        [
            "points, eps",
            "columns",
            *each_k,
            "chosen by the model, s",
            "tiles, s",
            "spread, %",
            "runs",
        ]
    ]
    for points, each in _by_points(_rows(runs, "fig6")).items():
        for order in ("as given", "reordered"):
            rows = [each.get(f"k={k}, {order}") for k in range(1, 9)]
            auto, found = each.get(f"k=auto, {order}"), [row for row in rows if row]
            table.append(
                [
                    points,
                    order,
                    *(seconds(row["total"]) if row else "" for row in rows),
                    _chosen(auto),
                    seconds(found[0]["tiles"]),
                    spread(found),
                    repeats(found),
                ]
            )
    return table


GAINS = ("none", "reorder", "reorder, sort", "reorder, short circuit", "all")
"""Settings of figure 8."""


def gains(*runs: Found) -> Rows:
    """Tabulate figure 8: seconds of each optimization."""
    table = [
        [
            "points, eps",
            *(f"{name}, s" for name in GAINS),
            "none / all",
            "spread, %",
            "runs",
        ]
    ]
    for points, each in _by_points(_rows(runs, "fig8")).items():
        cells = [seconds(each[name]["total"]) if name in each else "" for name in GAINS]
        both = "none" in each and "all" in each
        ratio = f"{each['none']['total'] / each['all']['total']:.2f}" if both else ""
        every = list(each.values())
        table.append([points, *cells, ratio, spread(every), repeats(every)])
    return table


def presort(*runs: Found) -> Rows:
    """Tabulate the sort into unit-wide bins: seconds of the join without and with it,
    and of the sort.
    """
    table = [
        [
            "points, eps",
            "as given, s",
            "sorted into bins, s",
            "ratio",
            "the sort on the host, s",
            "spread, %",
            "runs",
        ]
    ]
    for points, each in _by_points(_rows(runs, "presort")).items():
        if len(each) == 2:
            given, after = each["given"], each["presorted"]
            table.append(
                [
                    points,
                    seconds(given["total"]),
                    seconds(after["total"]),
                    f"{given['total'] / after['total']:.2f}",
                    seconds(after["presort"]),
                    spread(each.values()),
                    repeats(each.values()),
                ]
            )
    return table


def host(*runs: Found) -> Rows:
    """Make table 2: kernels alone, and with transfers and the table of neighbors."""
    table = [
        [
            "streams",
            "pinned",
            "kernels, s",
            "to the host, s",
            "overhead, %",
            "least and most",
            "runs",
        ]
    ]
    for row in _rows(runs, "tab2"):
        shares = [100 * run["overhead"] for run in row["runs"]]
        table.append(
            [
                str(row["streams"]),
                "yes" if row["pinned"] else "no",
                seconds(row["kernels"]),
                seconds(row["total"]),
                f"{100 * row['overhead']:.1f}",
                f"{min(shares):.1f}, {max(shares):.1f}",
                str(len(shares)),
            ]
        )
    return table


def sets(*runs: Found) -> Rows:
    """Tabulate figures 10 and 11: seconds of 32 query sets, and the speedup that their
    balance allows.
    """
    table = [
        [
            "query sets",
            "least, s",
            "mean, s",
            "most, s",
            "most / least",
            *(f"{p} GPUs" for p in (2, 8, 32)),
        ]
    ]
    table += [
        [
            row["sets"],
            seconds(row["least"]),
            seconds(row["mean"]),
            seconds(row["most"]),
            f"{row['most/least']:.3f}",
            *(f"{row['speedup'][p]:.1f}" for p in ("2", "8", "32")),
        ]
        for row in _rows(runs, "fig10-11")
    ]
    return table


SETTINGS = ("full", "unicomp", "lid", "8 threads", "workload", "queue")
"""Settings of figures 9 to 11 of the second paper."""


def distances(*runs: Found) -> Rows:
    """Tabulate figures 9 to 11 of the second paper: seconds by distance."""
    table = [
        [
            "set, eps",
            "pairs",
            *(f"{name}, s" for name in SETTINGS),
            "tiles, s",
            "spread, %",
            "runs",
        ]
    ]
    for each in _by_points(_rows(runs, "fig9-11")).values():
        every = list(each.values())
        cells = [
            seconds(each[name]["total"]) if name in each else "" for name in SETTINGS
        ]
        table.append(
            [
                f"{named(every[0]['data'])}, {every[0]['eps']:g}",
                count(every[0]["pairs"]),
                *cells,
                seconds(every[0]["tiles"]),
                spread(every),
                repeats(every),
            ]
        )
    return table


def balanced(*runs: Found) -> Rows:
    """Tabulate figure 13: plain and balanced, at all distances."""
    table = [
        [
            "set, eps",
            "plain, s",
            "balanced, s",
            "ratio",
            "tiles, s",
            "spread, %",
            "runs",
        ]
    ]
    for each in _by_points(_rows(runs, "fig13")).values():
        if len(each) == 2:
            plain, final = each["plain"], each["balanced"]
            table.append(
                [
                    f"{named(plain['data'])}, {plain['eps']:g}",
                    seconds(plain["total"]),
                    seconds(final["total"]),
                    f"{plain['total'] / final['total']:.2f}",
                    seconds(plain["tiles"]),
                    spread(each.values()),
                    repeats(each.values()),
                ]
            )
    return table


TABLES = {
    "gpu-join-columns": columns,
    "gpu-join-model": model,
    "gpu-join-indexed": indexed,
    "gpu-join-gains": gains,
    "gpu-join-presort": presort,
    "gpu-join-host": host,
    "gpu-join-sets": sets,
    "load-distances": distances,
    "load-balanced": balanced,
}
