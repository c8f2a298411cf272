"""Tables of joins without one of their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.tables.cells import count, rows, seconds

Found = dict[str, Any]
Rows = list[list[str]]

NAMES = {"Expo": "exponential", "Unif": "uniform", "Syn": "exponential"}
"""How the names of sets of points begin -> descriptions."""


def described(case: Found) -> str:
    """Describe the points of a case: exponential 16-D, 100k."""
    names = [long for short, long in NAMES.items() if case["data"].startswith(short)]
    return f"{(names or [case['data']])[0]} {case['dims']}-D, {rows(case['rows'])}"


def tabulated(cases: list[Found], took: Callable[[Found], float]) -> Rows:
    """Tabulate seconds without each part, how many times as long that is, and wrong
    pairs.
    """
    table = [["without", *(f"{described(case)}, s" for case in cases), "wrong pairs"]]
    names = dict.fromkeys(name for case in cases for name in case["without"])
    for name in names:
        cells, wrong = [], []
        for case in cases:
            one = case["without"].get(name, {})
            if "pairs" not in one:
                cells.append("")
                continue
            own, base = took(one), took(case["without"]["nothing"])
            ratio = f"{own / base:.2f}" if own < 9.995 * base else f"{own / base:,.0f}"
            more = "" if name == "nothing" else f" ({ratio}x)"
            cells.append(f"{seconds(own)}{more}")
            wrong.append(one["false"] + one["missed"])
        table.append(
            [name, *cells, ", ".join(map(count, wrong)) if any(wrong) else "0"]
        )
    return table


def on_cpu(found: Found) -> Rows:
    """Tabulate CPU seconds of the index and of all pairs."""
    cases = [case for case in found["results"] if "sweep" not in case["without"]]
    return tabulated(cases, lambda one: one["seconds"])


def on_gpu(found: Found, *earlier: Found) -> Rows:
    """Tabulate seconds of the kernels that join.

    `earlier`: runs of the same rows, for variants that the newest one lacks.
    """
    cases = []
    for k, case in enumerate(found["rows"]):
        older = [run["rows"][k]["without"] for run in earlier]
        new = {n: one for n, one in case["without"].items() if "pairs" in one}
        cases.append({**case, "without": new | _lacking(new, older)})
    return tabulated(cases, lambda one: one["join"]["seconds"])


def _lacking(new: Found, older: list[Found]) -> Found:
    """Return the variants that only older runs have."""
    return {
        name: one
        for run in reversed(older)
        for name, one in run.items()
        if name not in new
    }


TABLES = {"cpu-ablation": on_cpu, "gpu-ablation": on_gpu}
