"""Verbs with random options on cuDF frames against the same calls on pandas frames:
`python -m tests.checks.gpu_verbs`.

``--cases 2000 --seed 0`` runs many, and ``--seed 0 --case 17`` runs one. A call that
cuDF frames do not support must raise an error of this package.
"""

from __future__ import annotations

import argparse
import collections
import math
import sys
import traceback
from typing import Any

import cudf
import numpy as np
import pandas as pd
from dask.base import is_dask_collection

import dask_simjoin  # noqa: F401  (registers the accessor)
from dask_simjoin.errors import OptionError, UnsupportedFrameError
from tests.support.gpu_frames import lay
from tests.support.random_conditions import FORMULAS, conditions_of
from tests.support.random_frames import WHEN, WORDS, Draw, text_of
from tests.support.random_verbs import METRICS

DISTANCES = (
    "self_join",
    "join",
    "knn_join",
    "closest_pairs",
    "neighbor_counts",
    "count_pairs",
    "dbscan",
    "near_duplicated",
    "k_distances",
)
SETS = (
    "set_self_join",
    "set_join",
    "set_neighbor_counts",
    "set_near_duplicated",
    "count_set_pairs",
)
BOXED = (
    "self_join",
    "join",
    "neighbor_counts",
    "count_pairs",
    "dbscan",
    "near_duplicated",
)
"""Verbs that are also tried in periodic boxes."""

RADII = ("self_join", "join", "neighbor_counts", "count_pairs")
"""Verbs that are also tried with a distance for each row."""

UNITS = ("ns", "us", "ms", "s")
"""Units of columns of times."""

RELATIVE = {"haversine": 1e-12, "minkowski": 1e-12}
"""Largest relative difference of distances, where they are not equal to the last bit."""


def table(
    draw: Draw, rows: int, dims: int, metric: str, zone: str | None
) -> pd.DataFrame:
    """Draw points on a lattice, and columns of other kinds; keys are unique. `zone`: of
    times.
    """
    rng = draw.rng
    step = draw.one("step", [0.5, 0.1, 1 / 3])
    x = rng.integers(-4 if metric != "cosine" else 1, 9, (rows, dims)) * step
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(dims)])
    frame = frame.astype(draw.one("dtype", ["float64", "float64", "float32"]))
    frame["g"] = rng.integers(0, 4, rows)
    frame["s"] = [f"row {k % 7}" for k in range(rows)]
    frame["r"] = rng.integers(0, 4, rows) * 0.5
    frame["key"] = rng.permutation(rows) * 3 - 5
    frame[WORDS] = [text_of(k) for k in range(rows)]
    since = pd.to_timedelta(np.arange(rows) ** 2 % 11 * 60, unit="s")
    when = pd.Series(pd.Timestamp("2024-02-29", tz=zone) + since)
    frame[WHEN] = when.dt.as_unit(draw.one("unit", UNITS))
    if draw.chance("missing", 0.2):
        frame.loc[frame.index % 9 == 4, [WHEN, "r"]] = None
    return frame


def call_of(draw: Draw, case: int, seed: int) -> tuple[str, Any, Any, dict[str, Any]]:
    """Draw a verb, its left and right table (or None), and its options."""
    verb = draw.one("verb", [*DISTANCES, "join", "self_join", "knn_join", *SETS])
    metric = draw.one("metric", [*METRICS, *FORMULAS])
    dims = 2 if metric == "haversine" else draw.one("dims", [1, 2, 2, 3, 17])
    if verb in SETS:
        metric, dims = "euclidean", 1
    rows, more = (draw.one("rows", [0, 1, 20, 60, 150]) for _ in "ab")
    zone = draw.one("zone", [None] * 5 + ["UTC"])
    left, right = (table(draw, n, dims, metric, zone) for n in (rows, more))
    if verb in SETS:
        return (verb, left, right, set_options(draw, verb))
    on = list(left.columns[:dims])
    options: dict[str, Any] = {"on": on, "metric": metric}
    if metric == "minkowski":
        options["p"] = draw.one("p", [3, 4, 1.5, math.inf])
    conditions = conditions_of(seed, case, verb, on, True)
    options |= conditions.options
    if verb not in ("closest_pairs", "k_distances"):
        options["dropna"] = True
    eps = draw.one("eps", [0.0, 0.5, 1.0, 0.3])
    eps = {"haversine": eps * 1e6, "cosine": eps / 8, "hamming": eps / 2}.get(
        metric, eps
    )
    if draw.chance("by", 0.2) and verb not in ("k_distances",):
        options["by"] = draw.one("of", ["g", "s", ["g", "r"]])
    if metric == "braycurtis":
        left[on], right[on] = left[on].abs(), right[on].abs()
    boxes = metric in ("euclidean", "manhattan", "chebyshev", "minkowski")
    if verb in BOXED and boxes and draw.chance("box", 0.4):
        closed = on[: draw.one("closed", [1, 2])]
        options["box"] = dict.fromkeys(closed, 4.0)
        for side in (left, right):
            side[closed] %= 4.0
    if verb in RADII and draw.chance("radii", 0.15):
        eps = "r"
    if verb in ("self_join", "join", "neighbor_counts", "count_pairs", "dbscan"):
        options["eps"] = eps
    return (verb, left, right, options | own_options(draw, verb, eps))


