"""The short table of the start page."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import PEERS, median, rows, seconds, times

Found = dict[str, Any]

HEADLINES = ("unif2d", "unif6d", "expo16d", "expo64d")
GPU_HEADLINES = ("expo2d", "syn16d-500k")
CUML = {"cuml rbc": "cuML, radius graph,", "cuml brute": "cuML, brute force,"}


def headlines(
    joins: Found, gpu: Found, earlier: Found, clusters: Found, sets: Found
) -> list[list[str]]:
    """Select rows of other tables, each with the fastest other tool.

    `earlier`: an earlier run on the same kind of GPU, for peers that did not run again.
    """
    table = [["data", "fastest other tool", "dask-simjoin", "speedup"]]
    for name in HEADLINES:
        found = joins["rows"][name]
        tools, best = found["tools"], found["best_peer"]
        text = f"self-join, {found['dims']}-D, {rows(found['n'])} rows, one core"
        table.append(
            [text, *_beside(PEERS[best], median(tools, best), median(tools, "engine"))]
        )
    for name in GPU_HEADLINES:
        found = gpu["rows"][name]
        tools = earlier["rows"][name]["peers"] | found["peers"]
        peers = {name: one["median"] for name, one in tools.items() if "median" in one}
        name, best = min(peers.items(), key=lambda one: one[1])
        pairs = f"{found['kernels']['pairs'] / 1e6:.0f} million pairs"
        text = f"self-join, {found['dims']}-D, {rows(found['n'])}, {pairs}, H200"
        table.append(
            [text, *_beside(CUML[name], best, found["kernels"]["both"]["median"])]
        )
    found = clusters["results"][0]
    peer, own = found["sklearn"]["cpu_seconds"], found["ours"]["cpu_seconds"]
    table.append(
        [
            f"DBSCAN, 2-D, {rows(found['rows'])}, one core",
            *_beside("scikit-learn", peer, own),
        ]
    )
    found = sets["sets"]["retail"]
    one = found["thresholds"]["0.5"]
    best = min(
        took for tool, took in one["seconds"].items() if tool.startswith("reference ")
    )
    pairs = f"{one['pairs']['auto'] / 1e6:.1f} million pairs"
    text = (
        f"set join, {found['rows']:,} baskets, Jaccard 0.5, {pairs} counted, one core"
    )
    table.append([text, *_beside("C++ by Mann et al.", best, one["seconds"]["auto"])])
    return table


def _beside(peer: str, theirs: float, own: float) -> list[str]:
    return [f"{peer} {seconds(theirs)} s", f"{seconds(own)} s", times(theirs / own)]


TABLES = {"headlines": headlines}
