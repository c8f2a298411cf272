"""Runs one measurement in a process of its own: one core, one thread, nothing left of
others.

``python -m benchmarks.harness.worker TOOL ROW REPEAT QUICK`` is what `measure_apart`
starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "PARLAY_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
PATIENCE = 300
"""A measurement is given up after this many seconds."""


def run_apart(command: list[str], patience: float) -> dict[str, Any]:
    """Return the JSON that a process on one thread prints last, or "failed"."""
    environment = os.environ | dict.fromkeys(THREADS, "1")
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"given up after {patience:g} s"}
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        return {"failed": f"exit status {done.returncode}: {' '.join(last)}"}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure_apart(tool: str, row: str, repeat: int, quick: bool) -> dict[str, Any]:
    """Measure in a new process; without a result the key is "failed"."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.harness.worker",
        tool,
        row,
        str(repeat),
        str(int(quick)),
    ]
    result = run_apart(command, PATIENCE)
    if "failed" in result:
        return result
    # a load above 1 means that another process ran as well and may have slowed this one
    # down
    return result | {"load": round(os.getloadavg()[0], 2)}


def pin(number: int = 0) -> None:
    """Stay on one core, if the system allows it: the last one, or the one that is
    `number` cores before it.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1 - number]})


def main() -> None:
    """Run one measurement and print it as JSON."""
    pin()
    # imported late: libraries count cores and read the environment when they are
    # imported
    from benchmarks.harness.points import ROWS
    from benchmarks.harness.timing import measure
    from benchmarks.peers.joins import PEERS

    name, row, repeat, quick = sys.argv[1:]
    chosen = ROWS[row].quick() if int(quick) else ROWS[row]
    if name in PEERS:
        tool = PEERS[name]
    else:
        from benchmarks.harness.ours import OURS

        tool = OURS[name]
    print(json.dumps(measure(tool, chosen, int(repeat))))


if __name__ == "__main__":
    main()
