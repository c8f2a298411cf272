"""Tables of the grid joins of two papers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.papers.files import named
from benchmarks.tables.cells import count, seconds, times

Found = dict[str, Any]
Rows = list[list[str]]

REAL = "1.10 to 2.63"
"""Published in table VI: final configuration against plain, least and most of five real
sets.
"""


def of(run: Found, *figures: str) -> list[Found]:
    """Return the rows of some figures."""
    return [row for row in run["runs"] if row["figure"] in figures]


def share(value: float | None) -> str:
    """Format a percentage."""
    return "" if value is None else f"{value:.1f}"


def ratio(value: float | None) -> str:
    """Format a ratio as papers print it."""
    return "" if value is None else f"{value:.2f}"


def _named(rows: list[Found]) -> Iterator[tuple[str, Found]]:
    """Add the set and the distance before the first row of each."""
    last = None
    for row in rows:
        head = f"{named(row['data'])}, {row['eps']:g}"
        yield "" if head == last else head, row
        last = head


def settings(rows: list[Found]) -> Rows:
    """Tabulate settings compared with the first one of each set, on a GPU."""
    table = [
        [
            "set, eps",
            "setting",
            "active lanes in the candidate loop, %",
            "nvprof's WEE, published, %",
            "time, s",
            "ratio",
            "ratio, published",
            "tiles, s",
        ]
    ]
    for head, row in _named(rows):
        table.append(
            [
                head,
                row["setting"],
                share(100 * row["warp_efficiency"]),
                share(row["published wee"]),
                seconds(row["total"]),
                ratio(row["ratio"]),
                ratio(row["published"]),
                seconds(row["tiles"]) if head else "",
            ]
        )
    return table


def patterns(run: Found) -> Rows:
    """Make table III."""
    return settings(of(run, "tab3"))


def threads(*runs: Found) -> Rows:
    """Make table IV.  Each set is from the run with most of its settings, as ratios are
    to that run's first row.
    """
    found: dict[str, list[Found]] = {}
    for run in runs:
        sets: dict[str, list[Found]] = {}
        for row in of(run, "tab4"):
            sets.setdefault(row["data"], []).append(row)
        for data, rows in sets.items():
            found[data] = max(found.get(data, []), rows, key=len)
    return settings([row for rows in found.values() for row in rows])


def orders(run: Found) -> Rows:
    """Make table V."""
    return settings(of(run, "tab5"))


def mixtures(run: Found) -> Rows:
    """Make table VI: the final configuration compared with the plain one."""
    table = [
        ["set, eps", "plain, s", "balanced, s", "ratio", "ratio, published", "tiles, s"]
    ]
    rows = of(run, "tab6")
    plain = {
        row["data"]: seconds(row["total"]) for row in rows if row["setting"] == "plain"
    }
    table += [
        [
            f"{named(row['data'])}, {row['eps']:g}",
            plain[row["data"]],
            seconds(row["total"]),
            ratio(row["ratio"]),
            REAL,
            seconds(row["tiles"]),
        ]
        for row in rows
        if row["setting"] == "balanced"
    ]
    return table


def gds_join(run: Found) -> Rows:
    """Tabulate our GPU-Join compared with its authors' code: kernels, and the whole
    join.
    """
    table = [
        [
            "points, eps",
            "pairs",
            "ours, kernels, s",
            "GDS-Join, kernels, s",
            "GDS-Join, sort, s",
            "ours / GDS-Join",
            "ours, whole, s",
            "GDS-Join, whole, s",
            "pairs of GDS-Join",
        ]
    ]
    for row in run["rows"]:
        ours, theirs = row["ours"], row["theirs"]
        kernels = {name: one["kernels"]["median"] for name, one in theirs.items()}
        table.append(
            [
                f"{row['rows']:,} of {row['name']}, {row['eps']}",
                count(ours["pairs"]),
                seconds(ours["kernels"]["median"]),
                seconds(kernels["default"]),
                seconds(kernels["sort"]),
                f"{ours['kernels']['median'] / min(kernels.values()):.2f}",
                seconds(ours["whole"]["median"]),
                seconds(theirs["default"]["whole"]),
                count(int(theirs["default"]["pairs"])),
            ]
        )
    return table


def model(run: Found) -> Rows:
    """Make tables III to V as the model of warps has them."""
    table = [
        [
            "set, eps",
            "setting",
            "comparisons",
            "active lanes, %",
            "nvprof's WEE, published, %",
            "ratio of steps",
            "ratio of times, published",
        ]
    ]
    kept = [
        row
        for row in of(run, "tab3", "tab4", "tab5")
        if row["setting"]
        in ("full", "unicomp", "lid", "8 threads", "workload", "queue")
    ]
    for head, row in _named(sorted(kept, key=lambda row: row["data"])):
        table.append(
            [
                head,
                row["setting"],
                f"{row['comparisons']:.3g}",
                share(100 * row["warp_efficiency_model"]),
                share(row["published wee"]),
                ratio(row["ratio"]),
                ratio(row["published"]),
            ]
        )
    return table


def counted(run: Found) -> Rows:
    """Tabulate figures 6 and 7: numbers by indexed dimensions, without a clock."""
    found: dict[str, dict[str, Found]] = {}
    for row in of(run, "fig6", "fig7"):
        k, _, how = row["setting"].partition(", ")
        data = named(row["data"])
        name = f"{data}, {how}" if how else f"{data}, {row['eps']:g}"
        found.setdefault(name, {})[k] = row
    ks = [f"k={k}" for k in (1, 2, 3, 4, 6, 8)]
    table = [["points", "count", *ks]]
    for name, each in found.items():
        for what, key in (
            ("comparisons", "comparisons"),
            ("reads to find cells", "search_ops"),
        ):
            cells = [f"{each[k][key]:.2g}" if k in each else "" for k in ks]
            table.append([name if key == "comparisons" else "", what, *cells])
    return table


FIGURES = {
    "tab3": "GPU-Join, table 3",
    "fig13": "load imbalance, 13",
    "3a": "LSS, 3a",
    "3b": "LSS, 3b",
}
WAYS = (
    "Super-EGO, 1",
    "Super-EGO, 2",
    "Grid.gpu_join(6), 1",
    "SciPy's cKDTree, 1",
    '"auto", 1',
    '"auto", 2',
)


def baseline(run: Found) -> Rows:
    """Tabulate Super-EGO and this package: CPU seconds."""
    table = [
        [
            "figure",
            "points, eps",
            "pairs",
            "compared by EGO, %",
            "Super-EGO",
            "Super-EGO, two threads",
            "`Grid.gpu_join(6)`",
            "SciPy's tree",
            '"auto"',
            '"auto", Dask, two threads',
        ]
    ]
    last = None
    for row in run["runs"]:
        figure = FIGURES[row["figure"]]
        head = f"{count(row['rows'])} of {named(row['data'])}, {row['eps']:g}"
        cells = [seconds(row["seconds"].get(way, {}).get("cpu")) for way in WAYS]
        table.append(
            [
                "" if figure == last else figure,
                head,
                count(row["pairs"]),
                share(100 * row["compared_ratio"]),
                *cells,
            ]
        )
        last = figure
    return table


def headline(*runs: Found) -> Rows:
    """Tabulate how many times as fast as Super-EGO methods are on a GPU."""
    rows = sorted(
        (row for run in runs for row in run["rows"]),
        key=lambda row: list(FIGURES).index(row["figure"]),
    )
    # the row with the most methods has all of them, in their order
    methods = list(max((row["methods"] for row in rows), key=len))
    threads = rows[0]["Super-EGO"]["threads"]
    table = [
        [
            "figure",
            "points, eps",
            "of the paper's rows, %",
            "pairs",
            f"Super-EGO, {threads} threads, s",
            "of it sorting by one thread, s",
            *(name if name == '"auto"' else f"`{name}`" for name in methods),
            "published",
        ]
    ]
    last = None
    for row in rows:
        figure, own = FIGURES[row["figure"]], row["Super-EGO"]["seconds"]
        found = [row["methods"].get(name, {}).get("seconds") for name in methods]
        table.append(
            [
                "" if figure == last else figure,
                f"{count(row['rows'])} of {named(row['data'])}, {row['eps']:g}",
                f"{100 * row['rows'] / row['of']:.0f}",
                count(row["pairs"]),
                seconds(own),
                seconds(row["Super-EGO"]["order"]),
                *("" if took is None else times(own / took) for took in found),
                times(row["published"]),
            ]
        )
        last = figure
    return table


TABLES = {
    "ego-gpu": headline,
    "grid-patterns": patterns,
    "grid-threads": threads,
    "grid-orders": orders,
    "grid-mixtures": mixtures,
    "gds-join": gds_join,
    "grid-model": model,
    "grid-counted": counted,
    "ego": baseline,
}
