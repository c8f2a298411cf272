"""Numbers that stand in pages without a mark, declared in benchmarks/numbers.json.

The file maps a page to entries with the "text" around its numbers.  An entry with "is"
names a result and an expression, as marks do, for its numbers in braces.  All others
have a "kind": "fixed" numbers are definitions, limits, settings, dates, names and sizes
of data, "published" ones are of other people, and "counted" ones are printed by a
program of tests that the page names.  An entry that is on the page several times says
how many "times".

Every number must be tied to a result by a mark or an entry, or be declared, also if it
has a mark "fixed" or "published".  So a number that is changed is always seen.

``python -m benchmarks.tables --declare`` adds what is missing, as "fixed", and removes
what is gone; read what it adds.  It leaves out numbers with a unit of measurement and
no mark, which need a result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.tables import numbers

ROOT = Path(__file__).parents[2]
FILE = ROOT / "benchmarks" / "numbers.json"

NUMBER = re.compile(r"(?<![\w.,])(?:(?:\d[\d,]*\d|\d)(?:\.\d+)?|\.\d+)")
"""Matches a number that does not belong to a name, such as float64."""

AROUND = 2
"""Words before and after a number that an entry holds."""

Entry = dict[str, Any]


def read() -> dict[str, list[Entry]]:
    """Return the entries of each page."""
    found: dict[str, list[Entry]] = json.loads(FILE.read_text())
    return found


def plain(text: str) -> tuple[str, list[int]]:
    """Return the prose of a page on one line, and the place of each character."""
    text = numbers.HIDDEN.sub(lambda match: re.sub(r"[^\n|]", " ", match[0]), text)
    kept, places, space = [], [], True
    for place, one in enumerate(text):
        if not one.isspace() or not space:
            kept.append(" " if one.isspace() else one)
            places.append(place)
        space = one.isspace()
    return "".join(kept), places


def _spans(entry: Entry, line: str) -> list[tuple[int, int]]:
    text = re.sub(r"[{}]", "", entry["text"]) if "is" in entry else entry["text"]
    words = re.escape(text)
    return [
        match.span() for match in re.finditer(rf"(?<![\d.]){words}(?!\d|[.,]\d)", line)
    ]


def problems(page: str, text: str, entries: list[Entry] | None = None) -> Iterator[str]:
    """Yield errors of a page: numbers that nothing declares, and entries that are not
    on the page or not as in their result.
    """
    entries = read().get(page, []) if entries is None else entries
    line, places = plain(text)
    known: set[int] = set()
    for entry in entries:
        spans = _spans(entry, line)
        if len(spans) != entry.get("times", 1):
            yield (
                f"1: benchmarks/numbers.json has {entry['text']!r} "
                f"{entry.get('times', 1)} times, the page {len(spans)} times"
            )
        known |= {place for span in spans for place in range(*span)}
        if "is" in entry:
            yield from _tied(entry)
    for start in _wanted(text, line, places):
        if start not in known:
            number = NUMBER.match(line, start)
            assert number is not None
            around = line[max(0, start - 40) : start + 40]
            row = text.count("\n", 0, places[start]) + 1
            yield f"{row}: {number[0]} is not declared in benchmarks/numbers.json: {around}"


def _wanted(text: str, line: str, places: list[int]) -> list[int]:
    """Return the places in the line of numbers that must be declared."""
    marks = numbers.marked(text)
    starts = (match.start() for match in NUMBER.finditer(line))
    return [start for start in starts if marks.get(places[start]) != "tied"]


def _tied(entry: Entry) -> Iterator[str]:
    shown = re.findall(r"\{([\d,.]+)\}", entry["text"])
    name, _, expression = entry["is"].partition(": ")
    try:
        values = numbers.evaluated(name, expression)
    except Exception as error:
        yield f"1: {entry['is']}: {type(error).__name__}: {error}"
        return
    if len(values) != len(shown):
        yield f"1: {entry['text']!r} has {len(shown)} numbers, its result {len(values)}"
        return
    for text, value in zip(shown, values, strict=True):
        if not numbers.agrees(text, value):
            yield f"1: {text} is {value:.6g} in {entry['is']}"


def declared(text: str, entries: list[Entry]) -> list[Entry]:
    """Return the entries of a page, without those that are gone, and with all that are
    missing.
    """
    line, places = plain(text)
    marks = numbers.marked(text)
    # what is tied to a result stays, so that the check tells of it
    kept = [entry for entry in entries if "is" in entry or _spans(entry, line)]
    known = {
        place
        for entry in kept
        for span in _spans(entry, line)
        for place in range(*span)
    }
    measured = {
        place
        for match in numbers.MEASURED.finditer(line)
        for place in range(*match.span())
    }
    parts: list[list[Any]] = []
    for start in _wanted(text, line, places):
        if start in known or (start in measured and places[start] not in marks):
            continue
        number = NUMBER.match(line, start)
        assert number is not None
        before = re.search(rf"(?:\S+ ){{0,{AROUND}}}\S*$", line[:start])
        after = re.match(rf"\S*(?: \S+){{0,{AROUND}}}", line[number.end() :])
        assert before is not None and after is not None
        kind = marks.get(places[start]) or "fixed"
        span = before.start(), number.end() + after.end()
        if parts and parts[-1][1] >= span[0] and parts[-1][2] == kind:
            parts[-1][1] = span[1]
        else:
            parts.append([*span, kind])
    new = [{"text": line[a:b], "kind": kind} for a, b, kind in parts]
    found = kept + [one for k, one in enumerate(new) if one not in new[:k]]
    for entry in found:
        entry.pop("times", None)
        if (times := len(_spans(entry, line))) > 1:
            entry["times"] = times
    return found


def write(pages: dict[str, str]) -> None:
    """Declare the numbers of pages (name -> text)."""
    old = json.loads(FILE.read_text()) if FILE.exists() else {}
    found = {
        page: entries
        for page, text in sorted(pages.items())
        if (entries := declared(text, old.get(page, [])))
    }
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
