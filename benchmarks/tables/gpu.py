"""Tables of measurements on GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.tables.cells import (
    count,
    median,
    milliseconds,
    points,
    rows,
    seconds,
    times,
)
from benchmarks.tables.comparisons import CUML
from dask_simjoin.engine.filters.float16 import width

Found = dict[str, Any]
Rows = list[list[str]]


def joins(run: Found, *earlier: Found) -> Rows:
    """Tabulate self-joins compared with every peer that ran.

    `earlier`: runs on the same kind of GPU, for peers that did not run again.
    """
    every: dict[str, Found] = {}
    for name in run["rows"]:
        every[name] = {}
        for one in (*earlier, run):
            told = one["rows"].get(name, {}).get("peers", {})
            every[name] |= {
                peer: took
                for peer, took in told.items()
                if "median" in took or peer not in every[name]
            }
    peers = list(dict.fromkeys(peer for told in every.values() for peer in told))
    table = [
        [
            "data, eps",
            "pairs",
            "accessor, s",
            *(f"{CUML.get(peer, peer)}, s" for peer in peers),
            "ratio to the fastest, accessor",
            "index + join, s",
            "kernels, s",
            "ratio to the fastest, kernels",
            "compared in",
        ]
    ]
    for name, found in run["rows"].items():
        own, told = found["kernels"], every[name]
        took = [one["median"] for one in told.values() if "median" in one]
        ratios = [
            times(min(took) / mine if took else None)
            for mine in (median(found, "accessor"), own["both"]["median"])
        ]
        steps = f"{seconds(own['index']['median'])} + {seconds(own['join']['median'])}"
        table.append(
            [
                f"{points(name, found['dims'])}, {rows(found['n'])}, {found['eps']:g}",
                count(own["pairs"]),
                seconds(median(found, "accessor")),
                *(_graph(told.get(peer, {}), own["pairs"]) for peer in peers),
                ratios[0],
                steps,
                seconds(own["both"]["median"]),
                ratios[1],
                own["engine"],
            ]
        )
    return table


def _graph(found: Found, pairs: int) -> str:
    """Tabulate a peer's seconds, and how many more pairs it has."""
    if "median" not in found:
        return "minutes" if "minutes" in found.get("skipped", "") else ""
    more = found.get("found", pairs) - pairs
    if not more:
        return seconds(found["median"])
    return (
        f"{seconds(found['median'])} ({abs(more):,} {'more' if more > 0 else 'fewer'})"
    )


def hdbscan(run: Found) -> Rows:
    """Tabulate HDBSCAN compared with cuML's."""
    table = [
        [
            "points",
            "hdbscan",
            "core distances + tree",
            "cuML",
            "ratio",
            "cuML's tree is heavier by",
            "cuML's labels that differ",
        ]
    ]
    for row in run["one_gpu"]:
        own, other = row["ours"], row["cuml"]
        steps = f"{seconds(own['stages']['core distances'])} + {seconds(own['stages']['tree'])}"
        theirs = (
            [f"{seconds(other['clock']['median'])} s", times(other["times_faster"])]
            if "clock" in other
            else [other["failed"], ""]
        )
        wrong = (
            [f"{other['tree_heavier']:.1e}", count(other["rows_differ"])]
            if "clock" in other
            else ["", ""]
        )
        table.append(
            [
                f"{count(row['rows'])} x {row['dims']}",
                f"{seconds(own['clock']['median'])} s",
                steps,
                *theirs,
                *wrong,
            ]
        )
    return table


def columns(run: Found) -> Rows:
    """Tabulate columns of unlike scales, compared with cuML."""
    table = [
        [
            "data",
            "rows, columns",
            "found",
            "index",
            "both",
            "cuML, radius graph",
            "ratio, radius graph",
            "cuML, brute force",
            "ratio, brute force",
        ]
    ]
    for name, found in run["rows"].items():
        own, peers = (
            found["ours"],
            (_warm(found.get(f"cuml {kind}", {})) for kind in ("rbc", "brute")),
        )
        theirs = [
            cell
            for peer in peers
            for cell in (
                milliseconds(peer.get("median")),
                times(peer["ratio"]) if "ratio" in peer else "",
            )
        ]
        table.append(
            [
                name,
                f"{count(found['n'])}, {found['dims']}",
                count(own["both"]["found"]),
                milliseconds(own["index"]["median"]),
                milliseconds(own["both"]["median"]),
                *theirs,
            ]
        )
    return table


def _warm(found: Found) -> Found:
    """Return a measurement, or nothing if its only run is a first one, which compiles."""
    return {} if found.get("seconds") == [found.get("first")] else found


DIRECTIONS = {
    "gaussian": "random directions, 1 % near-duplicates",
    "clustered": "10,000 clusters",
}
"""Names of the points of gpu.wide."""


