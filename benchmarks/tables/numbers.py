"""Numbers in sentences, checked against the results that they come from.

Marks are HTML comments, which no reader sees, behind the numbers that they stand for::

    takes 0.043 s<!-- = joins/2026-11-22-epyc: rows.unif2d.tools.engine.median -->
    4 to 8 times as fast<!-- = joins/2026-11-22-epyc: low, high -->
    published: 2.9 to 7.4 times<!-- published 2 -->
    workers of 700 MB<!-- fixed -->

``=`` names a file of benchmarks/results and an expression for each number, which must
round to what the page shows.  An expression is Python: names are keys of the file;
``rows(eps=0.1)`` takes the entries of a list with such values; a key of a list gives
that of each entry; ``file("...")`` is another result; ``cells(table, column, files)``
are the numbers in a column of a table that the page may not show; `FUNCTIONS` are known.

``published`` stands for numbers of other people's papers, ``fixed`` for definitions,
limits and settings; both for one number, or as many as they say, or on a line of their
own for the table or paragraph that follows.  A number without a mark is an error, unless
benchmarks/numbers.json declares it (see `declared`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results"

NUMBER = r"(?<![\w.,])(?:\d[\d,]*\d|\d)?(?:\.\d+)?(?<=\d)"
BETWEEN = r"(?:,? and |,? to |,? or |, | \+ |/)"
UNITS = r"(?:s|ms|us|ns|x|times|%|seconds?|minutes?|hours?|[kMGT]i?B(?:/s)?|[TG]FLOP/s|Gbit/s)"

CHAIN = rf"{NUMBER}(?:{BETWEEN}{NUMBER})*"
MEASURED = re.compile(rf"{CHAIN}[ ]?{UNITS}(?![\w/-])")
"""Matches a measurement: a number, or several, and a unit."""

BEFORE = re.compile(rf"({CHAIN})(?:[ ]?{UNITS})?\W*$")
"""Matches numbers right before a mark, with or without a unit."""

CELL = re.compile(rf"(?<=\|) *(?:{CHAIN}[ ]?{UNITS}?|\.\d+) *(?=\|)")
"""Matches a cell of a table that has only numbers."""

MARK = re.compile(
    r"<!-- (?:= (?P<file>[\w./-]+): (?P<expression>.+?)|(?P<kind>published|fixed)(?: (?P<number>\d+))?) -->",
    re.DOTALL,
)

HIDDEN = re.compile(
    r"(?P<mark><!-- (?:= |published|fixed).*?-->)"
    r"|^```.*?^```|`[^`\n]+`"  # code
    # generated tables, other comments
    r"|^<!-- (?:table: .*?|versions) -->\n+(?:\|[^\n]*\n)*|<!--.*?-->"
    r"|(?<=\])\([^)\s]+\)|(?<=\])\[[^\]]*\]"  # targets of links
    r"|'\d+ [kMGT]i?B'",  # values of options
    re.DOTALL | re.MULTILINE,
)
"""Matches text that is not prose: code, generated tables, targets of links, other
comments.
"""


def _cells(table: str, column: str, *files: str, rows: str = "") -> np.ndarray:
    """Return the numbers in a column of a table: see `benchmarks.tables.cells`."""
    from benchmarks.tables import cells

    return np.array(cells(table, column, *files, rows=rows))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cells": _cells,
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "median": np.median,
    "sum": np.sum,
    "round": np.round,
    "len": len,
    "int": int,
    "sorted": sorted,
    "array": np.array,
    "fastest": lambda tools, *own: min(
        one.median for name, one in tools.items() if name not in own and "median" in one
    ),
}


class Found:
    """A part of a result, with keys as attributes and list entries by their values."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):
            raise AttributeError(key)
        return self[key]

    def __getitem__(self, key: Any) -> Any:
        value = self._value
        if isinstance(value, list) and isinstance(key, str):
            found = [one[key] for one in value if key in one]
            if value and not found:
                raise KeyError(f"no entry has {key!r}")
            return shown(found)
        if isinstance(value, dict) and key not in value:
            raise KeyError(f"{key!r} is none of {list(value)[:20]}")
        return shown(value[key])

    def __call__(self, **having: Any) -> Any:
        found = [
            one
            for one in self._value
            if all(one.get(key) == value for key, value in having.items())
        ]
        if not found:
            raise KeyError(f"no entry has {having}")
        return Found(found)

    def __len__(self) -> int:
        return len(self._value)

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def items(self) -> list[tuple[str, Any]]:
        """Return keys and values, for loops."""
        return [(key, shown(value)) for key, value in self._value.items()]

    def values(self) -> Found:
        """Return the values of a part with keys, as a list."""
        return Found(list(self._value.values()))

    def each(self) -> list[Any]:
        """Return the same values one by one, for loops."""
        found = self._value.values() if isinstance(self._value, dict) else self._value
        return [shown(one) for one in found]


