"""The table of what joins on a GPU, beside our joins."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import count, rows, seconds

Found = dict[str, Any]
Rows = list[list[str]]


def _cells(result: Found) -> list[str]:
    times = [seconds(result[part]["seconds"]) for part in ("kernels", "whole")]
    numbers = [count(result.get(kind)) for kind in ("pairs", "false", "missed")]
    return [result["numbers"], *times, *numbers]


def rivals(run: Found) -> Rows:
    """Return a line for each program and set of rows: seconds, and how its pairs differ from ours."""
    table = [["rows", "program", "decides by", "kernels, s", "whole, s", "pairs", "false", "missed"]]
    for found in run["rows"]:
        name = f"{found['name']}, {rows(found['rows'])}, eps {found['eps']:.4g}"
        table.append([name, "ours", *_cells(found["ours"])])
        ran = {rival: result for rival, result in found["rivals"].items() if "absent" not in result}
        table += [["", rival, *_cells(result)] for rival, result in ran.items()]
    return table


TABLES = {"gpu-rivals": rivals}
