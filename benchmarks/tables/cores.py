"""Tables of verbs on one and on many cores."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import PEERS, seconds, times
from benchmarks.tables.comparisons import FRAME, Comparison

Found = dict[str, Any]
Rows = list[list[str]]


def _merged(runs: tuple[Found, ...]) -> Found:
    """Return the jobs of all runs; a job of a later run replaces the same job of an earlier one."""
    jobs: Found = {}
    for run in runs:
        for job, found in run["jobs"].items():
            # a run that compiled kernels does not show the time of the verb
            clean = {k: one for k, one in found.items() if not one.get("compiled")}
            jobs[job] = clean
    threads = sorted({n for run in runs for n in run["threads"]})
    return {"threads": threads, "jobs": jobs}


def cores(*runs: Found) -> Rows:
    """Tabulate the seconds of jobs by number of threads."""
    run = _merged(runs)
    names = [f"{kind}, {n}" for kind in ("pandas", "dask") for n in run["threads"]]
    names = [name for name in names if _is_measured(run, name)]
    table = [["job", *names]]
    for job, found in run["jobs"].items():
        own = [seconds(found.get(name, {}).get("median")) for name in names]
        table.append([job, *own])
    return table


def faults(run: Found) -> Rows:
    """Tabulate what comes of joins while a host fails."""
    names = list(next(iter(run["faults"].values())))
    table = [["fault", *(f"`{name}`" for name in names)]]
    for fault, found in run["faults"].items():
        table.append([fault, *(found[name] for name in names)])
    return table


OURS = ("pandas", "dask", "parts", "files", "copied", "cluster")
"""The beginnings of the names of our own runs; others are peers."""


def compared(*runs: Found) -> list[Comparison]:
    """List the jobs that peers ran, too, with pandas on the most threads."""
    run = _merged(runs)
    name = f"pandas, {run['threads'][-1]}"
    found = []
    for job, took in run["jobs"].items():
        others = {
            PEERS.get(peer, peer): one["median"]
            for peer, one in took.items()
            if "median" in one and not peer.startswith(OURS)
        }
        if others and name in took:
            own = {FRAME: took[name]["median"]}
            found.append(Comparison(job, "verb", own, others, "all cores"))
    return found


def peers(*runs: Found) -> Rows:
    """Tabulate the seconds of jobs and of the fastest peer."""
    name = f"pandas, {_merged(runs)['threads'][-1]}"
    table = [["job", name, "best peer, all cores", "ratio"]]
    for one in compared(*runs):
        theirs = f"{one.peer} {seconds(one.theirs)}"
        table.append([one.data, seconds(one.shown), theirs, times(one.ratio())])
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


def ways(*runs: Found) -> Rows:
    """Tabulate jobs in one process, on worker processes, and from files to files, beside
    Dask's own work with the files.
    """
    run = _merged(runs)
    names = list(dict.fromkeys(name for one in run["jobs"].values() for name in one))
    names = [name for name in names if name.startswith(("cluster", "files", "copied"))]
    table = [["job", *names]]
    for job, found in run["jobs"].items():
        own = [seconds(found.get(name, {}).get("median")) for name in names]
        table.append([job, *own])
    return table


def _is_measured(run: Found, name: str) -> bool:
    return any(name in found for found in run["jobs"].values())


TABLES = {
    "cores": cores,
    "faults": faults,
    "cores-peers": peers,
    "cores-parts": parts,
    "cores-ways": ways,
}
