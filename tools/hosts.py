"""Hosts on one machine, with networks between them that are as slow as you like.

Each host is a network namespace of Linux with an address, a folder and worker processes
of its own. A cable and a bridge connect it to the scheduler, and `tc` limits the rate of
the cable. `python -m tools.hosts` checks joins on such hosts while hosts vanish, are
slow, or have a full disk. It needs root, and the programs `ip` and `tc`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, wait

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.harness.lazy import known, save
from tools import ROOT

NET = "10.77.0"
BRIDGE = "simjoin0"
PORT = 8786
PYTHON = (sys.executable, "-m")


def missing() -> str:
    """Return why this machine cannot have such hosts; "" if it can."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    for program in ("ip", "tc", "mount"):
        if shutil.which(program) is None:
            return f"there is no program {program!r}"
    made = subprocess.run(
        ["ip", "link", "add", BRIDGE, "type", "bridge"], capture_output=True, text=True
    )
    if made.returncode:
        return made.stderr.strip() or "ip cannot make a bridge"
    _run("ip", "link", "del", BRIDGE)
    return ""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@dataclass
class Host:
    """A host: its namespace, and the processes that run there."""

    number: int
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the namespace, and of the cable."""
        return f"simjoin-h{self.number}"

    def limit(self, rate: str) -> None:
        """Limit the rate of the cable in both directions, for example to "1gbit"."""
        inside = ("ip", "netns", "exec", self.name)
        how = ("tbf", "rate", rate, "burst", "256kb", "latency", "400ms")
        for prefix, cable in (((), self.name), (inside, "eth0")):
            _run(*prefix, "tc", "qdisc", "replace", "dev", cable, "root", *how)

    def start(self, workers: int, threads: int, memory: str) -> None:
        """Start worker processes on this host, with the configuration of Dask here."""
        command = [
            *("ip", "netns", "exec", self.name),
            *PYTHON,
            "distributed.cli.dask_worker",
            f"tcp://{NET}.254:{PORT}",
            *("--nworkers", str(workers), "--nthreads", str(threads)),
            *("--host", f"{NET}.{self.number + 1}"),
            *("--local-directory", str(self.folder)),
            *("--memory-limit", memory, "--no-dashboard", "--death-timeout", "60"),
        ]
        log = self.folder.parent / f"{self.name}.log"
        self.processes.append(_started(command, log))

    def cut(self) -> None:
        """Cut the cable: the host vanishes, and no connection is closed."""
        _run("ip", "link", "set", self.name, "down")

    def sent(self) -> int:
        """Return the bytes that this host has sent."""
        counter = Path(f"/sys/class/net/{self.name}/statistics/rx_bytes")
        return int(counter.read_text())


@dataclass
class Hosts:
    """Some hosts, and a client of the scheduler."""

    each: list[Host]
    client: Client

    def sent(self) -> int:
        """Return the bytes that all hosts have sent."""
        return sum(host.sent() for host in self.each)


@contextlib.contextmanager
def hosts(
    number: int,
    *,
    workers: int = 2,
    threads: int = 1,
    rate: str = "1gbit",
    memory: str = "2GiB",
    small_disk: str | None = None,
    timeout: str = "20s",
) -> Iterator[Hosts]:
    """Make hosts with workers, and remove them at the end.

    `small_disk`: size of the disk of the last host, such as "4m". `timeout`: the
    scheduler gives a worker up after this time without a message.
    """
    settings = {
        "distributed.scheduler.worker-ttl": timeout,
        "distributed.comm.timeouts.tcp": timeout,
        "distributed.comm.timeouts.connect": timeout,
    }
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        stack.callback(_run, "ip", "link", "del", BRIDGE)
        _run("ip", "addr", "add", f"{NET}.254/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        stack.enter_context(dask.config.set(settings))
        command = [*PYTHON, "distributed.cli.dask_scheduler", "--no-dashboard"]
        command += ["--host", f"{NET}.254", "--port", str(PORT)]
        scheduler = _started(command, folder / "scheduler.log")
        stack.callback(_end, scheduler)
        made = []
        for n in range(number):
            host = Host(n, folder / f"host{n}")
            host.folder.mkdir()
            stack.callback(_remove, host)
            _connect(host)
            host.limit(rate)
            if small_disk is not None and n == number - 1:
                _run(
                    *("mount", "-t", "tmpfs", "-o", f"size={small_disk}"),
                    *("tmpfs", str(host.folder)),
                )
                stack.callback(_run, "umount", "-l", str(host.folder))
            host.start(workers, threads, memory)
            made.append(host)
        client = stack.enter_context(Client(f"tcp://{NET}.254:{PORT}", timeout=60))
        client.wait_for_workers(number * workers, timeout=120)
        yield Hosts(made, client)


def _started(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process with the configuration of Dask here."""
    config = dask.config.serialize(dask.config.global_config)
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "DASK_INTERNAL_INHERIT_CONFIG": config,
    }
    with log.open("wb") as written:
        return subprocess.Popen(command, env=env, stdout=written, stderr=written)


def _connect(host: Host) -> None:
    inside = ("ip", "netns", "exec", host.name)
    _run("ip", "netns", "add", host.name)
    _run(
        *("ip", "link", "add", host.name, "type", "veth"),
        *("peer", "name", "eth0", "netns", host.name),
    )
    _run("ip", "link", "set", host.name, "master", BRIDGE, "up")
    address = f"{NET}.{host.number + 1}/24"
    _run(*inside, "ip", "addr", "add", address, "dev", "eth0")
    for device in ("lo", "eth0"):
        _run(*inside, "ip", "link", "set", device, "up")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _remove(host: Host) -> None:
    for process in host.processes:
        _end(process)
    subprocess.run(["ip", "netns", "del", host.name], check=False, capture_output=True)
    subprocess.run(["ip", "link", "del", host.name], check=False, capture_output=True)


