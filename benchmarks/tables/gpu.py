"""Tables of measurements on GPUs."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import (
    count,
    median,
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


KINDS = {
    "gaussian": "even directions",
    "deep": "like Deep1B",
    "sift": "like SIFT",
    "clustered": "clusters",
    "skew": "skewed clusters",
}
"""Kinds of rows of `gpu.rivals` -> descriptions."""


def rivals(*runs: Found) -> Rows:
    """Tabulate kernels of our join and of rivals, with their wrong pairs.

    A row of several runs has our time in the first one. Ratios are to our time in the
    same run.
    """
    cases: dict[tuple[Any, ...], Found] = {}
    cells: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in (row for run in runs for row in run["rows"]):
        own = row["ours"]["kernels"]["seconds"]
        case = row["name"], row["rows"], row["eps"]
        for name, one in row["rivals"].items():
            if "kernels" in one:
                took, wrong = one["kernels"]["seconds"], one["false"] + one["missed"]
                cells.setdefault(case, {})[name] = (
                    f"{seconds(took)} ({times(took / own)}), {count(wrong)} wrong"
                )
                cases.setdefault(case, row)
    names = list(dict.fromkeys(name for some in cells.values() for name in some))
    table = [
        ["rows, eps", "pairs", "dask-simjoin, s", *(f"{name}, s" for name in names)]
    ]
    for case, row in cases.items():
        kind = KINDS[row["name"].rstrip("0123456789")]
        table.append(
            [
                f"{kind}, {row['dims']}-D, {rows(row['rows'])}, {row['eps']:.4g}",
                count(row["ours"]["pairs"]),
                seconds(row["ours"]["kernels"]["seconds"]),
                *(cells[case].get(name, "") for name in names),
            ]
        )
    return table


def _ratio(value: float) -> str:
    return times(value) if value >= 1 else f"{value:.2f}x"


POINTS = {"uniform": "uniform", "levy": "Levy flights"}


def trees(run: Found, *later: Found) -> Rows:
    """Tabulate verbs and other programs on points in 3-D, on the same GPU.

    `later`: runs that replace our seconds of some rows. Ratios are to the seconds of our
    verb. If a program has several variants, such as "ArborX, boxes", the fastest one is
    shown.
    """
    cases = run["rows"].items()
    names = [name.split(",")[0] for _, row in cases for name in row["peers"]]
    tools = list(dict.fromkeys(names))
    table = [["points", "job", "dask-simjoin, s", *(f"{tool}, s" for tool in tools)]]
    for case, row in cases:
        kind, number, job = case.split(", ", 2)
        newest = [one["rows"].get(case, {}) for one in (run, *later)]
        own = [one["clock"]["median"] for one in newest if "clock" in one][-1]
        told = [f"{POINTS[kind]}, {int(number) / 1e6:.3g}M", job, seconds(own)]
        for tool in tools:
            some = [
                one.get("median")
                for name, one in row["peers"].items()
                if name.split(",")[0] == tool
            ]
            took = min((one for one in some if one is not None), default=None)
            failed = "failed" if some else ""
            told.append(f"{seconds(took)} ({_ratio(took / own)})" if took else failed)
        table.append(told)
    return table


TABLES = {
    "gpu-trees": trees,
    "gpu-rivals": rivals,
    "gpu-joins": joins,
    "gpu-roofline": roofline,
}
