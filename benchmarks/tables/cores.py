"""Tables of verbs on one and on many cores."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import PEERS, seconds, times

Found = dict[str, Any]
Rows = list[list[str]]


def cores(run: Found) -> Rows:
    """Tabulate the seconds of jobs by number of threads, beside the fastest peer."""
    threads = [n for n in run["threads"] if _is_measured(run, n)]
    kinds = [
        kind
        for kind in ("pandas", "dask")
        if any(f"{kind}, {n}" in one for one in run["jobs"].values() for n in threads)
    ]
    table = [
        [
            "job",
            *(f"{kind}, {n}" for kind in kinds for n in threads),
            "best peer, all cores",
            f"ratio, pandas, {threads[-1]}",
        ]
    ]
    for job, found in run["jobs"].items():
        own = [
            seconds(found.get(f"{kind}, {n}", {}).get("median"))
            for kind in kinds
            for n in threads
        ]
        peers = {name: found[name]["median"] for name in found if name in PEERS}
        peer = min(peers, key=lambda name: peers[name], default=None)
        cells = [f"{PEERS[peer]} {seconds(peers[peer])}" if peer else ""]
        last = found.get(f"pandas, {threads[-1]}")
        cells.append(times(peers[peer] / last["median"]) if peer and last else "")
        table.append([job, *own, *cells])
    return table


def parts(run: Found) -> Rows:
    """Tabulate jobs beside the same work on independent parts of the rows."""
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


def _is_measured(run: Found, threads: int) -> bool:
    return any(f"pandas, {threads}" in found for found in run["jobs"].values())


TABLES = {"cores": cores, "cores-parts": parts}
