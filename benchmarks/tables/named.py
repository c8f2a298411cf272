"""Table of named numbers, halved and doubled."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import seconds


def named(*runs: dict[str, Any]) -> list[list[str]]:
    """Tabulate the CPU seconds of a benchmark with a number halved and doubled, divided
    by those with the number as it is.
    """
    table = [["number", "benchmark", "CPU seconds", "half", "double"]]
    for run in runs:
        for label, row in run["rows"].items():
            number, bench = label.split(", ")
            ratios = (f"{row[name] / row['usual']:.2f}" for name in ("half", "double"))
            table.append([f"`{number}`", bench, seconds(row["usual"]), *ratios])
    return table


TABLES = {"named-numbers": named}
