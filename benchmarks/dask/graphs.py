"""``python -m benchmarks dask.graphs``: tasks of joins on up to 1,024 workers.

The package plans joins and makes their graphs for workers that do not exist, from
summaries of partitions that do not exist. Nothing is computed. For each verb and number
of workers, the program writes the number of tasks, the bytes that the client sends to
the scheduler, and the seconds to plan, to make the tasks, and to order them.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import cloudpickle
import dask
import dask.dataframe as dd
import pandas as pd
from dask.optimization import cull
from dask.order import order
from dask.utils import key_split

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from benchmarks.dask.simulate import GIB, JOBS, PARTITIONS, tables
from benchmarks.harness.lazy import known, save
from dask_simjoin.errors import BudgetError
from dask_simjoin.graph import chunks, lazy_join, shuffle
from dask_simjoin.graph.source import held_keys
from dask_simjoin.planning.checks import check_tree
from dask_simjoin.planning.entity_chunks import BY_WORKER
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.plan import Plan, make_plan
from dask_simjoin.planning.resources import MAX_MOVES, shuffle_method
from dask_simjoin.planning.sample import sample_size

JOB = JOBS["uniform 2-D"]
ROWS = JOB.rows
"""Largest number of rows of each worker. HDBSCAN has fewer if one worker cannot hold
the tree of all rows.
"""

VERBS: dict[str, Callable[[dd.DataFrame, float], Any]] = {
    "count_pairs": lambda ddf, eps: ddf.simjoin.count_pairs(eps),
    "self_join": lambda ddf, eps: ddf.simjoin.self_join(eps),
    "neighbor_counts": lambda ddf, eps: ddf.simjoin.neighbor_counts(eps),
    "dbscan": lambda ddf, eps: ddf.simjoin.dbscan(eps, min_samples=5),
    "near_duplicated": lambda ddf, eps: ddf.simjoin.near_duplicated(
        eps, grouping="connected"
    ),
    "knn_join": lambda ddf, eps: ddf.simjoin.knn_join(k=10),
    "hdbscan": lambda ddf, eps: ddf.simjoin.hdbscan(min_cluster_size=MIN_ROWS),
}

MIN_ROWS = 20
"""Minimum number of rows of a cluster of HDBSCAN."""


def rows_of(verb: str, limits: Limits) -> int:
    """Return the number of rows of a table. For HDBSCAN, the package refuses more rows
    than one worker can hold the spanning tree of.
    """
    rows = ROWS * limits.workers
    if verb == "hdbscan":
        while True:
            try:
                check_tree(rows, MIN_ROWS, limits)
                break
            except BudgetError:
                rows = rows * 9 // 10
    return rows


def cluster(workers: int, threads: int, memory: float) -> Limits:
    """Return the limits of a cluster. `memory`: bytes of each worker."""
    each = int(memory / threads)
    return Limits(
        workers * threads,
        each,
        True,
        int(memory),
        workers=workers,
        together=threads,
    )


def held_rows(workers: int) -> dd.DataFrame:
    """Return a frame with as many partitions as the workers would hold."""
    number = PARTITIONS * workers
    frame = pd.DataFrame({"x0": range(number), "x1": 0.0}, dtype=float)
    with dask.config.set(scheduler="sync"):
        return dd.from_pandas(frame, npartitions=number, sort=False).persist()


@contextlib.contextmanager
def pretended(limits: Limits, rows: int) -> Iterator[list[Plan]]:
    """Let joins believe that these workers hold this many rows. Yield the plans that
    are made.
    """
    partitions = PARTITIONS * limits.workers
    sampled = partitions * sample_size(rows // partitions, JOB.dims, partitions)
    summaries = tables(JOB, rows, partitions, "auto", sampled)
    made: dict[int, Plan] = {}
    plans: list[Plan] = []

    def plan_for(source: Any, spec: Any, output: Any, *_: Any, **__: Any) -> Plan:
        if id(source) not in made:
            by_us = output.halo > 0 or not (output.by_row or output.single_home)
            few = limits.workers**2 <= MAX_MOVES
            size = 16.0 * rows
            other = shuffle_method(None, limits, size, partitions, [])
            machine = replace(limits, shuffle=BY_WORKER if by_us and few else other)
            made[id(source)] = make_plan(summaries, output, machine)
            plans.append(made[id(source)])
        return made[id(source)]

    def held(source: Any) -> Any:
        return source.inner.simplify()

    addresses = [f"worker-{n:05}" for n in range(limits.workers)]
    each = limits.threads // limits.workers
    holding = (
        [[addresses[n // PARTITIONS]] for n in range(partitions)],
        dict.fromkeys(addresses, each),
    )
    with (
        mock.patch.object(lazy_join, "plan_for", plan_for),
        mock.patch.object(shuffle, "holders", return_value=holding),
        mock.patch.object(shuffle, "held_by_workers", held),
        mock.patch.object(chunks, "held_by_workers", held),
        mock.patch.object(chunks, "limits_for", return_value=limits),
    ):
        yield plans


def tasks_of(verb: str, limits: Limits, rows: int) -> dict[str, Any]:
    """Make the graph of a verb, and return its numbers."""
    ddf = held_rows(limits.workers)
    held = set(held_keys(ddf.expr))
    with pretended(limits, rows) as plans:
        began = time.process_time()
        lazy = VERBS[verb](ddf, JOB.eps_of(rows))
        expr = lazy.expr.optimize()
        lowered = time.process_time()
        sent = len(cloudpickle.dumps(expr, protocol=pickle.HIGHEST_PROTOCOL))
        pickled = time.process_time()
        graph = dict(expr.__dask_graph__())
        made = time.process_time()
    # workers hold the partitions, so the scheduler does not order them
    tasks = {key: task for key, task in graph.items() if key not in held}
    gc.collect()
    began_ordering = time.process_time()
    order(tasks)
    ordered = time.process_time()
    plan = plans[0]
    # without the rows, and without aliases of them that no task needs
    before = cull(graph, expr.__dask_keys__())[1]
    needed = before.keys() - ddf.expr.operand("layer")
    steps = Counter(key_split(key) for key in needed)
    return {
        "verb": verb,
        "workers": limits.workers,
        "threads": limits.threads,
        "rows": rows,
        "chunks": f"{len(plan.chunks)} {plan.chunks.kind}",
        "shuffle": plan.chunks.method,
        "tasks": len(needed),
        "edges": sum(len(set(before[key])) for key in needed),
        "bytes": sent,
        "planning": round(lowered - began, 3),
        "pickling": round(pickled - lowered, 3),
        "making": round(made - pickled, 3),
        "ordering": round(ordered - began_ordering, 3),
        "steps": dict(steps.most_common(6)),
    }


SECONDS = "planning", "pickling", "making", "ordering"
"""Numbers that differ between runs."""


def least_of(runs: int, verb: str, limits: Limits) -> dict[str, Any]:
    """Return the numbers of a graph, with the least CPU seconds of several runs: other
    programs on the machine take time from its caches.
    """
    rows = rows_of(verb, limits)
    found = []
    for _ in range(runs):
        gc.collect()
        found.append(tasks_of(verb, limits, rows))
    return found[0] | {name: min(one[name] for one in found) for name in SECONDS}


def main(given: list[str]) -> int:
    """Make graphs, and write their numbers as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.graphs", description=__doc__
    )
    parser.add_argument("--verbs", nargs="+", choices=VERBS, default=list(VERBS))
    parser.add_argument("--workers", nargs="+", type=int, default=[8, 32, 128, 1024])
    parser.add_argument("--threads", type=int, default=4, help="of each worker")
    parser.add_argument("--memory", type=float, default=16, help="of each worker, GiB")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(given)
    found, where = [], known()
    tasks_of("count_pairs", cluster(2, 1, GIB), 10**6)  # compiles
    for verb in options.verbs:
        for workers in options.workers:
            limits = cluster(workers, options.threads, options.memory * GIB)
            found.append(least_of(options.runs, verb, limits))
            print(json.dumps(found[-1]), flush=True)
    save("graphs", where, options, {"graphs": found}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
