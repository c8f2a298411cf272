"""The table of versions that were tested: docs/reference/compatibility.md is made from
the results in JSON.

`python -m tools.compatibility ROW REPORT [ARGUMENTS]` records pytest's JUnit report of a
row of compatibility.toml, with the versions that are installed. It fails if a test
failed. nox calls it.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import sys
import tomllib
import xml.etree.ElementTree as xml

from tools import ROOT

TABLE = ROOT / "compatibility.toml"
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
RESULTS = PAGE.with_suffix(".json")
PACKAGES = ("dask", "numba", "pandas", "numpy", "pyarrow")
HEAD = [
    "row",
    "Python",
    "Dask",
    "Numba",
    "pandas",
    "NumPy",
    "PyArrow",
    "passed",
    "failed",
    "skipped",
    "tests",
    "date",
]
SHOWN = 3
"""Failures of a row that are listed."""


def rows():
    """The rows of compatibility.toml."""
    return tomllib.loads(TABLE.read_text())["row"]


def results():
    """Row -> what was recorded."""
    return json.loads(RESULTS.read_text())


def versions_that_passed(package, found):
    """Versions of a package that passed all tests of a row."""
    return {
        one["versions"][package]
        for one in found.values()
        if one["passed"] and not one["failed"]
    }


def outcome(report):
    """Numbers of tests of a JUnit report, and the first lines of its failures."""
    cases = list(xml.parse(report).iter("testcase"))
    failures = [
        (case, fault)
        for case in cases
        for fault in case
        if fault.tag in ("failure", "error")
    ]
    skipped = sum(any(one.tag == "skipped" for one in case) for case in cases)
    failed = len({id(case) for case, _ in failures})
    said = [
        f"{case.get('name')}: {first_line(fault)}" for case, fault in failures[:SHOWN]
    ]
    return {
        "passed": len(cases) - skipped - failed,
        "failed": failed,
        "skipped": skipped,
        "failures": said,
    }


def first_line(fault):
    """The first line of a failure's message."""
    return next(iter((fault.get("message") or "").strip().splitlines()), "")[
        :200
    ].replace("`", "'")


def record(row, report, arguments):
    """Write the result of a row."""
    added = os.environ.get("PYTEST_ADDOPTS", "").split()
    paths = [one for one in [*arguments, *added] if one.startswith("tests")]
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found[row] = {
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        **outcome(report),
        "tests": paths or ["all"],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    order = [one["name"] for one in rows()]
    found = {name: found[name] for name in order if name in found}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    return found[row]


def table():
    """The lines of the table, and of the failures."""
    found, failures = results(), []
    lines = [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD)]
    for row in rows():
        name = row["name"]
        if name not in found:
            cells = [
                name,
                row["python"],
                *["-"] * len(PACKAGES),
                "not run",
                "-",
                "-",
                "-",
                "-",
            ]
        else:
            one = found[name]
            cells = [
                name,
                one["python"],
                *(one["versions"][package] for package in PACKAGES),
            ]
            cells += [*map(str, (one["passed"], one["failed"], one["skipped"]))]
            cells += ["all" if one["tests"] == ["all"] else "some", one["date"]]
            failures += [f"- {name}: `{text}`" for text in one["failures"]]
        lines.append(f"| {' | '.join(cells)} |")
    return lines, failures or ["No test failed."]


def written(text):
    """The page with this table and these failures."""
    lines, failures = table()
    before, _, rest = text.partition("<!-- versions -->\n")
    _, end, after = rest.partition("<!-- end -->\n")
    assert end, f"{PAGE.name} has no place for the table"
    return (
        f"{before}<!-- versions -->\n"
        + "\n".join([*lines, "", *failures])
        + f"\n\n{end}{after}"
    )


def files():
    """Path -> text of the page."""
    return {PAGE: written(PAGE.read_text())}


def main():
    """Record a report, and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.compatibility", description=__doc__
    )
    parser.add_argument("row")
    parser.add_argument("report")
    asked, arguments = parser.parse_known_args()
    one = record(asked.row, asked.report, arguments)
    PAGE.write_text(written(PAGE.read_text()))
    print(one)
    sys.exit(bool(one["failed"]) or not one["passed"])


if __name__ == "__main__":
    main()
