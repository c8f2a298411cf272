"""Kernels that the tests of a GPU run, which are compiled in parallel before they
start.
"""

import itertools

from dask_simjoin.engine.filters import float16 as half
from dask_simjoin.engine.gpu.sources import (
    LEAF,
    LISTS,
    ROW_NORMS,
    nearest_rows,
    norm_constant,
    tree_search,
)
from dask_simjoin.engine.index.gpu import ROW_DIMS
from dask_simjoin.engine.index.kdtree import BLOCK, MIDDLE, VALUE_BITS
from tests.support.paths import ROOT


def names(room=""):
    """Return the programs of a room ("papers" or "sets"), or by default the engine's."""
    folder = ROOT / "dask_simjoin" / (room or "engine") / "gpu" / "kernels"
    return sorted(f"{room}/{path.stem}".lstrip("/") for path in folder.glob("*.cu"))


ORDER = {
    "DIMS": 1,
    "EXACT": True,
    "VALUE_BITS": VALUE_BITS,
    "SAMPLES": MIDDLE,
    "BLOCK": BLOCK,
}

ALWAYS = [
    ("order", "middle", ORDER),
    *(("boxes", "tile_boxes", {"DIMS": 1, "EXACT": exact}) for exact in (False, True)),
    ("moments", "column_sums", {"DIMS": 1, "EXACT": True}),
    (
        "columns",
        "convert_columns",
        {"DIMS": 1, "EXACT": True, "THREADS": 256, "ROWS": 4096},
    ),
    *(
        (
            "vectors",
            "make_vectors",
            {"DIMS": 1, "EXACT": True, "NEAREST": near, "SLICED": False},
        )
        for near in (False, True)
    ),
    *(
        ("components", "tie_to_roots", {"DIMS": 1, "EXACT": True, "NODES_64": wide})
        for wide in (False, True)
    ),
]
"""Programs that run for all data."""

LEVELS = 8
"""Levels of the tree of regions in compiled programs: few rows have up to 64 regions.
"""

USES = [{"COUNTING": False}, {"COUNTING": True}]
"""Modes of joins: pairs, and counts."""

SINKS = [
    {"COUNTING": False, "SINK": sink, "NODES_64": wide}
    for sink, wide in ((1, False), (1, True), (2, False))
]
"""Ties of rows with either type of row numbers, and lowest labels: see
`components.cuh`.
"""

CLUSTERS = [*USES, SINKS[0], SINKS[2]]
"""Programs that joins and clusterings of few rows need."""


def join_programs(
    dims, engines=("float32",), uses=CLUSTERS, norm=2, labels=(False, True)
):
    """Return programs of joins: files, functions and constants.

    Parameters
    ----------
    dims : iterable of int
    engines : iterable of {"float16", "float32", "float64"}
    uses : iterable of dict
        Constants that tell pairs from counts and sinks.
    norm : int or float
    labels : iterable of bool
        Whether pairs get labels, or places in their chunks.
    """
    told = norm_constant(norm)
    found = []
    for d, engine in itertools.product(dims, engines):
        if engine == "float16" and d <= half.MAX_DIMS:
            name, more, _ = half.program(d, 2**20)
            one = (name, f"join_{name}", {"DIMS": d, "EXACT": False} | more)
        else:
            one = (
                "tiles",
                "join_tiles",
                {"DIMS": d, "EXACT": engine == "float64"} | told,
            )
        found += [(*one[:2], one[2] | use) for use in uses]
    found += [
        ("regions", "own_regions", {"DIMS": d, "EXACT": True, "DEPTH": LEVELS} | told)
        for d in dims
    ]
    return found + [
        ("finish", "name_pairs", {"DIMS": d, "EXACT": True, "LABELS": some} | told)
        for d, some in itertools.product(dims, labels)
    ]


def spanning_programs(dims, exact, norm=2):
    """Return programs of spanning trees of points with this many dimensions, with or
    without a filter.
    """
    found = []
    for d, e in itertools.product(dims, exact):
        name, constants = tree_search(d, e, norm)
        found.append((name, "search_others", constants))
    rounds = [("boruvka", "list_edges"), ("dendrogram", "first_edges")]
    return found + [(*one, {"DIMS": 1, "EXACT": True}) for one in rounds]


def search_programs(dims, engines=("float32",), norm=2, lists=(True,)):
    """Return programs of searches for nearest neighbors; `lists`: whether these fit
    into shared memory.
    """
    found = []
    for d in dims:
        if d <= ROW_DIMS and norm in ROW_NORMS:
            told = {"DIMS": d, "EXACT": True, "LEAF": LEAF}
            by_rows = (nearest_rows(d, k, norm) for k in LISTS)
            found.append(("leaves", "order_leaves", told))
            found += [(name, "search_rows", some) for name, some in by_rows]
    for d, engine, some in itertools.product(dims, engines, lists):
        told = {"DIMS": d, "LISTS": some, "EXACT": engine == "float64"}
        if engine == "float16":
            found.append(
                (
                    "nearest_tensor",
                    "search_tensor",
                    told | {"WIDTH": half.width(d), "ROWS": 32},
                )
            )
        else:
            found.append(
                ("nearest", "search_tiles", told | {"ROWS": 64} | norm_constant(norm))
            )
    return found
