"""The table of approximate joins by clusters."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import count, seconds

DATA = {
    "packages": "descriptions of packages",
    "topics": "synthetic: topics",
    "copies": "synthetic: changed copies",
}
"""Descriptions of the embeddings."""

SHOWN = (0.01, 0.1, 0.2)
"""Distances of the table; the file has more."""


def semantic(found: dict[str, Any]) -> list[list[str]]:
    """Tabulate k-means and pairs within clusters, and the exact join."""
    table = [
        [
            "embeddings",
            "eps",
            "pairs",
            "exact, s",
            "clusters",
            "k-means + products, s",
            "pairs missed",
            "duplicates missed",
            "`approximate=True`, s",
            "pairs missed, approximate",
        ],
    ]
    last = None
    for row in found["rows"]:
        if row["eps"] not in SHOWN:
            continue
        theirs, some = row["theirs"], row["approximate"]
        left = round(1 - theirs["duplicates"] / max(1, row["duplicates"]), 3) + 0.0
        head = [
            f"{DATA[row['data']]}, {row['rows']:,}",
            f"{row['eps']}",
            count(row["pairs"]),
            seconds(row["exact"]),
        ]
        table.append(
            [
                *(head if head != last else [""] * 4),
                count(row["clusters"]),
                f"{seconds(theirs['k-means'])} + {seconds(theirs['products'])}",
                f"{theirs['lost']:.1%}",
                f"{left:.1%}",
                seconds(some["seconds"]),
                f"{some['lost']:.1%}",
            ]
        )
        last = head
    return table


def intervals(run: dict[str, Any]) -> list[list[str]]:
    """Tabulate the mean share of the rows in the intervals that LSS scans."""
    shares = {(one["lists"], one["eps"]): one["share"] for one in run["runs"]}
    distances = sorted({eps for _, eps in shares})
    table = [["lists", *(f"eps {eps:g}" for eps in distances)]]
    for lists in sorted({lists for lists, _ in shares}):
        cells = [shares.get((lists, eps)) for eps in distances]
        table.append([str(lists), *map(seconds, cells)])
    return table


TABLES = {"semantic": semantic, "list-intervals": intervals}
