"""Verbs, frames' histories and partitionings at random against brute force.

``python -m tests.checks.random_cases --cases 2000 --seed 0`` runs many; ``--seed 0
--case 17`` runs one of them.  With ``--digests FILE`` a line for each case is written
with a digest of its results, and a digest of all is printed: files of two runs or
versions are compared by ``diff``.  Dask then shuffles by tasks before a verb meets a
frame, as with files it leaves the order of rows to chance.  ``--threads 7``: verbs and
Dask use 7 threads, and threads share even little work.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import math
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import dask
import pandas as pd
from dask.base import is_dask_collection

import dask_simjoin  # noqa: F401  (registers the accessor)
from dask_simjoin.errors import DuplicateIdError, SimJoinError, SourceChangedError
from tests.support.random_after import RESULTS, after
from tests.support.random_conditions import conditions_of, listed, metric_of
from tests.support.random_dtypes import compare_as_it_is, odd_dtypes, sides_of
from tests.support.random_frames import (
    Draw,
    Made,
    coordinates,
    laid,
    names_of,
    table,
    told,
)
from tests.support.random_verbs import (
    GROUPED,
    INEXACT,
    METRICS,
    VERBS,
    Side,
    Skipped,
    Verbs,
    Want,
    an_eps,
    grouping_columns,
    side_of,
)

NAMED = (
    "self_join",
    "join",
    "knn_join",
    "closest_pairs",
    "connected_components",
    "set_self_join",
    "set_join",
)
"""Verbs whose results name rows."""

ODD_NAMES = ("numbers", "tuples")
"""Of columns, with which Dask cannot do all that it can with strings."""

ORDERED = (
    "knn_join",
    "dbscan",
    "hdbscan",
    "near_duplicated",
    "optics",
    "neighbor_graph",
    "set_self_join",
    "set_near_duplicated",
    "closest_pairs",
)
"""Verbs whose results depend on the order of rows."""


def run_case(seed: int, case: int, folder: Path, draw: Draw) -> str:
    """Run one case; returns its verb, or raises what it found."""
    verb = draw.one("verb", VERBS)
    metric = metric_of(seed, case, verb, draw.one("metric", METRICS))
    draw.said.append(f"compared by {metric}")
    p = draw.one("p", [1, 2, 3, 4, math.inf, 1.5, 2.7]) if metric == "minkowski" else 2
    dims = (
        2
        if metric == "haversine"
        else draw.one("dims", [1, 2, 2, 3, 3, 4, 5, 7, 9, 17])
    )
    rows = draw.one("rows", [0, 1, 2, 7, 20, 40, 60, 100, 150])
    more = draw.one("rows of the other", [0, 1, 10, 40, 80])
    names = names_of(draw, dims)
    points = coordinates(draw, metric, rows + more, dims)
    holes = draw.chance("holes", 0.2)
    base, right = (
        table(draw, points[:rows], names, holes),
        table(draw, points[rows:], names, holes),
    )
    plain = draw.chance("plain", 0.06)
    made = Made(base, True) if plain else history(draw, base, folder)
    way = draw.one("other", ["plain", "lazy", "lazy", "itself", "the rest"])
    if way == "plain" or plain:
        other: Any = right
        second = made
    elif way == "lazy":
        second = history(draw, right, folder)
        other = second.frame
    else:
        other = made.frame if way == "itself" else made.frame[made.frame["g"] > 1]
        second = made
    ordered, labelled = (all(pair) for pair in zip(made[1:], second[1:], strict=True))
    try:
        frame, right = (computed(one) for one in (made.frame, other))
    except Exception as error:
        raise Skipped(
            f"Dask cannot compute the frame: {type(error).__name__}"
        ) from error
    if not ordered and verb in ORDERED:
        raise Skipped(f"{verb} of rows in an order that Dask does not fix")
    if not ordered and "row_id" in frame:
        raise Skipped(
            "numbers of rows whose order depends on the columns that are read"
        )
    for lazy, rows_of in ((made.frame, frame), (other, right)):
        if not isinstance(rows_of, pd.DataFrame) or set(lazy.columns) != set(
            rows_of.columns
        ):
            raise Skipped("Dask loses the frame, or columns whose names are tuples")
        if (
            is_dask_collection(lazy)
            and lazy._meta.index.dtype != rows_of.index.dtype
            and verb in NAMED
        ):
            raise Skipped("labels of another dtype than Dask tells")
    id = draw.one("id", ["key", "key", None, "row_id"])
    if id is None and not labelled and verb in NAMED:
        id = "key"
    if id == "row_id" and not ("row_id" in frame and "row_id" in right):
        id = "key"
    dropna = holes or draw.chance("dropna", 0.1)
    by = grouping_columns(draw, names, dropna) if verb in GROUPED else None
    how = {"dropna": dropna} | ({} if by is None else {"by": by})
    if draw.chance("blocksize", 0.6):
        least = max(2, max(len(frame), len(right)) // 6)
        how["blocksize"] = int(
            draw.one("rows of a chunk", [1, 2, 4]) * least * (8 * dims + 64)
        )
    how["partitioning"] = draw.one(
        "partitioning", ["auto", "entity", "entity", "spatial", "spatial"]
    )
    kinds = odd_dtypes(seed, case, names)
    conditions = conditions_of(seed, case, "" if kinds else verb, names, dropna)
    draw.said += [f"{name}={value!r}" for name, value in conditions.options.items()]
    if by is not None and conditions.unlike and set(conditions.unlike) <= {*listed(by)}:
        raise Skipped("rows that must be equal and differ")
    needed = by, conditions.within
    try:
        one = side_of(made.frame, frame, names, id, metric, dropna, *needed)
        two = side_of(other, right, names, id, metric, dropna, *needed)
    except ValueError:
        raise Skipped("zero rows of cosine or casts that overflow") from None
    eps = an_eps(draw, metric, p, one, two if verb == "join" else one)
    draw.said.append(f"eps={eps!r}")
    if kinds:
        draw.said.append(f"dtypes={kinds}")
        one, two = sides_of(kinds, one, two)
    verbs = Verbs(draw, one, two, names, id, metric, p, how, eps, ordered, conditions)
    repeat = [
        side for side in (one, two) if not names_of_rows(side.frame, id).is_unique
    ]
    named = verb in NAMED
    if named and repeat:
        want = refused(verbs, verb, repeat)
        if want is None:
            return f"{verb}, refused as ids repeat"
    else:
        want = getattr(verbs, verb)()
    try:
        if kinds:
            compare_as_it_is(want, made.labelled, metric in INEXACT)
        else:
            after(draw, want, made, one, metric in INEXACT, folder)
    except DuplicateIdError as error:
        if (
            named
            and id is None
            and any(numbered_anew(lazy) for lazy in (made.frame, other))
        ):
            raise Skipped(
                "labels that Dask numbers anew, by the columns that are read"
            ) from error
        raise
    except SourceChangedError as error:
        if not ordered and {"step='more partitions'", "step='repartition'"} & set(
            draw.said
        ):
            raise Skipped(
                "rows that Dask shuffles, and then cuts by their order"
            ) from error
        raise
    return verb


def history(draw: Draw, base: pd.DataFrame, folder: Path) -> Made:
    """The table as a Dask DataFrame that something was done to."""
    try:
        return told(draw, laid(draw, base, folder))
    except Exception as error:
        if isinstance(error, SimJoinError):
            raise
        raise Skipped(
            f"Dask cannot compute the frame: {type(error).__name__}"
        ) from error


def refused(verbs: Verbs, verb: str, repeat: list[Side]) -> Want | None:
    """Nothing where names that repeat were refused, as they must be; a result that has
    none of those.
    """
    try:
        want = getattr(verbs, verb)()
        tables = (
            [verbs.one]
            if verb in ("self_join", "connected_components", "set_self_join")
            else [verbs.one, verbs.other]
        )
        if (
            verb in ("knn_join", "closest_pairs")
            and "two tables" not in verbs.draw.said
        ):
            tables = [verbs.one]
        if want.kind == "rows" or not any(a is b for a in tables for b in repeat):
            return want
        computed(want.lazy)
    except DuplicateIdError:
        return None
    if any(pd.Index(b.ids).is_unique for a in tables for b in repeat if a is b):
        return want  # only rows with holes, which are left out, have names of others
    raise AssertionError("ids repeat and were not refused")


def numbered_anew(frame: Any) -> bool:
    """Whether labels repeat where partitions are not merged."""
    if not is_dask_collection(frame):
        return False
    parts = [frame.partitions[n].compute().index for n in range(frame.npartitions)]
    return not parts[0].append(parts[1:]).is_unique


def names_of_rows(frame: pd.DataFrame, id: Any) -> Any:
    """What names rows: of all of them, those with holes included."""
    return frame.index if id is None else frame[id]


def computed(result: Any) -> Any:
    """The result, whether it is lazy or not."""
    return result.compute() if is_dask_collection(result) else result


def sharing(threads: int | None) -> dict[str, Any]:
    """Return a configuration with this number of threads; None: Dask uses one."""
    if threads is None:
        return {"scheduler": "sync"}
    return {"scheduler": "threads", "num_workers": threads, "simjoin.threads": threads}


def run(
    seed: int, case: int, shuffle: str | None = None, threads: int | None = None
) -> tuple[str, str]:
    """Run one case: ("compared", verb), ("skipped", why) or ("failed", the trace)."""
    draw = Draw(seed, case, shuffle)
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set(sharing(threads)),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # Dask and pandas warn of what histories do
        try:
            return "compared", run_case(seed, case, Path(folder), draw)
        except Skipped as why:
            return "skipped", str(why)
        except Exception as error:
            if "_partitions_boundaries" in traceback.format_exc():
                return (
                    "skipped",
                    "Dask cannot tell divisions of what it reads in fewer partitions "
                    "than it cuts",
                )
            if isinstance(error, (TypeError, KeyError)) and any(
                f"names={kind!r}" in draw.said for kind in ODD_NAMES
            ):
                return (
                    "skipped",
                    "Dask cannot sort, hash or choose names that are not strings",
                )
            return "failed", told_of(draw, error)


def told_of(draw: Draw, error: Exception) -> str:
    """What a failed case was, and where it failed."""
    return "; ".join(draw.said) + "\n" + "".join(traceback.format_exception(error))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--digests", type=Path, metavar="FILE")
    parser.add_argument("--threads", type=int)
    wanted = parser.parse_args()
    if wanted.threads is not None:
        # only here, because it imports private modules
        little = importlib.import_module("tests.support.threads").LITTLE
        for (module, name), value in little.items():
            setattr(module, name, value)
    first = wanted.start
    cases = range(first, first + wanted.cases) if wanted.case is None else [wanted.case]
    tally: collections.Counter[tuple[str, str]] = collections.Counter()
    failed = 0
    # a line at a time
    digests = wanted.digests and wanted.digests.open("w", buffering=1)
    for case in cases:
        start = time.perf_counter()
        outcome, what = run(
            wanted.seed, case, "tasks" if digests else None, wanted.threads
        )
        took = time.perf_counter() - start
        if outcome == "failed":
            failed += 1
            print(f"--- FAILED: --seed {wanted.seed} --case {case}\n{what}", flush=True)
            what = ""
        if digests:
            digests.write(f"{wanted.seed} {case} {RESULTS.take()} {outcome} {what}\n")
        if took > 10:
            print(
                f"--- slow: --seed {wanted.seed} --case {case}: {took:.0f} s",
                flush=True,
            )
        tally[outcome, what] += 1
    for (outcome, what), number in sorted(tally.items()):
        print(f"{number:6d} {outcome} {what}")
    print(
        f"{len(cases)} cases, {failed} "
        f"failed{f', digest {RESULTS.total()}' if digests else ''}"
    )
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