def shown(value: Any) -> Any:
    """Return numbers as they are, lists of numbers as arrays, and all else as `Found`."""
    if (
        isinstance(value, list)
        and value
        and all(isinstance(one, int | float | None) for one in value)
    ):
        return np.array([one for one in value if one is not None], float)
    return Found(value) if isinstance(value, dict | list) else value


@cache
def read(name: str) -> Any:
    """Read a file of benchmarks/results."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def file(name: str) -> Found:
    """Return another result within an expression."""
    return Found(read(name))


def evaluated(name: str, expression: str) -> list[float]:
    """Return the numbers that an expression gives of a result."""
    found = read(name)
    names = {key: shown(value) for key, value in found.items() if key.isidentifier()}
    known = names | FUNCTIONS | {"it": Found(found), "file": file, "__builtins__": {}}
    told = eval(expression, known)
    each = told if isinstance(told, tuple) else (told,)
    return [float(value) for one in each for value in np.ravel(one)]


def agrees(text: str, value: float) -> bool:
    """Return whether a text shows a number, rounded."""
    digits = len(text.partition(".")[2])
    half = 0.5 * 10.0**-digits
    return abs(float(text.replace(",", "")) - value) <= half * (1 + 1e-9)


def problems(text: str) -> Iterator[str]:
    """Yield errors: numbers of a page that differ from their results, and marks that
    stand for no number.
    """
    text = HIDDEN.sub(
        lambda match: match["mark"] or re.sub(r"[^\n|]", " ", match[0]), text
    )
    for start, part in paragraphs(text):
        line = text.count("\n", 0, start) + 1
        for problem in _of_paragraph(part):
            yield f"{line}: {problem}"


def marked(text: str) -> dict[int, str]:
    """Return the places of the numbers of a page that have a mark, with its kind:
    "published", "fixed", or "tied" to a result.
    """
    text = HIDDEN.sub(
        lambda match: match["mark"] or re.sub(r"[^\n|]", " ", match[0]), text
    )
    found: dict[int, str] = {}
    for start, part in paragraphs(text):
        alone = re.match(r"<!-- (published|fixed) -->\n", part)
        bare = MARK.sub(lambda match: " " * len(match[0]), part)
        if alone:
            found |= {
                start + number.start(): alone[1]
                for number in re.finditer(NUMBER, bare)
                if number[0]
            }
            continue
        done = 0
        for mark in MARK.finditer(part):
            known = _before(bare, done, mark.start())
            wanted = _number_of(mark)
            for place, _ in known[len(known) - wanted :] if wanted else ():
                found[start + place] = mark["kind"] or "tied"
            done = mark.end()
    return found


def _before(bare: str, done: int, end: int) -> list[tuple[int, str]]:
    """Return the numbers between two marks that the second may stand for."""
    before = BEFORE.search(bare, done, end)
    near = [
        (before.start(1) + number.start(), number[0])
        for number in (re.finditer(NUMBER, before[1]) if before else ())
        if number[0]
    ]
    measured = [
        (match.start() + number.start(), number[0])
        for kind in (MEASURED, CELL)
        for match in kind.finditer(bare)
        for number in re.finditer(NUMBER, match[0])
        if number[0]
    ]
    return sorted({one for one in (*measured, *near) if done <= one[0] < end})


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Split at empty lines, and before a mark on a line of its own."""
    for match in re.finditer(r"(?:^(?!\s*$).*\n?)+", text, re.MULTILINE):
        yield match.start(), match[0]


def _of_paragraph(text: str) -> Iterator[str]:
    alone = re.match(r"<!-- (?:published|fixed) -->\n", text)
    if alone:
        return
    bare, done = MARK.sub(lambda match: " " * len(match[0]), text), 0
    for mark in MARK.finditer(text):
        known = _before(bare, done, mark.start())
        yield from _checked(mark, [number for _, number in known])
        done = mark.end()


def _number_of(mark: re.Match[str]) -> int:
    if mark["kind"]:
        return int(mark["number"] or 1)
    try:
        return len(evaluated(mark["file"], mark["expression"]))
    except Exception:
        return 0  # `_checked` reports it


def _checked(mark: re.Match[str], numbers: list[str]) -> Iterator[str]:
    if mark["kind"]:
        if len(numbers) < _number_of(mark):
            yield f"{mark[0]} stands for {_number_of(mark)} numbers, and there are {len(numbers)}"
        return
    try:
        values = evaluated(mark["file"], mark["expression"])
    except Exception as error:
        yield f"{mark[0]}: {type(error).__name__}: {error}"
        return
    if not values:
        yield f"{mark[0]} has no value"
    if len(values) > len(numbers):
        yield f"{mark[0]} has {len(values)} values, and there are {len(numbers)} numbers"
        return
    for text, value in zip(numbers[len(numbers) - len(values) :], values, strict=True):
        if not agrees(text, value):
            yield f"{text} is {value:.6g} in {mark['file']}: {mark['expression']}"
