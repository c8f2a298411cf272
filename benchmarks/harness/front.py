"""Rows of the front pages: calls of one row take turns, and the medians are kept.

A call is a verb on a data frame, the engine, or another tool.  A row makes its calls
for all points, or for a part of them with about as many neighbors.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PART = 10
"""Tries of variants divide the number of rows by this."""

PATIENCE = 60.0
"""If the try of a tool predicts more seconds than this, the tool is not run."""

SLOW = 5.0
"""A peer that takes more seconds, as its try predicts, has no run that does not count."""

ENOUGH = 6.0
"""Runs of a call are repeated until they have taken this many seconds together."""


def _same(run: int) -> Any:
    return run


@dataclass(frozen=True)
class Call:
    """One way to compute a row.

    Attributes
    ----------
    kind : str
        "verb", "engine" or "peer".
    variants : dict
        Settings -> function of what `prepare` returns.
    count : callable
        Number to compare, from a result; not timed.
    prepare : callable
        Makes what the functions take from the number of the run; not timed.
    exact : bool
        Whether the number must be ours.
    grows : float
        Times the seconds of a try that all rows take at least.
    """

    kind: str
    variants: dict[str, Callable[[Any], Any]]
    count: Callable[[Any], int] = len
    prepare: Callable[[int], Any] = _same
    exact: bool = True
    grows: float = PART


@dataclass(frozen=True)
class Row:
    """One row of the front pages.

    Attributes
    ----------
    what : str
        The computation.
    data : str
        The points.
    calls : callable
        The part -> name -> `Call`, for a number of rows divided by the part.
    skip : dict
        Name of a tool that is not run -> why.
    settings : str
        What the computation is given besides the points.
    """

    what: str
    data: str
    calls: Callable[[int], dict[str, Call]]
    skip: dict[str, str] = field(default_factory=dict)
    settings: str = ""


def seconds_of(
    call: Call, variant: str, run: int, clock: Callable[[], float]
) -> tuple[float, int]:
    """Return the seconds of one run, and its number."""
    given = call.prepare(run)
    gc.collect()
    began = clock()
    result = call.variants[variant](given)
    took = clock() - began
    return took, int(call.count(result))


def measure(
    row: Row,
    repeat: int,
    part: int = 1,
    clock: Callable[[], float] = time.process_time,
    told: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure all calls of a row.

    Returns
    -------
    dict
        what, data, and tools: each with kind, variant, tries, first (seconds of a run that
        does not count), seconds, median and found (the number of results); or "skipped"
        or "failed" with the reason.
    """
    tools: dict[str, dict[str, Any]] = {}
    # few rows first: the first call compiles and loads, which must not be timed
    small, every = row.calls(part * PART), row.calls(part)
    for name, call in small.items():
        tools[name] = {"kind": call.kind, "exact": call.exact}
        try:
            for variant in call.variants:
                seconds_of(call, variant, 0, clock)
            tries = {
                variant: seconds_of(call, variant, 1, clock)[0]
                for variant in call.variants
            }
        except Exception as error:  # a failure is a result too
            tools[name]["failed"] = f"{type(error).__name__}: {error}"[:200]
            continue
        best = min(tries, key=tries.__getitem__)
        tools[name] |= {"variant": best, "tries": tries, "seconds": []}
        if call.kind == "peer" and tries[best] * call.grows > PATIENCE:
            tools[name]["skipped"] = f"more than {tries[best] * call.grows:.0f} s"
    tools |= {name: {"kind": "peer", "skipped": why} for name, why in row.skip.items()}
    for run in range(repeat + 1):
        for name, call in every.items():
            one = tools[name]
            if one.keys() & {"failed", "skipped"} or sum(one["seconds"]) > ENOUGH:
                continue
            slow = one["tries"][one["variant"]] * call.grows > SLOW
            if not run and slow and call.kind == "peer":
                continue
            try:
                took, number = seconds_of(call, one["variant"], run + 2, clock)
            except Exception as error:
                one["failed"] = f"{type(error).__name__}: {error}"[:200]
                continue
            if run:
                one["seconds"].append(round(took, 6))
                one["found"] = number
            else:
                # methods for many rows may compile, too
                one["first"] = round(took, 6)
            told(f"  {name:24}{took:9.4f} s  {number:,}")
    for one in tools.values():
        if one.get("seconds"):
            one["median"] = statistics.median(one["seconds"])
    head = {"what": row.what, "data": row.data, "settings": row.settings}
    return head | {"tools": tools}


def wrong(name: str, found: dict[str, Any]) -> list[str]:
    """List own failures, and exact tools if their numbers differ."""
    tools = found["tools"]
    lines = [
        f"{name}: {tool} failed: {one['failed']}"
        for tool, one in tools.items()
        if "failed" in one and one["kind"] != "peer"
    ]
    exact = {
        tool: one["found"]
        for tool, one in tools.items()
        if one.get("exact") and "found" in one
    }
    if len(set(exact.values())) > 1:
        lines.append(f"{name}: numbers differ: {exact}")
    return lines
