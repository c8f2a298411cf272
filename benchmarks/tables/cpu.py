"""Tables of measurements on one core."""

from __future__ import annotations

from typing import Any

from benchmarks.tables.cells import (
    PEERS,
    best,
    count,
    median,
    peer,
    points,
    rows,
    seconds,
    times,
)
from benchmarks.tables.comparisons import PLACES

Found = dict[str, Any]
Rows = list[list[str]]

COLUMNS = {
    "time-9": "a sorted time, 0 to 1e6, and 9 normal columns",
    "plane-3": "x, y to 1,000 and 3 columns in [0, 1]",
    "plane-14": "x, y to 600 and 14 columns in [0, 1]",
    "plane-14-200k": "the same",
    "latent-2-16": "2 dimensions turned in 16, and noise",
    "latent-3-32": "3 dimensions turned in 32, and noise",
    "halving-10": "10 columns, each half as wide as the one before",
    "halving-20": "20 such columns",
    "lognormal-6": "lognormal, 6 columns",
    "walk-12": "a random walk, 12 columns",
    "plane-6-knn": "5 nearest neighbors; x, y to 1,000 and 6 columns in [0, 1]",
    "places-5": "places: degrees, people, thousands of people, their logarithm",
    "places-5-knn": "5 nearest neighbors of these",
    "embeddings-50": "embeddings, 50 principal components",
}
"""Descriptions of the rows of `cpu.columns`."""


def joins(run: Found) -> Rows:
    """Tabulate self-joins compared with the best peer: medians, and the spread of runs."""
    ways = ("pandas", "dask", "engine")
    table = [
        [
            "data, eps",
            "pairs",
            "pandas, s",
            "dask, one partition, s",
            "engine, s",
            "best peer, s",
            *(f"ratio, {way}" for way in ways),
        ]
    ]
    for name, found in run["rows"].items():
        tools = found["tools"]
        fastest = tools[best(tools, ways)]
        table.append(
            [
                f"{points(name, found['dims'])}, {rows(found['n'])}, {found['eps']:g}",
                count(found["pairs"]),
                *(f"{seconds(median(tools, way))}{spread(tools[way])}" for way in ways),
                f"{peer(tools, ways)}{spread(fastest)}",
                *(times(fastest["median"] / median(tools, way)) for way in ways),
            ]
        )
    return table


def spread(found: Found) -> str:
    """Format the least and the most of several runs, in brackets."""
    runs = found.get("seconds", [])
    return f" ({seconds(min(runs))} to {seconds(max(runs))})" if len(runs) > 1 else ""


def columns(*runs: Found) -> Rows:
    """Tabulate joins of columns of unlike scales; a row is of the first run that has
    it.
    """
    table = [["data; rows", "pairs", "dask-simjoin, s", "best peer, s", "ratio"]]
    found: Found = {}
    for run in reversed(runs):
        found.update(run["rows"])
    for name, text in COLUMNS.items():
        row = found[name]
        verb = "knn_join" if row["k"] else "count_pairs"
        own = median(row["tools"], verb)
        pairs = None if row["k"] else row["tools"][verb]["found"][0]
        verbs = ("count_pairs", "self_join", "knn_join")
        theirs = median(row["tools"], best(row["tools"], verbs))
        table.append(
            [
                f"{text}; {count(row['n'])}",
                count(pairs),
                seconds(own),
                peer(row["tools"], verbs),
                times(theirs / own),
            ]
        )
    return table


def two_tables(few: Found, many: Found) -> Rows:
    """Tabulate joins of two tables."""
    table = [
        [
            "data",
            "pairs",
            "pandas, s",
            "engine, s",
            "best peer, s",
            "ratio, pandas",
            "ratio, engine",
        ]
    ]
    for name, found in {**few["rows"], **many["rows"]}.items():
        tools = found["tools"]
        text = f"{points(name, found['dims'])}, {rows(found['left'])} and {rows(found['right'])}"
        ways = ("ours-verb", "ours")
        theirs = median(tools, best(tools, ways))
        table.append(
            [
                f"{text}, {found['eps']:g}",
                count(tools["ours"]["pairs"]),
                *(seconds(median(tools, way)) for way in ways),
                peer(tools, ways),
                *(times(theirs / median(tools, way)) for way in ways),
            ]
        )
    return table


def nearest(*runs: Found) -> Rows:
    """Tabulate nearest neighbors."""
    table = [["data", "neighbors", "engine, s", "best peer, s", "ratio, engine"]]
    for run in runs:
        for name, found in run["rows"].items():
            tools = found["tools"]
            own, theirs = median(tools, "ours"), median(tools, best(tools, ["ours"]))
            text = f"{points(name, found['dims'])}, {rows(found['n'])}"
            table.append(
                [
                    text,
                    count(run["k"]),
                    seconds(own),
                    peer(tools, ["ours"]),
                    times(theirs / own),
                ]
            )
    return table


