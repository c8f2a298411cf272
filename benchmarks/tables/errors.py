"""The table of wrong results of other tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.tables.cells import count

Found = dict[str, Any]
Rows = list[list[str]]

FILES = (
    "joins",
    "cpu errors",
    "gpu joins",
    "gpu joins before",
    "gpu nearest",
    "gpu dbscan",
    "gpu hdbscan",
    "libraries",
    "faiss",
    "programs",
    "dbscan",
    "sets",
    "set peers",
)
"""What the page names, in this order."""


def span(values: Iterable[int]) -> str:
    """Format the least and the largest of some numbers."""
    known = sorted(values)
    low, high = count(known[0]), count(known[-1])
    return low if low == high else f"{low} to {high}"


def rival(found: Found, name: str) -> str:
    """Say how many pairs a tool returned wrongly, over all data sets that it joined."""
    joined = [
        (one["rivals"][name], one["ours"]["pairs"])
        for one in found["rows"]
        if "false" in one["rivals"][name]
    ]
    false, missed = (span(one[key] for one, _ in joined) for key in ("false", "missed"))
    return f"{false} false, {missed} missed, of {span(n for _, n in joined)}"


def _pairs(steps: list[int]) -> str:
    """Write how many pairs more (+) or fewer (-) were found in each join."""
    return ", ".join(f"{step:+,}" if step else "0" for step in steps) + " pairs"


def joined(rows: Iterable[Found], tool: str) -> str:
    """Say how many pairs more or fewer than ours a tool returned."""
    steps = [
        one["tools"][tool]["pairs"][0] - one["tools"]["engine"]["pairs"][0]
        for one in rows
        if "pairs" in one["tools"].get(tool, {})
    ]
    return _pairs(steps)


def cuml(found: Found, name: str) -> str:
    """Say how many pairs more or fewer than ours cuML counted, for each join."""
    steps = [
        row["peers"][name]["found"] - row["kernels"]["pairs"]
        for row in found["rows"].values()
        if "found" in row["peers"].get(name, {})
    ]
    return _pairs(steps)


def cpu(found: Found, tool: str) -> str:
    """Say what a tool on a CPU returned wrongly, for each place and dtype."""
    return "; ".join(
        f"{one['place']}, {one['dtype']}: {count(wrong['false'])} false, {count(wrong['missed'])} missed"
        for one in found["rows"]
        if sum((wrong := one["tools"][tool]).values())
    )


def clustered(found: Found) -> str:
    """Say how many core rows and noise rows the package dbscan labels otherwise."""
    wrong = [one["rows_that_differ"]["dbscan"] for one in found["runs"]]
    runs = sum(one["core rows"] + one["noise"] > 0 for one in wrong)
    core, noise = (max(one[key] for one in wrong) for key in ("core rows", "noise"))
    return (
        f"in {runs} of {len(wrong)} runs: up to {count(core)} core rows "
        f"and {count(noise)} rows of noise"
    )


def libraries(of: Found) -> Rows:
    """Tabulate libraries on a GPU."""
    near = of["gpu nearest"]["rows"]["unif2d"]["cuml brute"]
    labels = of["gpu dbscan"]["one_gpu"][2]["cuml rbc"]["differ"]
    groups = of["gpu hdbscan"]["one_gpu"][1]["cuml"]["rows_differ"]
    blocks, ball = "cuML, brute force", "cuML, ball cover"
    pairs, dense = of["gpu joins before"], "self-joins, 16 to 90 columns"
    core = f"{count(labels['core rows'])} core rows"
    rows = [
        [
            blocks,
            "self-joins, 2 to 64 columns",
            cuml(pairs, "cuml brute"),
            'joins --peers "cuml brute"',
        ],
        [
            ball,
            "self-joins, 2 to 16 columns",
            cuml(of["gpu joins"], "cuml rbc"),
            'joins --peers "cuml rbc"',
        ],
        [
            blocks,
            "10 nearest neighbors, 1M rows, 2-D",
            f"{count(near['rows with other neighbours'])} rows with other neighbors",
            "nearest --rows unif2d",
        ],
        [
            ball,
            "DBSCAN, 10M rows, 2-D",
            f"{core} and {count(labels['noise'])} rows of noise",
            'clusters --points uniform --peers "cuml rbc"',
        ],
        [
            "cuML",
            "HDBSCAN, 1M rows, 64-D",
            f"{count(groups)} rows with other labels",
            "hdbscan --points 1000000x64",
        ],
        [
            "cuVS",
            dense,
            rival(of["libraries"], "cuVS, brute force"),
            'rivals --rivals "cuVS, brute force"',
        ],
        [
            "cuBLAS",
            "up to 384 columns",
            rival(of["libraries"], "cuBLAS, float32"),
            'rivals --rivals "cuBLAS, float32"',
        ],
        [
            "faiss",
            "up to 960 columns",
            rival(of["faiss"], "faiss, brute force"),
            'rivals --rivals "faiss, brute force"',
        ],
    ]
    table = [[*row[:3], "float32", f"`gpu.{row[3]}`"] for row in rows]
    rounded = rival(of["libraries"], "cuBLAS, TF32")
    command = '`gpu.rivals --rivals "cuBLAS, TF32"`'
    table.append(["cuBLAS", "up to 384 columns", rounded, "TF32", command])
    return table


def programs(of: Found) -> Rows:
    """Tabulate programs of papers on a GPU."""
    unsigned = "float64, unsigned numbers of cells"
    rows = [
        ["FaSTED", "up to 960 columns", "programs", "float16 and float32"],
        ["GDS-Join", "up to 960 columns", "programs", "float32"],
        ["TED-Join", "16 to 90 columns", "programs", "float64"],
        [
            "MiSTIC",
            "up to 384 columns, some coordinates negative",
            "programs",
            unsigned,
        ],
        ["MiSTIC", "up to 960 columns, none negative", "faiss", unsigned],
    ]
    return [
        [
            name,
            data,
            rival(of[file], name),
            how,
            f"`gpu.rivals --programs FOLDER --rivals {name}`",
        ]
        for name, data, file, how in rows
    ]


def cpus(of: Found) -> Rows:
    """Tabulate tools on CPUs."""
    texts = of["sets"]["sets"]["texts"]["thresholds"].values()
    rounded = max(
        one["pairs"]["auto"] - one["pairs"]["reference allpairs"] for one in texts
    )
    hashed = [
        (
            one["times as fast"]["datasketch, distinct tokens"].get("lost") or 0,
            one["pairs"],
        )
        for found in of["set peers"]["sets"].values()
        for one in found.values()
    ]
    lost, pairs = max(hashed)
    errors = of["cpu errors"]
    nearest = sum(one["tools"]["pykdtree"]["rows wrong"] for one in errors["rows"])
    exact = [cpu(errors, name) for name in ("scipy", "scikit-learn, kd_tree")]
    flat, dims = "faiss, flat index", "8 to 64 columns"
    places = "50,000 points, as on a map or near 0"
    rows = [
        [
            flat,
            dims,
            joined(of["joins"]["rows"].values(), "faiss"),
            "float32",
            "joins --peers faiss",
        ],
        [flat, places, cpu(errors, "faiss-cpu"), "float32", "errors"],
        [
            "scikit-learn, brute force",
            places,
            cpu(errors, "scikit-learn, brute"),
            "products in float64",
            "errors",
        ],
        [
            "scikit-learn and SciPy, trees",
            places,
            "; ".join(filter(None, exact)) or "none",
            "float64",
            "errors",
        ],
        [
            "pykdtree, 10 neighbors",
            places,
            f"{count(nearest)} rows" if nearest else "none",
            "the dtype of the points",
            "errors",
        ],
        [
            "dbscan (Wang, Gu & Shun)",
            "DBSCAN, 1M rows, 2 to 5 columns",
            clustered(of["dbscan"]),
            "float64",
            "dense_clusters --peers dbscan",
        ],
        [
            "C++ by Mann et al.",
            "Jaccard joins of 20,000 texts",
            f"up to {count(rounded)} pairs missed",
            "rounded thresholds",
            "sets FOLDER --sets texts --reference PROGRAM",
        ],
        [
            "datasketch, MinHash LSH",
            "Jaccard joins",
            f"up to {count(lost)} of {count(pairs)} pairs missed",
            "hashes, approximate",
            "sets_peers FOLDER --tools datasketch",
        ],
    ]
    return [[*row[:4], f"`cpu.{row[4]}`"] for row in rows]


def wrong(*files: Found) -> Rows:
    """Tabulate what other tools returned wrongly, and what repeats it."""
    of = dict(zip(FILES, files, strict=True))
    return [
        ["tool", "data", "wrong results", "computes in", "command"],
        *libraries(of),
        *programs(of),
        *cpus(of),
    ]


TABLES = {"wrong-results": wrong}
