"""Run programs of other authors that join on a GPU, read their output, and compare
their pairs with ours.

The programs lie in one folder, with `rivals.json`, which says how they were built. They
read rows of float32. Their authors' code is patched so that it times itself. Each run
prints one line to stderr, such as ``RUN kernels 0.1 total 0.2 found 30 stored 30``.
`found` counts both orders of a pair, and each row with itself. If `RIVAL_PAIRS` names a
file, one more run writes its pairs there, as int32.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness.repeats import summary

LONG = 2.5
"""If a run takes more seconds, it is not repeated."""

LIMIT = 90.0
"""A program is stopped after this many seconds."""

VALUES = 1 << 26
"""Coordinates of each side that are compared at a time."""


class Program(NamedTuple):
    """A program, and how to call it.

    Attributes
    ----------
    name : str
    file : str
        Name in the folder; some are compiled for one number of dimensions.
    arguments : str
        With the places of `path`, `eps` and `dims`.
    numbers : str
        The numbers that decide.
    lists : bool
        It writes pairs; otherwise it counts them.
    unsigned : bool
        It loses pairs of rows with negative coordinates, so rows are moved.
    """

    name: str
    file: str
    arguments: str
    numbers: str
    lists: bool = True
    unsigned: bool = False


PROGRAMS = (
    Program("FaSTED", "fasted", "{path} {eps}", "products of float16, sums of float32"),
    Program(
        "FaSTED, published tiles",
        "fasted128",
        "{path} {eps}",
        "products of float16, sums of float32",
    ),
    Program("GDS-Join", "gds-{dims}", "{path} {eps} {dims} 3", "float32"),
    # MiSTIC stores numbers of cells as unsigned integers, so -1 is not next to 0
    Program(
        "MiSTIC", "mistic-{dims}", "{path} {dims} 6 {eps}", "float64", unsigned=True
    ),
    Program("TED-Join", "ted-{dims}", "{path} {eps} 21", "products of float64"),
    Program(
        "TED-Join, brute force",
        "tedbrute-{dims}",
        "{path} {eps} 4",
        "products of float64",
        False,
    ),
)


def moved(rows: np.ndarray) -> np.ndarray:
    """Return rows moved so that coordinates start at 0, or the same rows if that would
    round differences.
    """
    least = rows.min(axis=0)
    found = rows - least
    exact = rows.astype(np.float64) - least.astype(np.float64)
    return found if (found == exact).all() else rows


class Run(NamedTuple):
    """Times and counts of one run; `total` is None if the program does not time all of
    its work.
    """

    kernels: float
    total: float | None
    found: int
    stored: int


class ProgramError(RuntimeError):
    """Raised if a program failed, or its output has another form."""


def runs_of(text: str) -> list[Run]:
    """Return the runs that a program printed."""
    own = re.findall(r"RUN kernels (\S+) total (\S+) found (\d+) stored (\d+)", text)
    if own:
        return [Run(float(a), float(b), int(c), int(d)) for a, b, c, d in own]
    gds = re.findall(r"KERNELS (\S+) ms FOUND (\d+) BATCHES \d+ FITS (\d)", text)
    return [Run(float(a) / 1000, None, int(b), int(b) * int(c)) for a, b, c in gds]


def whole_of(text: str) -> float:
    """Return the seconds of all GDS-Join's work, with its index."""
    index = re.search(r"Time to index \(not counted in the time\): (\S+)", text)
    join = re.search(r"\nTime: (\S+)", text)
    if not index or not join:
        raise ProgramError(f"no times: {text[-300:]}")
    return float(index[1]) + float(join[1])


def started(binary: Path, arguments: str, limit: float, **more: str) -> str:
    """Run a program, and return what it prints."""
    libraries = f"{os.environ.get('LD_LIBRARY_PATH', '')}:{binary.parent.resolve()}"
    # some append to files in their working folder
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(binary.resolve()), *arguments.split()],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            env=os.environ | {"LD_LIBRARY_PATH": libraries} | more,
        )
    if done.returncode:
        raise ProgramError(
            f"exit {done.returncode}: {done.stdout[-300:]} {done.stderr[-300:]}"
        )
    return done.stdout + done.stderr


