"""Runs a call in a forked process, on given cores, and measures its time and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Measured(NamedTuple):
    """Result and costs of a call.

    Attributes
    ----------
    found : Any
    cpu, wall : float
        Seconds of all cores, and by the clock.
    memory : int
        Largest number of resident bytes, less the bytes before the call.
    """

    found: Any
    cpu: float
    wall: float
    memory: int


def run_forked(call: Callable[[], Any], cores: int | None = None) -> Measured:
    """Return what a call takes in a process of its own; `cores`: how many it may use,
    None: as this one.
    """
    context = get_context("fork")
    receiver, sender = context.Pipe(False)
    process = context.Process(target=_run, args=(call, cores, sender))
    process.start()
    sender.close()
    measured: Measured = receiver.recv()
    process.join()
    return measured


def _run(call: Callable[[], Any], cores: int | None, connection: Any) -> None:
    if cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    RESET.write_text("5")
    before, cpu, wall = _resident("VmRSS"), time.process_time(), time.perf_counter()
    found = call()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    connection.send(Measured(found, cpu, wall, _resident("VmHWM") - before))


def _resident(name: str) -> int:
    (line,) = (
        line for line in STATUS.read_text().splitlines() if line.startswith(name)
    )
    return int(line.split()[1]) * 1024
