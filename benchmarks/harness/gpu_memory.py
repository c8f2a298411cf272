"""Looks again and again at how much memory of GPUs is in use, whoever allocated it.

``python -m benchmarks.harness.gpu_memory BUS...`` is what `Sampled` starts: a process
of its own, since a thread would wait while a library holds the interpreter's lock.  It
sees what RMM does not: memory that is allocated elsewhere, and loaded kernels.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

EVERY = 0.001
"""Seconds between two samples."""


class Sampled:
    """A context that samples the memory of GPUs.

    Attributes
    ----------
    found : dict
        After it: bus id -> bytes in use "before", at "peak" and "above" (their
        difference), and the number of "looks"; or "failed".
    """

    def __init__(self, buses: Sequence[str]) -> None:
        self.found: dict[str, Any] = {}
        command = [sys.executable, "-m", "benchmarks.harness.gpu_memory", *buses]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def __enter__(self) -> Sampled:
        assert self._process.stdout is not None
        # a line means that sampling has begun, or has failed
        self._process.stdout.readline()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            # communicate() closes the sampler's input, which ends it
            out, complaints = self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            out, complaints = self._process.communicate()
        if self._process.returncode:
            self.found = {"failed": " ".join(complaints.strip().splitlines()[-1:])}
        else:
            self.found = json.loads(out.splitlines()[-1])


def main(buses: list[str]) -> None:
    """Sample until standard input ends, then print the result as JSON."""
    import pynvml

    pynvml.nvmlInit()
    devices = {bus: pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode()) for bus in buses}

    def used() -> dict[str, int]:
        return {
            bus: int(pynvml.nvmlDeviceGetMemoryInfo(device).used)
            for bus, device in devices.items()
        }

    before = used()
    peak = dict(before)
    print("looking", flush=True)
    looks = 0
    while not select.select([sys.stdin], [], [], EVERY)[0]:
        now = used()
        peak = {bus: max(peak[bus], now[bus]) for bus in buses}
        looks += 1
    seen = {
        bus: {
            "before": before[bus],
            "peak": peak[bus],
            "above": peak[bus] - before[bus],
            "looks": looks,
        }
        for bus in buses
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1:])
