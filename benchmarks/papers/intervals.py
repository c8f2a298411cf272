"""``python -m benchmarks papers.intervals``: how long the scanned intervals of LSS are.

Counts of uniform rows, which are the same on every machine: the mean number of rows in
an interval as a share of all rows, by number of lists and `eps`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import dask_simjoin  # noqa: F401
from benchmarks.harness.ours import VERSION
from benchmarks.harness.report import environment, write
from dask_simjoin import methods

ROWS, DIMS = 65_536, 16

SETTINGS = ((3, 0.1), (5, 0.05), (5, 0.1), (9, 0.2), (17, 0.1))
"""Numbers of lists, and `eps`."""


def main() -> int:
    """Run all settings."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks papers.intervals", description=__doc__
    )
    parser.add_argument("--output", type=Path, help="JSON file (standard output)")
    options = parser.parse_args()
    x = np.random.default_rng(0).random((ROWS, DIMS))
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(DIMS)])
    runs = []
    for lists, eps in SETTINGS:
        found = frame.simjoin.profile(eps, method=methods.ZOrder(lists=lists)).numbers
        share = found["interval_mean"] / ROWS
        runs.append({"lists": lists, "eps": eps, "share": share, **found})
        print(lists, eps, f"{share:.4g}", file=sys.stderr, flush=True)
    told = {"environment": environment((), VERSION), "rows": ROWS, "dims": DIMS}
    write(told | {"runs": runs}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
