"""What a cluster's workers did when: seconds of tasks by their names, and how many ran at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from dask.utils import key_split


def timeline(stream: Iterable[Mapping[str, Any]], begun: float, ended: float) -> dict[str, Any]:
    """Sum up a task stream of `Client.get_task_stream` from one time to another (`time.time()`).

    "tasks": of each name their number, seconds of computing and of all else (what they waited for from
    other workers, most of all), and when the first one began and the last one ended; in the order of the
    former.  "at_a_time": for each number of tasks the seconds in which so many were computing.
    """
    found: dict[str, list[float]] = {}
    changes = [(begun, 0), (ended, 0)]
    for one in stream:
        name = key_split(one["key"]).removeprefix("simjoin_")
        for some in one["startstops"]:
            start, stop = some["start"], some["stop"]
            if some["action"] != "compute":
                told = found.setdefault(name, [0, 0.0, 0.0, start - begun, stop - begun])
                told[2] += stop - start
                continue
            changes += [(start, 1), (stop, -1)]
            told = found.setdefault(name, [0, 0.0, 0.0, start - begun, stop - begun])
            told[0], told[1] = told[0] + 1, told[1] + stop - start
            told[3], told[4] = min(told[3], start - begun), max(told[4], stop - begun)
    changes.sort()
    at_a_time: dict[int, float] = {}
    running = 0
    for (since, change), (until, _) in pairwise(changes):
        running += change
        at_a_time[running] = at_a_time.get(running, 0.0) + until - since
    tasks = {name: [round(value, 4) for value in told] for name, told in found.items()}
    return {
        "tasks": dict(sorted(tasks.items(), key=lambda one: one[1][3])),
        "at_a_time": {number: round(at_a_time[number], 4) for number in sorted(at_a_time)},
    }
