"""Remove files of runs on a cluster that are over, however they ended.

A worker that is killed leaves files, and so does a task that is cancelled while it runs.  Only the scheduler
knows whether a run is still wanted, so the client asks it, as long as there are files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from distributed import Client

EVERY = 1.0
"""Seconds between looks."""

ELSEWHERE = 10
"""Looks at this machine for each at those of workers on others."""

AFTER = 30
"""Looks once the client is closed: tasks may run on until their worker is gone."""

LABEL = "simjoin_optics"
"""With which the names of the tasks begin."""

RUNNING = ("waiting", "queued", "processing", "no-worker")

HELD = ("edges", "gather")
"""Steps whose results are files."""

_swept: weakref.WeakKeyDictionary[Client, set[str]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def sweep(client: Client, directory: str) -> None:
    """From now on remove folders in this directory once their runs on the client's cluster are over.

    Names of folders begin with the token in the names of the run's tasks.
    """
    with _lock:
        known = _swept.setdefault(client, set())
        if directory in known:
            return
        known.add(directory)
    what = weakref.ref(client), directory
    threading.Thread(target=_keep_sweeping, args=what, name="simjoin-sweep", daemon=True).start()


def _keep_sweeping(client_of: Callable[[], Client | None], directory: str) -> None:
    look = 0
    while True:
        time.sleep(EVERY)
        client = client_of()
        if client is None or client.status == "closed":
            break
        with contextlib.suppress(Exception):  # whatever keeps the scheduler from answering: ask again
            _sweep(client, directory, elsewhere=look % ELSEWHERE == 0)
        del client
        look += 1
    for _ in range(AFTER):
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(EVERY)


def _sweep(client: Client, directory: str, elsewhere: bool) -> None:
    """Remove what is over."""
    found = folders(directory)
    others = set()
    if elsewhere:
        told = client.run(_told, directory, on_error="ignore")
        others = {name for host, names in told.values() if host != socket.gethostname() for name in names}
    if not found and not others:
        return
    over = client.run_on_scheduler(_over, sorted({name.split("-")[0] for name in {*found, *others}}))
    remove(directory, [name for name in found if name.split("-")[0] in over])
    gone = [name for name in others if name.split("-")[0] in over]
    if gone:
        client.run(remove, directory, gone, on_error="ignore")


def folders(directory: str) -> list[str]:
    """List the folders there."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


def remove(directory: str, names: list[str]) -> None:
    """Remove folders there, with all that is in them."""
    for name in names:
        shutil.rmtree(os.path.join(directory, name), ignore_errors=True)


def _told(directory: str) -> tuple[str, list[str]]:
    return socket.gethostname(), folders(directory)


def _over(tokens: list[str], dask_scheduler: Any) -> list[str]:
    """List those of the runs of which no task will read or write files."""
    groups = dask_scheduler.task_groups

    def any_in(step: str, token: str, states: tuple[str, ...]) -> bool:
        group = groups.get(f"{LABEL}_{step}-{token}")
        return group is not None and any(group.states.get(state) for state in states)

    return [
        token
        for token in tokens
        if not any(any_in(step, token, (*RUNNING, "memory")) for step in HELD)
        and not any_in("visit", token, RUNNING)
    ]