def points(rows: int, partitions: int = 16) -> dd.DataFrame:
    """Return uniform rows with three neighbors each on average, made on the workers."""
    width = (rows * np.pi / 6) ** 0.5
    size = -(-rows // partitions)

    def part(n: int) -> pd.DataFrame:
        rng = np.random.default_rng(n)
        xy = rng.random((min(size, rows - n * size), 2)) * width
        frame = pd.DataFrame(xy, columns=["x", "y"])
        return frame.assign(key=np.arange(n * size, n * size + len(xy)))

    return dd.from_map(part, range(partitions), meta=part(0).iloc[:0])


def pairs_of(frame: dd.DataFrame) -> int:
    """Count the pairs that a self-join returns."""
    found = frame.simjoin.self_join(1.0, on=["x", "y"], id="key")
    return len(found)


JOBS: dict[str, Callable[[dd.DataFrame], int]] = {
    "self_join": pairs_of,
    "count_pairs": lambda f: int(f.simjoin.count_pairs(1.0, on=["x", "y"]).compute()),
    "dbscan": lambda f: int(f.simjoin.dbscan(1.0, 4, on=["x", "y"]).max().compute()),
}


def vanish(made: Hosts) -> None:
    """Cut the cable of the last host."""
    made.each[-1].cut()


def slow_down(made: Hosts) -> None:
    """Give the last host a cable of a hundredth of the rate."""
    made.each[-1].limit("10mbit")


FAULTS: dict[str, tuple[Callable[[Hosts], None] | None, dict[str, Any]]] = {
    "none": (None, {}),
    "a host vanishes": (vanish, {}),
    "a slow host": (slow_down, {}),
    # so little memory that workers write to the disk, and one disk that is full at once
    "a full disk": (None, {"small_disk": "1m", "memory": "500MiB"}),
}


RATES = ("10gbit", "1gbit", "100mbit")

ROW_BYTES = {"self_join": 24, "count_pairs": 16, "dbscan": 16 + 8}
"""Bytes that each job needs of a row that moves: two coordinates, and an id or a label
that moves back.
"""


def measured(rows: int, workers: int, wanted: dict[str, int]) -> list[dict[str, Any]]:
    """Run all jobs at all rates, on rows that the workers hold. Return seconds and
    bytes.

    `least`: the rows of each region are on all hosts, so all rows must leave their host
    but the share that is on the right one.
    """
    found = []
    number = 4
    with hosts(number, workers=workers) as made:
        frame = points(rows).persist()
        wait(frame)
        for rate in RATES:
            for host in made.each:
                host.limit(rate)
            for name, job in JOBS.items():
                began, before = time.monotonic(), made.sent()
                right = job(frame) == wanted[name]
                least = rows * ROW_BYTES[name] * (1 - 1 / number)
                found.append(
                    {
                        "rate": rate,
                        "job": name,
                        "right": right,
                        "seconds": round(time.monotonic() - began, 2),
                        "bytes": made.sent() - before,
                        "least": int(least),
                    }
                )
                print(json.dumps(found[-1]), flush=True)
    return found


def tried(
    fault: str, rows: int, workers: int, wanted: dict[str, int]
) -> dict[str, str]:
    """Run all jobs with a fault, which comes a second after a job has begun."""
    happens, options = FAULTS[fault]
    told = {}
    for name, job in JOBS.items():
        with hosts(4, workers=workers, **options) as made:
            frame = points(rows)
            began = time.monotonic()
            if happens is not None:
                made.client.loop.call_later(1.0, happens, made)
            try:
                found = job(frame)
                right = found == wanted[name]
                told[name] = "right" if right else f"WRONG: {found}, {wanted[name]}"
            except Exception as error:
                told[name] = f"{type(error).__name__}: {error}"
            told[name] += f", {time.monotonic() - began:.1f} s"
    return told


def main() -> int:
    """Try all faults, and print what comes of them."""
    parser = argparse.ArgumentParser(prog="python -m tools.hosts", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--workers", type=int, default=2, help="of each host")
    parser.add_argument("--faults", nargs="*", choices=FAULTS, default=list(FAULTS))
    parser.add_argument(
        "--rates", action="store_true", help="measure jobs at all rates before"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    options = parser.parse_args()
    if why := missing():
        print(f"This machine cannot have such hosts: {why}.", file=sys.stderr)
        return 2
    with dask.config.set(scheduler="threads"):
        wanted = {name: job(points(options.rows)) for name, job in JOBS.items()}
    failed, where = 0, known()
    rates: list[dict[str, Any]] = []
    faults: dict[str, dict[str, str]] = {}
    if options.rates:
        rates = measured(options.rows, options.workers, wanted)
        failed += sum(not one["right"] for one in rates)
    for fault in options.faults:
        faults[fault] = tried(fault, options.rows, options.workers, wanted)
        for name, what in faults[fault].items():
            failed += "WRONG" in what
            print(f"{fault}, {name}: {what}", flush=True)
    if options.output is not None:
        report = {"rates": rates, "faults": faults}
        save("hosts", where, options, report, options.output)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