def own_options(draw: Draw, verb: str, eps: float) -> dict[str, Any]:
    """Draw options of one verb."""
    own: dict[str, Any] = {}
    if verb in ("self_join", "join", "closest_pairs", "knn_join"):
        own["id"] = draw.one("id", ["key", None])
        own["keep"] = draw.one("keep", [None, "r", ["s", "g"], {"left": "s"}])
    if verb == "self_join":
        own["return_distance"] = True
        own["pairs"] = draw.one("pairs", ["unique", "both"])
    elif verb == "join":
        own["return_distance"] = True
        ways = ["inner", "left", "right", "outer", "leftsemi", "leftanti"]
        own["how"] = draw.one("how", ways)
        if own["how"] in ("inner", "left") and draw.chance("matching", 0.3):
            own["matching"] = "greedy"
        if own["how"].startswith("lefts") or own["how"].startswith("lefta"):
            own = {"how": own["how"]}
    elif verb == "knn_join":
        own["k"] = draw.one("k", [1, 3])
        own["max_distance"] = draw.one("max_distance", [None, eps])
        own["how"] = draw.one("how", ["inner", "left"])
        if own["max_distance"] is None:
            own["how"] = "inner"
    elif verb == "closest_pairs":
        own["n"], own["max_distance"] = draw.one("n", [1, 20]), eps
    elif verb == "dbscan":
        own["min_samples"] = draw.one("min_samples", [1, 3, 5])
    elif verb == "near_duplicated":
        own["eps"] = eps
        own["grouping"] = draw.one("grouping", ["greedy", "connected"])
    elif verb == "k_distances":
        own["k"] = draw.one("k", [1, 3])
    return own


def set_options(draw: Draw, verb: str) -> dict[str, Any]:
    """Draw options of a verb of sets."""
    own: dict[str, Any] = {"on": WORDS, "tokenizer": "whitespace"}
    own["threshold"] = draw.one("threshold", [0.5, 0.8, 1])
    own["similarity"] = draw.one("similarity", ["jaccard", "dice", "cosine"])
    if verb in ("set_self_join", "set_join"):
        own["id"], own["return_similarity"] = "key", True
        own["keep"] = draw.one("keep", [None, "r", "s"])
    if verb == "set_self_join" and draw.chance("best", 0.4):
        own["best"] = draw.one("number", [True, 2, 3, 10])
        own["ties"] = draw.one("ties", ["first", "all"])
    if verb == "set_join":
        own["how"] = draw.one("how", ["inner", "left", "right", "outer"])
        if own["how"] in ("inner", "left") and draw.chance("best", 0.4):
            own["best"], own["ties"] = True, draw.one("ties", ["first", "all"])
            if draw.chance("best rows", 0.5):
                own["best"] = draw.one("number", [2, 3, 10])
        elif own["how"] in ("inner", "left") and draw.chance("matching", 0.4):
            own["matching"] = "greedy"
    return own


def called(verb: str, left: Any, right: Any, options: dict[str, Any]) -> Any:
    """Call a verb; `right` is given to verbs of two tables."""
    options = dict(options)
    two = {"other": right} if verb in ("join", "set_join") else {}
    if options.pop("two", False):
        two = {"other": right}
    return getattr(left.simjoin, verb)(**two, **options)