def trees(*runs: Found) -> Rows:
    """Tabulate spanning trees, or OPTICS, compared with the best peer."""
    table = [["data", "min_samples", "dask-simjoin, s", "best peer, s", "ratio"]]
    for found in (one for run in runs for one in run["rows"]):
        tools = found["tools"]
        own, theirs = median(tools, "ours"), median(tools, best(tools, ["ours"]))
        table.append(
            [
                f"{found['data']} {found['dims']}-D, {rows(found['n'])}",
                count(found["min_samples"]),
                seconds(own),
                peer(tools, ["ours"]),
                times(theirs / own),
            ]
        )
    return table


def closest_pairs(run: Found) -> Rows:
    """Tabulate the closest pairs compared with SciPy's tree, and the most memory beyond
    the rows.
    """
    ways = {
        "SciPy, nearest": "SciPy",
        "SciPy, known eps": "SciPy, known distance",
        "ours": "dask-simjoin",
    }
    table = [
        [
            "data",
            "pairs",
            *(f"{name}, s" for name in ways.values()),
            "ratio",
            *(f"{name}, MiB" for name in ways.values()),
        ]
    ]
    for found in run["rows"]:
        tools = found["tools"]
        own, best = median(tools, "ours"), median(tools, "SciPy, nearest")
        memory = (
            count(max(tools[way]["bytes"]) >> 20) if "bytes" in tools[way] else ""
            for way in ways
        )
        table.append(
            [
                f"{points(found['data'], found['dims'])}, {rows(found['rows'])}",
                count(found["n"]),
                *(seconds(median(tools, way)) for way in ways),
                times(best / own if best else None),
                *memory,
            ]
        )
    return table


def strings(run: Found) -> Rows:
    """Tabulate strings within an edit distance, compared with RapidFuzz, and larger
    joins alone.
    """
    table = [
        [
            "strings",
            "k",
            "cores",
            "pairs",
            "RapidFuzz, s",
            "dask-simjoin, s",
            "ratio",
            "memory, MiB",
        ]
    ]
    for found in run["rows"]:
        tools = found["tools"]
        own, best = (
            median(tools, "ours"),
            median(tools, "RapidFuzz") if "RapidFuzz" in tools else None,
        )
        table.append(
            [
                f"{rows(found['rows'])} {found['data']}",
                count(found["k"]),
                count(found["cores"]),
                count(tools["ours"]["pairs"]),
                seconds(best) if best else "",
                seconds(own),
                times(best / own) if best else "",
                count(tools["ours"]["bytes"] >> 20),
            ]
        )
    return table


INDEXED = ("symscan", "EditDistanceJoiner", "py_stringsimjoin", "pyrepseq")
"""Peers that join strings with an index, as tables show them."""


def indexed_strings(run: Found) -> Rows:
    """Tabulate strings within an edit distance, compared with peers that have an index."""
    head = ["strings", "k", "pairs", "dask-simjoin, s"]
    table = [[*head, *(f"{name}, s" for name in INDEXED), "ratio to the fastest"]]
    for found in run["rows"]:
        tools = {
            name: one["least"] for name, one in found["tools"].items() if "least" in one
        }
        own = tools.pop("dask_simjoin")
        table.append(
            [
                f"{count(found['rows'])} {found['data']}",
                count(found["k"]),
                count(found["tools"]["dask_simjoin"]["pairs"]),
                seconds(own),
                *(seconds(tools.get(name)) for name in INDEXED),
                times(min(tools.values()) / own),
            ]
        )
    return table


def places(run: Found) -> Rows:
    """Tabulate joins of places on the sphere."""
    peers = [name for name in run["rows"][0]["tools"] if name != "ours"]
    names = [PLACES.get(name, PEERS.get(name, name)) for name in peers]
    table = [
        [
            "data",
            "pairs",
            "pandas, s",
            *(f"{name}, s" for name in names),
            *(f"ratio, {name}" for name in names),
        ]
    ]
    for found in run["rows"]:
        tools = found["tools"]
        own = median(tools, "ours")
        table.append(
            [
                f"{count(run['places'])} places within {found['metres'] / 1000:g} km",
                count(tools["ours"]["pairs"]),
                seconds(own),
                *(seconds(median(tools, name)) for name in peers),
                *(times(median(tools, name) / own) for name in peers),
            ]
        )
    return table


def dense_clusters(run: Found) -> Rows:
    """Tabulate DBSCAN of dense rows compared with the package `dbscan` and
    scikit-learn: least seconds.
    """
    peers = run["options"]["peers"]
    table = [
        [
            "points, neighbors",
            "dask-simjoin, s",
            "one thread, s",
            *(f"{peer}, s" for peer in peers),
            "rows that dbscan labels otherwise",
        ]
    ]
    for one in run["runs"]:
        times = {name: min(found["seconds"]) for name, found in one["seconds"].items()}
        differ = (
            sum(one["rows_that_differ"]["dbscan"].values())
            if "dbscan" in times
            else None
        )
        table.append(
            [
                f"{one['kind']}, {one['dims']}-D, {one['neighbors']:,}",
                seconds(times["ours"]),
                seconds(times["ours, 1 thread"]),
                *(seconds(times.get(peer)) for peer in peers),
                "" if differ is None else f"{differ:,}",
            ]
        )
    return table


