"""Watch the workers of a LocalCluster: memory, spilled bytes, files, restarts and
messages.
"""

from __future__ import annotations

import collections
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from distributed import LocalCluster, Status

from benchmarks.harness.lazy import running

EVERY = 0.2
"""Seconds between two samples."""

KEPT = 300
"""Most samples in a report."""

KINDS = ("spill", "shuffle", "other")

SAID = 30
"""Most different messages in a report."""

NUMBER = re.compile(r"\b[0-9a-f]{32}\b|\d[\d.,:]*")
"""Matches numbers and names of shuffles, which differ between equal messages."""


def watched(
    work: Callable[[dict[str, Any]], None],
    workers: int,
    limit: int,
    patience: float,
    folder: Path,
    logs: int = logging.ERROR,
) -> dict[str, Any]:
    """Work on a fresh cluster, and watch it.

    Parameters
    ----------
    work : callable
        Puts results into a dict; an exception is reported as "failed".
    workers, limit, logs
        Processes, the memory of each in bytes, and the level of messages that count.
    patience : float
        Seconds after which it is given up.
    folder : Path
        Folder of the workers' files.
    """
    found: dict[str, Any] = {}
    heard = _Heard(logs)

    def attempt() -> None:
        try:
            work(found)
        except Exception as error:  # any error is a result of the measurement
            found["failed"] = f"{type(error).__name__}: {error}"[:500]

    with heard, running(workers, limit, logs=logs) as client:
        assert client is not None
        with Watch(client.cluster, folder) as watch:
            time.sleep(0.5)
            found["rss_before"] = watch.looks[-1]["rss"]
            # workers that cannot free memory pause and wait for ever, so a limit of
            # time is needed
            thread = threading.Thread(target=attempt, daemon=True)
            thread.start()
            thread.join(patience)
            result = dict(found)
            if thread.is_alive():
                paused = watch.looks[-1]["paused"]
                result["failed"] = (
                    f"given up after {patience:g} s, {paused} workers paused"
                )
            heard.ask(client)
        return result | {"messages": heard.report()} | watch.report()


class _Heard(logging.Handler):
    """A context that counts the messages of Dask in this process; `ask` adds the
    workers' messages.
    """

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.counts: collections.Counter[str] = collections.Counter()

    def __enter__(self) -> _Heard:
        logging.getLogger("distributed").addHandler(self)
        return self

    def __exit__(self, *error: object) -> None:
        logging.getLogger("distributed").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._hear(record.getMessage())

    def ask(self, client: Any) -> None:
        """Add the messages of workers that are alive."""
        for lines in client.get_worker_logs().values():
            for level, line in lines:
                if logging.getLevelName(level) >= self.level:
                    self._hear(line)

    def report(self) -> dict[str, int]:
        """Return the messages and how often they came, the most frequent first."""
        return dict(self.counts.most_common(SAID))

    def _hear(self, line: str) -> None:
        # messages that differ only in numbers count as one; the end of a traceback is
        # in "failed"
        text = re.sub(r"^[\d-]+ [\d:,]+ - ", "", line.strip().splitlines()[0])
        self.counts[NUMBER.sub("#", text)[:300]] += 1


class Watch:
    """A context whose thread samples a cluster's workers again and again.

    Attributes
    ----------
    peak : dict
        Worker -> largest resident set that the kernel saw, or, where it does not tell,
        that was looked at.
    pids : dict
        Worker -> the processes that it was; more than one after restarts.
    looks : list of dict
        seconds, rss (of each worker), spilled (bytes), paused (workers), and the bytes
        of files.
    """

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.peak: dict[Any, int] = {}
        self.pids: dict[Any, list[int]] = {}
        self.looks: list[dict[str, Any]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._began = time.perf_counter()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def restarts(self) -> int:
        """Return how often a worker died and restarted."""
        return sum(len(pids) - 1 for pids in self.pids.values())

    def most(self, name: str) -> int:
        """Return the largest value so far."""
        return max((look[name] for look in self.looks), default=0)

    def report(self) -> dict[str, Any]:
        """Return all samples for JSON."""
        step = -(-len(self.looks) // KEPT) or 1
        paused = sum(look["paused"] for look in self.looks)
        return {
            "peak_rss": [self.peak.get(name, 0) for name in sorted(self.pids)],
            "restarts": self.restarts,
            "spilled_peak": self.most("spilled"),
            "files_peak": {kind: self.most(kind) for kind in KINDS},
            "paused_share": paused / max(1, len(self.looks) * len(self.pids)),
            "client_peak_rss": self.most("client_rss"),
            "tasks": self._tasks(),
            "looks": self.looks[::step],
        }

    def _tasks(self) -> dict[str, dict[str, float]]:
        """List by the names of tasks how many ran, and the seconds that workers
        computed, read and moved.
        """
        return {
            name: {"number": prefix.state_counts["memory"]} | dict(prefix.all_durations)
            for name, prefix in self.cluster.scheduler.task_prefixes.items()
            if prefix.all_durations
        }

    def _run(self) -> None:
        while not self._stop.is_set():
            self._look()
            self._stop.wait(EVERY)

    def _look(self) -> None:
        rss = []
        for name, nanny in list(self.cluster.workers.items()):
            pid = nanny.pid
            seen = self.pids.setdefault(name, [])
            if pid is not None and pid not in seen:
                seen.append(pid)
            now, peak = _resident(pid)
            rss.append(now)
            self.peak[name] = max(self.peak.get(name, 0), peak)
        workers = list(self.cluster.scheduler.workers.values())
        look: dict[str, Any] = {
            "seconds": round(time.perf_counter() - self._began, 2),
            "rss": rss,
            "client_rss": psutil.Process().memory_info().rss,
            # heartbeats come twice a second, so this may be half a second old
            "spilled": sum(
                w.metrics.get("spilled_bytes", {}).get("disk", 0) for w in workers
            ),
            "paused": sum(w.status == Status.paused for w in workers),
        }
        self.looks.append(look | _files(self.folder))


def _resident(pid: int | None) -> tuple[int, int]:
    """Return the resident bytes of a process now, and the most so far; 0 if it has
    ended.
    """
    if pid is None:
        return 0, 0
    try:
        now = peak = psutil.Process(pid).memory_info().rss
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak = int(line.split()[1]) * 1024
    except (psutil.Error, OSError):
        return 0, 0
    return now, peak


def _files(folder: Path) -> dict[str, int]:
    """Return the bytes below a folder by their purpose."""
    found = dict.fromkeys(KINDS, 0)
    for where, _, names in os.walk(folder):
        # Dask's workers name their folders so
        kind = (
            "shuffle"
            if "shuffle-" in where
            else "spill"
            if "storage" in where
            else "other"
        )
        for name in names:
            try:
                found[kind] += os.stat(os.path.join(where, name)).st_size
            except OSError:  # the file has been deleted meanwhile
                continue
    return found