def wide(run: Found) -> Rows:
    """Tabulate embeddings compared with products of matrices in float16."""
    table = [
        [
            "data, eps",
            "pairs",
            "unit vectors + index + join, s",
            "TFLOP/s of the join",
            "join by warps, s",
            "decided in float64",
            "cuBLAS, float16, s",
        ]
    ]
    for name, found in run["results"].items():
        kind, size, eps, *rest = name.split(", ")
        if rest or size != "1000000 rows":
            continue
        inexact = run["results"][f"{name}, cuBLAS"]
        steps = " + ".join(
            seconds(found[step]["median"]) for step in ("embedding", "index", "join")
        )
        head = f"{DIRECTIONS[kind]}, {eps}"
        table.append(
            [
                head,
                count(found["pairs"]),
                steps,
                f"{found['tflops, all candidates']:.0f}",
                seconds(run["results"][f"{name}, by warps"]["join"]["median"]),
                count(found["decided in float64"]),
                f"{seconds(inexact['median'])} ({count(inexact['pairs'])} pairs)",
            ]
        )
    return table


def narrow(run: Found) -> Rows:
    """Tabulate indexes of float64 rows, compared with indexes of float32 rows."""
    table = [
        [
            "data, eps",
            "pairs",
            "index, GB: float64 rows",
            "float32 rows",
            "index, s: float64 rows",
            "float32 rows",
            "join, s: float64 rows",
            "float32 rows",
            "TFLOP/s: float64 rows",
            "float32 rows",
        ]
    ]
    for name, found in run["results"].items():
        kind, _, eps, *rest = name.split(", ")
        if rest:
            continue
        both = found, run["results"][f"{name}, float32 rows"]
        table.append(
            [
                f"{DIRECTIONS[kind]}, {eps}",
                count(found["pairs"]),
                *(f"{one['of it the index, GB']:.2f}" for one in both),
                *(
                    seconds(one[step]["median"])
                    for step in ("index", "join")
                    for one in both
                ),
                *(f"{one['tflops, all candidates']:.0f}" for one in both),
            ]
        )
    return table


def clusters(run: Found) -> Rows:
    """Tabulate DBSCAN compared with the fastest of cuML's ways."""
    table = [
        [
            "2-D points",
            "dbscan",
            "cuML",
            "ratio",
            "memory",
            "cuML, memory",
            "ratio, memory",
            "core rows that cuML labels otherwise",
        ]
    ]
    texts = {"uniform": "uniform", "blobs": "blobs and noise"}
    for found in run["one_gpu"]:
        own = found["ours"]
        ways = {
            tool: one
            for tool, one in found.items()
            if isinstance(one, dict) and tool != "ours"
        }
        ran = {tool: one for tool, one in ways.items() if "clock" in one}
        head, memory = (
            f"{texts[found['points']]}, {rows(found['rows'])}",
            f"{own['peak_rmm'] / 1e6:.0f} MB",
        )
        first = [head, f"{seconds(own['clock']['median'])} s"]
        if not ran:
            failed = next(one["failed"] for one in ways.values())
            table.append([*first, failed, "", memory, "", "", ""])
            continue
        name = min(ran, key=lambda tool: ran[tool]["clock"]["median"])
        peer = ran[name]
        took = peer["clock"]["median"]
        used = peer.get("peak_rmm")
        table.append(
            [
                *first,
                f"{name.removeprefix('cuml ')} {seconds(took)} s",
                times(took / own["clock"]["median"]),
                memory,
                f"{used / 1e9:.1f} GB" if used else "",
                times(used / own["peak_rmm"] if used else None),
                count(peer.get("differ", {}).get("core rows")),
            ]
        )
    return table


def nearest(run: Found) -> Rows:
    """Tabulate nearest neighbors compared with cuML's."""
    table = [
        [
            "data",
            "index + search",
            "both",
            "cuML, brute force",
            "ratio, brute force",
            "rows with other neighbors",
            "cuML, rbc",
            "ratio, rbc",
        ]
    ]
    for name, found in run["rows"].items():
        own, brute, graph = (
            found["ours"],
            found["cuml brute"],
            found.get("cuml rbc", {}),
        )
        steps = milliseconds(own["index"]["median"], own["search"]["median"])
        table.append(
            [
                f"{points(name, found['dims'])}, {rows(found['n'])}",
                steps,
                milliseconds(own["both"]["median"]),
                milliseconds(brute["median"]),
                times(brute["ratio"]),
                count(brute["rows with other neighbours"]),
                milliseconds(graph.get("median")),
                times(graph.get("ratio")),
            ]
        )
    return table


PEAK = 989
"""TFLOP/s of an H200 for float16 numbers, by its data sheet."""

OF_ROOFLINE = ("syn16d-500k", "syn16d", "syn32d", "syn64d")
"""Joins in which the index skips few tiles."""


