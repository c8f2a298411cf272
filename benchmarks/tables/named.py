"""Table of named numbers, halved and doubled."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import seconds
from tools.numbers import all_numbers


def named(*runs: dict[str, Any]) -> list[list[str]]:
    """Tabulate the CPU seconds of a benchmark with a number halved and doubled, divided
    by those with the number as it is. Numbers that are gone have no row.
    """
    there = {one.label for one in all_numbers()}
    table = [["number", "benchmark", "CPU seconds", "half", "double"]]
    for run in runs:
        for label, row in run["rows"].items():
            number, bench = label.split(", ")
            if number not in there:
                continue
            ratios = (f"{row[name] / row['usual']:.2f}" for name in ("half", "double"))
            table.append([f"`{number}`", bench, seconds(row["usual"]), *ratios])
    return table


def fewer(run: dict[str, Any]) -> list[list[str]]:
    """Tabulate the CPU seconds of benchmarks before and after numbers were removed."""
    table = [["benchmark", "before", "after", "ratio"]]
    for bench, row in run["rows"].items():
        both = row["before"], row["after"]
        table.append([bench, *map(seconds, both), f"{both[1] / both[0]:.2f}"])
    return table


TABLES = {"named-numbers": named, "fewer-numbers": fewer}
