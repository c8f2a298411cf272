"""Tables of the documentation, made from what benchmarks wrote to benchmarks/results.

In a page ``<!-- table: NAME FILE ... -->`` stands before a table, with the files it is
made of.  A new measurement is shown by naming its file there and running ``python -m
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

MARKED = re.compile(r"^<!-- table: (\S+) ([^>]*) -->\n((?:\|.*\n)*)", re.MULTILINE)


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
        name, files, _ = match.groups()
        return f"<!-- table: {name} {files} -->\n" + lines(
            TABLES[name](*map(read, files.split()))
        )

    return MARKED.sub(made, text)
