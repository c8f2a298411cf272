"""The table of what joins on a GPU, beside our joins."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import count, rows, seconds

Found = dict[str, Any]
Rows = list[list[str]]


def _cells(told: Found) -> list[str]:
    times = [seconds(told[part]["seconds"]) for part in ("kernels", "whole")]
    return [
        told["numbers"],
        *times,
        count(told["pairs"]),
        *(count(told.get(kind)) for kind in ("false", "missed")),
    ]


def rivals(run: Found) -> Rows:
    """Each program on each set of rows: its seconds, and how its pairs differ from ours."""
    table = [["rows", "program", "decides by", "kernels, s", "whole, s", "pairs", "false", "missed"]]
    for found in run["rows"]:
        name = f"{found['name']}, {rows(found['rows'])}, eps {found['eps']:.4g}"
        table.append([name, "ours", *_cells(found["ours"])])
        table += [
            ["", rival, *_cells(told)] for rival, told in found["rivals"].items() if "absent" not in told
        ]
    return table


TABLES = {"gpu-rivals": rivals}
