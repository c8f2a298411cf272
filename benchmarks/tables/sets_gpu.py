"""Tables of joins of sets on GPUs, of their paper, and of other libraries."""

from __future__ import annotations

from typing import Any

from benchmarks.papers.files import named
from benchmarks.tables.cells import count, seconds

Found = dict[str, Any]
Rows = list[list[str]]

KINDS = {"queries": "908,440 of mean size 3.1", "texts": "63,995 of mean size 127"}
THRESHOLDS = ("0.9", "0.8", "0.7", "0.6", "0.5")
WAYS = ("A", "B", "C", "thread", "warp")
FILTERED = ("allpairs", "ppjoin", "groupjoin", "groupjoin, members on the cpu")


def joins(run: Found) -> Rows:
    """Tabulate methods on a GPU, and one core; a run that only compiled is left out."""
    found, names = run["results"], ("auto", "bitmap", "ppjoin")
    table = [
        [
            "sets",
            "threshold",
            "pairs",
            '"auto"',
            "bitmaps",
            "lists",
            "one core",
            'one core / "auto"',
        ]
    ]
    for kind, text in KINDS.items():
        for threshold in THRESHOLDS:
            took = {name: found[f"{kind}, {threshold}, {name}"] for name in names}
            core = found[f"{kind}, {threshold}, one core of the cpu"]["median"]
            compiled = (
                took["auto"].get("seconds", [0])[1:] == []
                and took["auto"]["median"] > 1
            )
            own = None if compiled else took["auto"]["median"]
            table.append(
                [
                    text if threshold == THRESHOLDS[0] else "",
                    threshold,
                    count(took["auto"]["found"]),
                    seconds(own) if own else "not measured",
                    *(seconds(took[name]["median"]) for name in names[1:]),
                    seconds(core),
                    f"{core / own:.0f}" if own else "",
                ]
            )
    return table


def verified(run: Found) -> Rows:
    """Tabulate the same candidates by each way, with its best number of threads."""
    table = [
        [
            "sets",
            "threshold",
            "candidates",
            *(way if len(way) == 1 else f'"{way}"' for way in WAYS),
        ]
    ]
    best: dict[tuple[str, str, str], dict[str, tuple[float, str]]] = {}
    for name, one in run["results"].items():
        parts = name.split(", ")
        if " candidates of " not in name or not parts[-1].endswith(" threads"):
            continue
        key = parts[0], parts[1], parts[2].split()[0]
        told = one["median"], parts[-1].split()[0]
        each = best.setdefault(key, {})
        each[parts[-2]] = min(each.get(parts[-2], told), told)
    for (kind, threshold, candidates), each in best.items():
        cells = [f"{seconds(each[way][0])} ({each[way][1]})" for way in WAYS]
        table.append([KINDS[kind], threshold, candidates, *cells])
    return table


def split(run: Found) -> Rows:
    """Tabulate figures 10 to 13: the CPU filters, and the GPU verifies."""
    table = [
        [
            "sets",
            "threshold",
            "one core",
            "the CPU filters: AllPairs",
            "PPJoin",
            "GroupJoin",
            "GroupJoin, members on the CPU",
            '"auto" on the GPU',
        ]
    ]
    found = run["results"]
    ways = [f"{name} filtered by the cpu, B" for name in FILTERED]
    for threshold in ("0.8", "0.6", "0.5"):
        names = ["one core of the cpu", *ways, "auto, all on the gpu"]
        cells = [
            seconds(found[f"queries, {threshold}, {name}"]["median"]) for name in names
        ]
        table.append(
            [KINDS["queries"] if threshold == "0.8" else "", threshold, *cells]
        )
    return table


def algorithms(run: Found) -> Rows:
    """Make table 5: which algorithm is best, published and here."""
    runs = [row for row in run["runs"] if row["figure"] == "fig10-cpu"]
    data = list(dict.fromkeys(row["data"] for row in runs))
    table = [
        [
            "threshold",
            "best of, published (ALL, PPJ, GRP)",
            "best of, here",
            *map(named, data),
        ]
    ]
    for told in (row for row in run["runs"] if row["figure"] == "tab5"):
        cells = []
        for name in data:
            row = next(
                r
                for r in runs
                if r["data"] == name and r["threshold"] == told["threshold"]
            )
            others = ", ".join(
                f"{k} {v:.1f}" for k, v in row["ratio"].items() if k != row["winner"]
            )
            if "bitmaps/winner" in row:
                others += f", with bitmaps {row['bitmaps/winner']:.2f}"
            if "auto/winner" in row:
                others += f", auto {row['auto/winner']:.2f}"
            cells.append(f"{row['winner']}; {others}")
        best = [
            ", ".join(str(told[key][k]) for k in ("ALL", "PPJ", "GRP"))
            for key in ("published", "best of")
        ]
        table.append([told["threshold"], *best, *cells])
    return table


def shapes(run: Found) -> Rows:
    """Tabulate figure 10: one core, the CPU and the GPU together, and the GPU alone."""
    table = [
        [
            "shape, sets",
            "threshold",
            "pairs",
            "one core",
            "the CPU filters, the GPU verifies",
            '"auto" on the GPU',
            "ahead, published",
        ]
    ]
    last = None
    for row in (row for row in run["runs"] if row["figure"] == "fig10"):
        head = f"{named(row['data'])}, {count(row['rows'])}"
        core, both, alone = (
            row["seconds"][name] for name in ("cpu", "gpu", "all on the gpu")
        )
        table.append(
            [
                "" if head == last else head,
                row["threshold"],
                count(row["pairs"]),
                f"{seconds(core)} ({row['best on the cpu']})",
                f"{seconds(both)} ({row['best on the gpu']})",
                seconds(alone),
                row["paper's winner"].upper(),
            ]
        )
        last = head
    return table


def peers(run: Found) -> Rows:
    """Tabulate counting and writing compared with libraries of Python."""
    table = [
        [
            "sets, threshold",
            "pairs",
            "count, from tokens",
            "from lists",
            "from texts",
            "pairs written, from texts",
            "SetSimilaritySearch",
            "py_stringsimjoin",
            "DuckDB",
            "MinHash LSH",
            "share of pairs that LSH misses",
        ]
    ]
    for name, thresholds in run["sets"].items():
        for threshold, row in thresholds.items():
            tools = row["tools"]
            own = tools["dask_simjoin"]
            cells = [
                seconds(own[key]["seconds"])
                for key in (
                    "tokens, count",
                    "lists, count",
                    "texts, count",
                    "texts, pairs",
                )
            ]
            theirs = [
                _peer(tools.get(tool, {}).get(given))
                for tool, given in (
                    ("SetSimilaritySearch", "distinct tokens"),
                    ("py_stringsimjoin", "texts"),
                    ("duckdb", "tokens"),
                    ("datasketch", "distinct tokens"),
                )
            ]
            found = tools.get("datasketch", {}).get("distinct tokens", {}).get("pairs")
            lost = "" if found is None else f"{1 - found / row['pairs']:.2g}"
            table.append(
                [f"{name}, {threshold}", count(row["pairs"]), *cells, *theirs, lost]
            )
    return table


def _peer(found: Found | None) -> str:
    if found is None:
        return ""
    return (
        f"> {found['more_than']:g}"
        if "more_than" in found
        else seconds(found["seconds"])
    )


TABLES = {
    "gpu-sets": joins,
    "gpu-set-verification": verified,
    "gpu-set-split": split,
    "set-algorithms": algorithms,
    "set-peers": peers,
    "gpu-set-shapes": shapes,
}