def on_host(result: Any) -> Any:
    """Return a result as numbers, a pandas frame or a pandas Series."""
    if is_dask_collection(result):
        result = result.compute(scheduler="sync")
    if isinstance(result, (cudf.DataFrame, cudf.Series)):
        result = result.to_pandas()
    return result


def plain(value: Any) -> Any:
    """Return a value that compares with those of other libraries."""
    if (
        value is None
        or value is pd.NaT
        or (isinstance(value, float) and value != value)
    ):
        return None
    if value is pd.NA:
        return None
    return float(value) if isinstance(value, (int, float, np.number)) else str(value)


def listed(result: Any, ordered: bool) -> Any:
    """Return the rows of a result as a list: labels too if it is `ordered`."""
    if not isinstance(result, (pd.DataFrame, pd.Series)):
        return float(result)
    if isinstance(result, pd.Series):
        result = result.to_frame("value")
    frame = result.reset_index(drop=not ordered)
    rows = [
        tuple(map(plain, row)) for row in zip(*(frame[c] for c in frame), strict=True)
    ]
    return rows if ordered else sorted(rows, key=str)


def assert_same(found: Any, want: Any, relative: float) -> None:
    """Compare two lists of rows; numbers may differ by a share `relative`."""
    if not isinstance(want, list):
        assert found == want, f"{found} instead of {want}"
        return
    assert len(found) == len(want), f"{len(found)} rows instead of {len(want)}"
    for one, other in zip(found, want, strict=True):
        same = len(one) == len(other) and all(
            a == b
            or (
                isinstance(a, float)
                and isinstance(b, float)
                and math.isclose(a, b, rel_tol=relative)
            )
            for a, b in zip(one, other, strict=True)
        )
        assert same, f"{one} instead of {other}"


def run_case(seed: int, case: int, said: list[str]) -> str:
    """Run one case; return its verb, with "refused" before it if cuDF is refused."""
    draw = Draw(seed, case)
    draw.said = said
    verb, left, right, options = call_of(draw, case, seed)
    if verb in ("knn_join", "closest_pairs", "neighbor_counts"):
        options["two"] = draw.chance("two", 0.5)
    said.append(f"options={options}")
    how = draw.one("frames", ["cudf", "dask-1", "dask-3"])
    lazily: dict[str, Any] = {}
    if how != "cudf" and verb not in SETS and draw.chance("blocksize", 0.6):
        lazily["blocksize"] = draw.one("bytes", ["2 kB", "8 kB"])
        lazily["partitioning"] = draw.one("partitioning", ["entity", "spatial"])
    said.append(f"lazily={lazily}")
    try:
        want = called(verb, left, right, options)
    except Exception as error:
        raised: Exception | None = error
    else:
        raised = None
    try:
        found = on_host(called(verb, lay(left, how), lay(right, how), options | lazily))
    except (OptionError, UnsupportedFrameError) as error:
        if raised is not None:
            return f"refused by both, {type(raised).__name__}"
        if "cudf" in str(error).lower() or "gpu" in str(error).lower():
            return f"refused by cuDF, {verb}: {str(error)[:70]}"
        raise
    except Exception as error:
        if raised is not None and type(raised) is type(error):
            return f"refused by both, {type(raised).__name__}"
        raise
    assert raised is None, f"pandas raised {raised!r}"
    ordered = isinstance(want, pd.Series) or options.get("how") in (
        "leftsemi",
        "leftanti",
    )
    relative = RELATIVE.get(options.get("metric", ""), 0.0)
    assert_same(listed(found, ordered), listed(want, ordered), relative)
    return verb


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int)
    wanted = parser.parse_args()
    cases = range(wanted.cases) if wanted.case is None else [wanted.case]
    tally: collections.Counter[str] = collections.Counter()
    failed = 0
    for case in cases:
        said: list[str] = []
        try:
            tally[run_case(wanted.seed, case, said)] += 1
        except Exception as error:
            failed += 1
            print(f"--- FAILED: --seed {wanted.seed} --case {case}", flush=True)
            print("; ".join(said))
            lines = traceback.format_exception(error)
            print("".join(lines[-3:])[-1500:], flush=True)
    for what, number in sorted(tally.items()):
        print(f"{number:6d} {what}")
    print(f"{len(cases)} cases, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