def roofline(run: Found, wide: Found) -> Rows:
    """Tabulate the operations of joins by float16 products, as if no pair of rows was
    skipped.
    """
    table = [
        [
            "data, eps",
            "numbers per vector",
            "operations",
            "join, s",
            "TFLOP/s",
            "% of the peak",
            "pairs written, GB/s",
        ]
    ]
    found = [
        (
            f"exponential {one['dims']}-D, {rows(one['n'])}, {one['eps']:g}",
            one["n"],
            one["dims"],
            one["kernels"]["join"]["median"],
            one["kernels"]["pairs"],
        )
        for one in (run["rows"][name] for name in OF_ROOFLINE)
    ]
    for kind, name in (
        ("gaussian", "random directions"),
        ("clustered", "10,000 clusters"),
    ):
        one = wide["results"][f"{kind}, 1000000 rows, 0.05, float32 rows"]
        found.append(
            (
                f"{name}, 768-D, 1M, 0.05",
                1_000_000,
                768,
                one["join"]["median"],
                one["pairs"],
            )
        )
    for name, n, dims, took, pairs in found:
        operations = n * (n - 1) * width(dims)
        rate = operations / took / 1e12
        table.append(
            [
                name,
                count(width(dims)),
                f"{operations / 1e12:.3g} trillion",
                seconds(took),
                f"{rate:.0f}",
                f"{100 * rate / PEAK:.0f}",
                f"{8 * pairs / took / 1e9:.2g}",
            ]
        )
    return table


def embeddings(*runs: Found) -> Rows:
    """Tabulate joins of embeddings in files."""
    table = [
        [
            "GPU",
            "rows",
            "self_join, s",
            "of it planning, s",
            "comparing, s",
            "GPU idle, s",
            "TFLOP/s while comparing",
            "pairs",
            "checked rows: missed, wrong pairs",
        ]
    ]
    for gpu, found in _each(runs, "self_join"):
        compared = found["timeline"]["tasks"]["pairs"][1]
        checked = (
            f"{count(found['checked rows'])}: {count(found['missed'])}, "
            f"{count(found['wrong'])}"
            if "missed" in found
            else "not checked"
        )
        table.append(
            [
                gpu,
                count(found["rows"]),
                seconds(found["self_join"]),
                seconds(found["planned"]),
                seconds(compared),
                seconds(found["timeline"]["at_a_time"]["0"]),
                f"{found['rows'] ** 2 * found['dims'] / compared / 1e12:.0f}",
                count(found["pairs"]),
                checked,
            ]
        )
    return table


def marked(*runs: Found) -> Rows:
    """Tabulate marks of near-duplicate embeddings in files."""
    table = [
        [
            "GPU",
            "rows",
            "near_duplicated, s",
            "chunks with themselves, s",
            "chunks with later ones, s",
            "GPU idle, s",
            "marked rows",
            "checked rows: wrong marks",
        ]
    ]
    for gpu, found in _each(runs, "near_duplicated"):
        told = found.get("timeline of near_duplicated")
        steps = ["", "", ""]
        if told:
            tasks = [
                told["tasks"].get(f"duplicates_{step}", (0, None))[1]
                for step in ("stay", "near")
            ]
            steps = [*map(seconds, tasks), seconds(told["at_a_time"]["0"])]
        wrong = (
            f"{count(found['checked rows'])}: {count(found['wrong marks'])}"
            if told
            else "not checked"
        )
        table.append(
            [
                gpu,
                count(found["rows"]),
                seconds(found["near_duplicated"]),
                *steps,
                count(found["marked rows"]),
                wrong,
            ]
        )
    return table


def _each(runs: Iterable[Found], verb: str) -> Iterator[tuple[str, Found]]:
    """Yield the name of the GPU and the results of a verb; repeated names are left out."""
    before = ""
    for run in runs:
        gpu = run["environment"]["gpu"].removeprefix("NVIDIA ").split()[0]
        for found in run["results"]:
            if verb in found:
                yield gpu if gpu != before else "", found
                before = gpu


def small(run: Found, before: Found) -> Rows:
    """Tabulate calls on plain frames of few rows, and a run of an earlier version."""
    verbs = [name for name in next(iter(run["calls"].values())) if "_" in name]
    verbs.append("dbscan")
    heading = [f"`{verb}` (before)" for verb in verbs]
    table = [["rows and columns", *heading, "index + pairs"]]
    for name, calls in run["calls"].items():
        cells = [
            f"{milliseconds(calls[verb]['median'])} "
            f"({milliseconds(before['calls'][name][verb]['median'])})"
            for verb in verbs
        ]
        table.append([name, *cells, milliseconds(calls["kernels"]["median"])])
    return table


TABLES = {
    "gpu-joins": joins,
    "gpu-columns": columns,
    "gpu-hdbscan": hdbscan,
    "gpu-wide": wide,
    "gpu-wide-rows": narrow,
    "gpu-clusters": clusters,
    "gpu-nearest": nearest,
    "gpu-embeddings": embeddings,
    "gpu-embeddings-marked": marked,
    "gpu-roofline": roofline,
    "gpu-small": small,
}
