"""Tables of verbs on one and on many cores."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import PEERS, seconds, times

Found = dict[str, Any]
Rows = list[list[str]]


def _merged(runs: tuple[Found, ...]) -> Found:
    """Return the jobs of all runs; a job of a later run replaces that of an earlier."""
    jobs: Found = {}
    for run in runs:
        for job, found in run["jobs"].items():
            # a run that compiled kernels tells nothing about the verb
            clean = {k: one for k, one in found.items() if not one.get("compiled")}
            jobs[job] = clean
    threads = sorted({n for run in runs for n in run["threads"]})
    return {"threads": threads, "jobs": jobs}


def cores(*runs: Found) -> Rows:
    """Tabulate the seconds of jobs by number of threads, beside the fastest peer."""
    run = _merged(runs)
    threads = [n for n in run["threads"] if _is_measured(run, f"pandas, {n}")]
    names = [f"{kind}, {n}" for kind in ("pandas", "dask") for n in threads]
    names = [name for name in names if _is_measured(run, name)]
    table = [
        [
            "job",
            *names,
            "best peer, all cores",
            f"ratio, pandas, {threads[-1]}",
        ]
    ]
    for job, found in run["jobs"].items():
        own = [seconds(found.get(name, {}).get("median")) for name in names]
        peers = {name: found[name]["median"] for name in found if name in PEERS}
        peer = min(peers, key=lambda name: peers[name], default=None)
        cells = [f"{PEERS[peer]} {seconds(peers[peer])}" if peer else ""]
        last = found.get(f"pandas, {threads[-1]}")
        cells.append(times(peers[peer] / last["median"]) if peer and last else "")
        table.append([job, *own, *cells])
    return table


def parts(*runs: Found) -> Rows:
    """Tabulate jobs beside the same work on independent parts of the rows."""
    run = _merged(runs)
    jobs = run["jobs"].values()
    several = [n for n in run["threads"] if any(f"parts, {n}" in one for one in jobs)]
    table = [["job", *(f"{what}, {n}" for n in several for what in ("parts", "ratio"))]]
    for job, found in run["jobs"].items():
        cells = []
        for n in several:
            part, own = found.get(f"parts, {n}"), found.get(f"pandas, {n}")
            both = part is not None and own is not None
            cells.append(seconds(part["median"]) if part else "")
            cells.append(times(own["median"] / part["median"]) if both else "")
        if any(cells):
            table.append([job, *cells])
    return table


KINDS = ("pandas, 32", "dask, 32", "cluster, 8x4", "files, 8", "files, 32")
"""Ways to run a job on 32 cores, beside Dask's own work with the files."""


def clusters(run: Found) -> Rows:
    """Tabulate jobs in one process, on worker processes, and from files to files."""
    copied = "copied files, 32"
    table = [["job", *KINDS, copied]]
    for job, found in _merged((run,))["jobs"].items():
        own = [seconds(found.get(name, {}).get("median")) for name in (*KINDS, copied)]
        table.append([job, *own])
    return table


def _is_measured(run: Found, name: str) -> bool:
    return any(name in found for found in run["jobs"].values())


TABLES = {"cores": cores, "cores-parts": parts, "cores-clusters": clusters}
