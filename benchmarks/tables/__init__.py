"""Tables of the documentation, made from what benchmarks wrote to benchmarks/results.

In a page ``<!-- table: NAME FILE ... -->`` stands before a table, with the files it is
made of.  ``| HEAD | HEAD`` after the files are the columns to show, if not all are.  A
new measurement is shown by naming its file there and running ``python -m
benchmarks.tables``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.tables import (
    ablation,
    audit,
    comparisons,
    cores,
    cpu,
    errors,
    gpu,
    grid_seconds,
    grids,
    growing,
    list_figures,
    lists,
    named,
    roads,
    sets,
    sets_gpu,
)

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

Table = Callable[..., list[list[str]]]

TABLES: dict[str, Table] = {
    name: table
    for module in (
        ablation,
        audit,
        comparisons,
        cores,
        cpu,
        errors,
        gpu,
        grid_seconds,
        grids,
        growing,
        list_figures,
        lists,
        named,
        roads,
        sets,
        sets_gpu,
    )
    for name, table in module.TABLES.items()
}
"""Name -> rows of cells, the head first, from the contents of the files that a page
names.
"""

MARKED = re.compile(
    r"^<!-- table: (?P<name>\S+) (?P<files>[^>|]*?)(?P<columns>(?: \|[^>|]+)*) -->\n(?:\|.*\n)*",
    re.MULTILINE,
)
"""Matches a table, with its name, its files, and the heads of its shown columns."""


def read(name: str) -> Any:
    """Return the contents of a file of benchmarks/results."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def lines(rows: list[list[str]]) -> str:
    """Format a table in Markdown."""
    head, *body = rows
    texts = [head, ["---"] * len(head), *body]
    return "".join(
        f"|{'|'.join(cells)}|\n" if cells[0] == "---" else _line(cells)
        for cells in texts
    )


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |").replace("|  |", "| |")


def written(text: str) -> str:
    """Return a page with its tables made anew."""

    def made(match: re.Match[str]) -> str:
        name, files, columns = match.groups()
        rows = TABLES[name](*map(read, files.split()))
        shown = [one.strip() for one in columns.split("|")[1:]] or rows[0]
        places = [rows[0].index(one) for one in shown]
        some = [[row[place] for place in places] for row in rows]
        return f"<!-- table: {name} {files}{columns} -->\n" + lines(some)

    return MARKED.sub(made, text)


def cells(table: str, column: str, *files: str, rows: str = "") -> list[float]:
    """Return the numbers in a column of a table, such as 17 for "17x", for sentences.

    `rows`: a regular expression that the first cells of the rows match.
    """
    head, *body = TABLES[table](*map(read, files))
    place = head.index(column)
    texts = [row[place] for row in body if re.search(rows, row[0])]
    found = [re.search(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?", text) for text in texts]
    return [float(one[0].replace(",", "")) for one in found if one]
