"""Timeline of a cluster's workers: seconds of tasks by their names, and how many ran at
a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from dask.utils import key_split

PAUSES = 8
"""The number of longest idle times that are reported."""


def timeline(
    stream: Iterable[Mapping[str, Any]], begun: float, ended: float
) -> dict[str, Any]:
    """Sum up a task stream of `Client.get_task_stream` from one time to another
    (`time.time()`).

    "tasks": of each name their number, seconds of computing and of all else (what they
    waited for from other workers, most of all), and when the first one began and the
    last one ended; in the order of the former.  "at_a_time": for each number of tasks
    the seconds in which so many were computing.  "pauses": when nothing was, for how
    long, and what came before and after.
    """
    found: dict[str, list[float]] = {}
    computed: list[tuple[float, float, str]] = []
    for one in stream:
        name = key_split(one["key"]).removeprefix("simjoin_")
        for some in one["startstops"]:
            start, stop = some["start"] - begun, some["stop"] - begun
            told = found.setdefault(name, [0, 0.0, 0.0, start, stop])
            if some["action"] != "compute":
                told[2] += stop - start
                continue
            computed.append((start, stop, name))
            told[0], told[1] = told[0] + 1, told[1] + stop - start
            told[3], told[4] = min(told[3], start), max(told[4], stop)
    tasks = {name: [round(value, 4) for value in told] for name, told in found.items()}
    return {
        "tasks": dict(sorted(tasks.items(), key=lambda one: one[1][3])),
        "at_a_time": at_a_time(computed, ended - begun),
        "pauses": pauses(computed, ended - begun),
    }


def at_a_time(
    computed: list[tuple[float, float, str]], whole: float
) -> dict[int, float]:
    """Return seconds by the number of tasks that ran together; a task is a pair of
    times.
    """
    changes = [(0.0, 0), (whole, 0)]
    for start, stop, _ in computed:
        changes += [(start, 1), (stop, -1)]
    found: dict[int, float] = {}
    running = 0
    for (since, change), (until, _) in pairwise(sorted(changes)):
        running += change
        found[running] = found.get(running, 0.0) + until - since
    return {number: round(found[number], 4) for number in sorted(found)}


def pauses(
    computed: list[tuple[float, float, str]], whole: float
) -> list[tuple[float, float, str, str]]:
    """List when no task ran, for how long, longest first, and the tasks before and
    after.
    """
    found, last, name = [], 0.0, "begin"
    for start, stop, following in [*sorted(computed), (whole, whole, "end")]:
        if start > last:
            found.append((round(last, 4), round(start - last, 4), name, following))
        if stop > last:
            last, name = stop, following
    return sorted(found, key=lambda one: -one[1])[:PAUSES]