def measured(
    program: Program,
    binary: Path,
    path: Path,
    dims: int,
    eps: float,
    repeat: int,
    limit: float = LIMIT,
) -> tuple[dict[str, Any], np.ndarray | None]:
    """Return the times of a program, and its pairs in both orders (n, 2).

    The first run of a process is not counted, unless it is so long that it is the only
    one.
    """
    arguments = program.arguments.format(path=path, eps=repr(eps), dims=dims)

    def ran(repeats: int, **more: str) -> list[Run]:
        given = {
            "RIVAL_DIMS": str(dims),
            "RIVAL_REPEATS": str(repeats),
            "GDS_REPEATS": str(repeats),
        }
        found = runs_of(started(binary, arguments, limit, **given, **more))
        if len(found) != repeats:
            raise ProgramError(f"{len(found)} runs instead of {repeats}")
        return found

    pairs = None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pairs"
        (first,) = ran(1, **({"RIVAL_PAIRS": str(file)} if program.lists else {}))
        if program.lists:
            pairs = np.fromfile(file, np.int32).reshape(-1, 2)
    runs = (
        [first] if max(first.kernels, first.total or 0) > LONG else ran(repeat + 1)[1:]
    )
    totals = [run.total for run in runs if run.total is not None]
    if not totals:  # GDS-Join times either its kernels or all of its work
        totals = [whole_of(started(binary, arguments, limit))]
        while len(totals) < repeat and totals[0] <= LONG:
            totals.append(whole_of(started(binary, arguments, limit)))
    result = {
        "numbers": program.numbers,
        "kernels": summary([run.kernels for run in runs]),
        "whole": summary(totals),
        "ordered": int(statistics.median(run.found for run in runs)),
        "all stored": all(run.stored == run.found for run in runs)
        if program.lists
        else None,
        "repeated": len(runs) > 1,
    }
    return result, pairs


def codes(left: Any, right: Any, rows: int, xp: Any = np) -> Any:
    """Return each unordered pair of two different rows once, as ``i * rows + j`` with i
    < j, sorted.
    """
    left, right = left.astype(xp.int64), right.astype(xp.int64)
    code = xp.minimum(left, right) * rows + xp.maximum(left, right)
    return xp.unique(code[left != right])


def without(one: Any, other: Any, xp: Any = np) -> Any:
    """Return the codes of `one` that are not in `other`; both are sorted."""
    if len(other) == 0:
        return one
    at = xp.minimum(xp.searchsorted(other, one), len(other) - 1)
    return one[other[at] != one]


def compared(
    theirs: Any, ours: Any, x: Any, eps: float, xp: Any = np
) -> dict[str, Any]:
    """Compare the pairs of a rival with ours, and decide in float64 where they differ.

    Parameters
    ----------
    theirs, ours : array of int64
        Sorted codes.
    x : array (rows, dims)
    eps : float
    xp : module
        NumPy or CuPy.

    Returns
    -------
    dict
        Numbers of pairs, of those that are false, and of those that are missed, against
        ours. "refuted" counts those of both kinds where differences in float64
        contradict us. "farthest" is the largest difference between the distance of such
        a pair and `eps`, as a part of `eps`.
    """
    false, missed = without(theirs, ours, xp), without(ours, theirs, xp)
    refuted, farthest = 0, 0.0
    for pairs, within in ((false, True), (missed, False)):
        step = max(1, VALUES // x.shape[1])
        for start in range(0, len(pairs), step):
            part = pairs[start : start + step]
            off = x[part // len(x)].astype(xp.float64) - x[part % len(x)]
            d2 = (off * off).sum(axis=1)
            refuted += int(((d2 <= eps * eps) == within).sum())
            farthest = max(farthest, float(xp.abs(xp.sqrt(d2) / eps - 1).max()))
    return {
        "pairs": len(theirs),
        "false": len(false),
        "missed": len(missed),
        "refuted": refuted,
        "farthest": farthest,
    }