def _peers(results: list[Found]) -> list[str]:
    """Return the other tools of some clusterings."""
    return list(
        dict.fromkeys(
            tool
            for found in results
            for tool, one in found.items()
            if isinstance(one, dict) and "cpu_seconds" in one and tool != "ours"
        )
    )


def clusters(run: Found) -> Rows:
    """Tabulate DBSCAN compared with every peer that ran."""
    peers = _peers(run["results"])
    names = [PEERS.get(peer, peer) for peer in peers]
    table = [
        [
            "2-D points",
            "dask-simjoin",
            *(head for name in names for head in (name, f"ratio, {name}")),
            "memory",
            *(head for n in names for head in (f"{n}, memory", f"ratio, {n}, memory")),
        ]
    ]
    texts = {"uniform": "uniform", "blobs": "blobs and noise"}
    for found in run["results"]:
        cells = []
        for what, unit in (("cpu_seconds", "s"), ("peak_rss_net", "MB")):
            own = found["ours"][what]
            cells.append(_told(own, unit))
            for tool in peers:
                theirs = found.get(tool, {}).get(what)
                cells += [_told(theirs, unit), times(theirs / own if theirs else None)]
        table.append([f"{texts[found['points']]}, {rows(found['rows'])}", *cells])
    return table


def _told(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{seconds(value)} s" if unit == "s" else f"{value / 1e6:.0f} MB"


def hdbscan(*runs: Found) -> Rows:
    """Tabulate HDBSCAN compared with every peer that ran."""
    peers = _peers([found for run in runs for found in run["results"]])
    names = [
        "hdbscan, exact" if peer == "hdbscan" else PEERS.get(peer, peer)
        for peer in peers
    ]
    head = [
        "points",
        "dask-simjoin",
        *(head for name in names for head in (name, f"ratio, {name}")),
        "memory",
        *(f"{PEERS.get(peer, peer)}, memory" for peer in peers),
    ]
    table, merged = [head], dict[tuple[int, int], Found]()
    for run in runs:
        for found in run["results"]:
            merged.setdefault((found["rows"], found["dims"]), {}).update(found)
    for (number, dims), found in sorted(merged.items()):
        own = found["ours"]["cpu_seconds"]
        cells = [f"{dims}-D, {rows(number)}", _told(own, "s")]
        for tool in peers:
            # a peer may be from an earlier run than ours
            theirs = found.get(tool, {}).get("cpu_seconds")
            cells += [_told(theirs, "s"), times(theirs / own if theirs else None)]
        cells += [
            _told(found.get(tool, {}).get("peak_rss_net"), "MB")
            for tool in ("ours", *peers)
        ]
        table.append(cells)
    return table


def first_use(run: Found) -> Rows:
    """Tabulate CPU seconds of first calls with an empty cache."""
    table = [["verb", *(f"{dims} columns" for dims in (2, 6, 16)), "texts"]]
    for verb, sizes in run["seconds"].items():
        cells = [_seconds_of_first_call(sizes, dims) for dims in ("2", "6", "16", "0")]
        table.append([f"`{verb}`", *cells])
    return table


def first_use_by_numba(*runs: Found) -> Rows:
    """Tabulate CPU seconds of some first calls with each version of Numba."""
    calls = (
        ("self_join", "2"),
        ("self_join", "16"),
        ("count_pairs", "16"),
        ("hdbscan", "16"),
        ("set_join", "0"),
    )
    names = [
        f"`{verb}`, {'texts' if dims == '0' else dims + ' columns'}"
        for verb, dims in calls
    ]
    table = [["Numba", *names]]
    for run in runs:
        cells = [
            _seconds_of_first_call(run["seconds"][verb], dims) for verb, dims in calls
        ]
        table.append([run["environment"]["versions"]["numba"], *cells])
    return table


def _seconds_of_first_call(sizes: Found, dims: str) -> str:
    return f"{sizes[dims]['nothing compiled']['cpu']:.1f}" if dims in sizes else ""


def peak(run: Found) -> Rows:
    """Tabulate peak memory of joins of plain frames, and of their results."""
    table = [["join", "result", "peak over result"]]
    for found in run["cases"]:
        size = f"{found['bytes'] / 2**30:.2f} GiB"
        table.append([found["text"], size, f"{found['factor']:.2f}"])
    return table


TABLES = {
    "first-use": first_use,
    "first-use-by-numba": first_use_by_numba,
    "peak": peak,
    "joins": joins,
    "columns": columns,
    "two-tables": two_tables,
    "nearest": nearest,
    "trees": trees,
    "closest-pairs": closest_pairs,
    "strings": strings,
    "strings-indexed": indexed_strings,
    "places": places,
    "clusters": clusters,
    "dense-clusters": dense_clusters,
    "hdbscan": hdbscan,
}
