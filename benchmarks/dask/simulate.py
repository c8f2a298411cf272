"""``python -m benchmarks dask.simulate``: how joins would run on up to 1,024 GPUs or
cores.

The package itself makes the plan, from summaries of partitions that do not exist;
`planning.costs` has the costs of steps.  Heavy tasks are assigned first, each to the
worker that would end it first, with the time to bring the chunks that it lacks.  A
worker keeps all chunks that it has received.  `--check` runs the same joins on this
machine's cores and compares; `--road` compares with the results of `gpu.road`.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster, wait

import dask_simjoin
from benchmarks.harness.report import environment
from dask_simjoin.planning.costs import Costs
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import COUNTS, making_tasks
from dask_simjoin.planning.partition import PartitionSummary
from dask_simjoin.planning.plan import Plan, make_plan
from dask_simjoin.planning.sample import Moments, Sample
from dask_simjoin.planning.tables import JoinStatistics, join_statistics
from dask_simjoin.request.spec import JoinSpec

SAMPLED = 1 << 16
"""Number of points in all samples together."""

PARTITIONS = 8
"""Partitions of the source for each worker."""

GIB = 2**30


@dataclass(frozen=True)
class Machine:
    """Workers, and the speed of their connections.

    Attributes
    ----------
    name : str
    workers, node : int
        In all, and of a node.
    gpu : bool
    memory : float
        Bytes of a worker.
    near, far : float
        Bytes a second that a worker takes in from its own node and from others.
    task : float
        Seconds of the scheduler for a task.
    """

    name: str
    workers: int
    node: int
    gpu: bool
    memory: float
    near: float
    far: float
    task: float

    @property
    def limits(self) -> Limits:
        """The cluster's properties for a plan."""
        return Limits(
            self.workers,
            int(self.memory),
            True,
            int(self.memory),
            self.gpu,
            self.workers,
            shuffle="p2p" if self.workers > 1 else "tasks",
        )

    def rate(self) -> float:
        """Bytes a second of a worker that hears from all others alike."""
        away = max(0, self.workers - self.node) / max(1, self.workers - 1)
        return 1 / (away / self.far + (1 - away) / self.near)


def gpus(number: int, task: float) -> Machine:
    """Return nodes of 8 H200, with NVLink and an adapter of 400 Gb/s for each; half of
    either is attained.
    """
    return Machine(f"{number} GPUs", number, 8, True, 130 * GIB, 150e9, 25e9, task)


def cores(number: int, task: float) -> Machine:
    """Return nodes of 64 cores, with a process of one thread each; they share a node's
    100 Gb/s.
    """
    return Machine(f"{number} cores", number, 64, False, 4 * GIB, 1.0e9, 0.2e9, task)


@dataclass(frozen=True)
class Job:
    """Points and a distance; `eps` is for `rows`, and follows their number."""

    name: str
    rows: int
    dims: int
    eps: float
    exponential: bool = False

    def points(self, n: int, seed: int = 0) -> np.ndarray:
        """Draw points (n, dims)."""
        random = np.random.default_rng(seed)
        return (
            random.exponential(1 / 40, (n, self.dims))
            if self.exponential
            else random.random((n, self.dims))
        )

    def eps_of(self, rows: int) -> float:
        """Return the distance that gives this many rows the same number of neighbors."""
        return self.eps * (self.rows / rows) ** (1 / self.dims)


JOBS = {
    job.name: job
    for job in (
        Job("uniform 2-D", 8_000_000, 2, 0.00036),
        Job("exponential 6-D", 2_000_000, 6, 0.004, True),
        Job("exponential 16-D", 6_000_000, 16, 0.04, True),
    )
}


def spec_of(job: Job, rows: int, partitioning: str) -> JoinSpec:
    """Return the spec of `count_pairs` for such a table."""
    frame = pd.DataFrame(job.points(2), columns=[f"x{k}" for k in range(job.dims)])
    lazy = dd.from_pandas(frame, 1).simjoin.count_pairs(
        job.eps_of(rows), partitioning=partitioning
    )
    return lazy.expr.operand("spec")


def tables(
    job: Job, rows: int, partitions: int, partitioning: str, sampled: int = SAMPLED
) -> JoinStatistics:
    """Make the statistics of a table of this many rows, whose partitions all cover all
    of space. `sampled`: number of points in all samples together.
    """
    points = job.points(sampled)
    lower, upper, mean, variance = (
        points.min(0),
        points.max(0),
        points.mean(0),
        points.var(0),
    )
    parts, summaries = np.array_split(points, partitions), []
    for number, part in enumerate(parts):
        own = rows * (number + 1) // partitions - rows * number // partitions
        places = np.linspace(0, own - 1, len(part)).astype(np.int64)
        moments = Moments(own, lower, upper, mean, variance * own)
        summaries.append(
            PartitionSummary(
                own, moments, sample=Sample(own, places, np.ascontiguousarray(part))
            )
        )
    return join_statistics([summaries], spec_of(job, rows, partitioning))


def placed(loads: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Give each piece of work to the worker with the least, heavy ones first; return
    the owners.
    """
    heap = [(0.0, worker) for worker in range(len(loads))]
    owners = np.zeros(len(seconds), np.int64)
    for piece in np.argsort(-seconds, kind="stable").tolist():
        load, worker = heapq.heappop(heap)
        owners[piece], loads[worker] = worker, load + seconds[piece]
        heapq.heappush(heap, (loads[worker], worker))
    return owners


def pieces_run(plan: Plan, machine: Machine, owners: np.ndarray) -> dict[str, Any]:
    """Run the block pairs' pieces: seconds, bytes moved, how even, and the most that a
    worker holds.
    """
    loads, moved = np.zeros(machine.workers), 0.0
    size = plan.chunks.rows * plan.indexing.row_bytes
    held: list[set[int]] = [
        set(np.flatnonzero(owners == w).tolist()) for w in range(machine.workers)
    ]
    work = [
        (second / parts, int(i), int(j))
        for second, parts, (i, j) in zip(
            plan.work.seconds, plan.work.parts, plan.work.blocks, strict=True
        )
        for _ in range(parts)
    ]
    idle = [(0.0, w) for w in range(machine.workers)]
    for seconds, i, j in sorted(work, reverse=True):
        while idle[0][0] < loads[idle[0][1]]:  # this worker has got work since
            heapq.heapreplace(idle, (float(loads[idle[0][1]]), idle[0][1]))
        best = None
        for worker in {int(owners[i]), int(owners[j]), idle[0][1]}:
            missing = float(sum(size[c] for c in {i, j} - held[worker]))
            end = loads[worker] + seconds + missing / machine.rate()
            if best is None or end < best[0]:
                best = end, worker, missing
        assert best is not None
        loads[best[1]], moved = best[0], moved + best[2]
        held[best[1]] |= {i, j}
    most = max(float(sum(size[c] for c in some)) for some in held)
    even = float(loads.mean() / max(loads.max(), 1e-12))
    return {
        "seconds": float(loads.max()),
        "moved": moved,
        "even": even,
        "held": most,
        "tasks": len(work),
    }


def simulate(
    job: Job, rows: int, machine: Machine, partitioning: str = "auto"
) -> dict[str, Any]:
    """Say how a join would run: seconds of its steps, bytes, balance, memory and the
    scheduler's share.
    """
    known = tables(job, rows, PARTITIONS * machine.workers, partitioning)
    began = time.process_time()
    plan = make_plan(known, COUNTS, machine.limits)
    planned = time.process_time() - began
    costs = Costs(
        plan.layout.method,
        job.dims,
        known.near(),
        float(rows),
        COUNTS,
        machine.limits,
    )
    own, apart = rows / machine.workers, 1 - 1 / machine.workers
    shuffled = plan.chunks.method is not None
    moved = rows * plan.indexing.row_bytes * apart if shuffled else 0.0
    one = replace(costs, limits=replace(machine.limits, threads=1))
    loads = np.zeros(machine.workers)
    owners = placed(loads, plan.chunks.rows * one.build)
    shuffle = own * one.shuffle if shuffled else 0.0
    run = pieces_run(plan, machine, owners)
    tasks = (
        making_tasks(plan.chunks, plan.tables.sources, machine.limits.cluster)
        + run["tasks"]
    )
    steps = {
        "planning": planned,
        "reading": rows * costs.read / machine.limits.threads,
        "moving": moved / machine.workers / machine.rate(),
        "shuffling": shuffle,
        "indexing": float(loads.max()),
        "joining": run["seconds"],
    }
    workers, scheduler = sum(steps.values()), tasks * machine.task
    whole = rows * plan.indexing.row_bytes / machine.workers
    return {
        "machine": machine.name,
        "rows": rows,
        "partitioning": plan.chunks.kind,
        "chunks": len(plan.chunks),
        "block pairs": len(plan.work),
        "tasks": tasks,
        "seconds": round(max(workers, scheduler), 4),
        "steps": {name: round(value, 4) for name, value in steps.items()},
        "scheduler": round(scheduler, 4),
        "GB moved": round((moved + run["moved"]) / 1e9, 3),
        "balance": round(run["even"], 3),
        "GB held by a worker": round((max(run["held"], whole) + whole) / 1e9, 3),
        "fits": max(run["held"], whole) + whole < machine.memory,
    }


def empty_task(client: Client, number: int = 5000) -> float:
    """Return the seconds of the scheduler and a worker for a task that does nothing."""
    began = time.perf_counter()
    wait(client.map(abs, range(number), pure=False))
    return (time.perf_counter() - began) / number


def check(jobs: list[Job], divide: int) -> list[dict[str, Any]]:
    """Run joins on clusters of one and two processes, and compare them with the
    simulation.
    """
    found = []
    for workers in (1, 2):
        options = {
            "n_workers": workers,
            "threads_per_worker": 1,
            "dashboard_address": ":0",
        }
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            memory = float(cluster.workers[0].memory_manager.memory_limit or 4 * GIB)
            machine = replace(cores(workers, empty_task(client)), memory=memory)
            for job in jobs:
                took = run_join(job, job.rows // divide, workers)
                told = simulate(job, job.rows // divide, machine)
                one = {
                    "job": job.name,
                    "measured": round(took, 3),
                    "ratio": round(told["seconds"] / took, 2),
                }
                found.append(one | told)
                print(json.dumps(found[-1]), flush=True)
    return found


ROAD = {"count 16-D": "exponential 16-D", "count 2-D": "uniform 2-D"}
"""Jobs of `gpu.road` that are simulated."""


def compare(road: Path, task: float) -> list[dict[str, Any]]:
    """Simulate the joins that `gpu.road` ran on clusters, and compare the seconds."""
    measured = json.loads(road.read_text())["jobs"]
    found = []
    for name, same in ROAD.items():
        for number, one in measured.get(name, {}).items():
            if int(number):
                told = simulate(JOBS[same], one["rows"], gpus(int(number), task))
                ratio = round(told["seconds"] / one["median"], 2)
                found.append(
                    {"job": same, "measured": one["median"], "ratio": ratio} | told
                )
                print(json.dumps(found[-1]), flush=True)
    return found


def run_join(job: Job, rows: int, workers: int) -> float:
    """Return the seconds of a join on the current client's cluster, with its points
    there.
    """
    frame = pd.DataFrame(job.points(rows), columns=[f"x{k}" for k in range(job.dims)])
    ddf = dd.from_pandas(frame, PARTITIONS * workers).persist()
    wait(ddf)
    seconds, eps = [], job.eps_of(rows)
    for run in range(4):
        began = time.perf_counter()
        ddf.simjoin.count_pairs(float(np.nextafter(eps, run))).compute()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def main(given: list[str]) -> int:
    """Simulate joins, and write the results as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks dask.simulate", description=__doc__
    )
    parser.add_argument(
        "--jobs", nargs="+", choices=JOBS, default=list(JOBS), metavar="JOB"
    )
    parser.add_argument("--gpus", nargs="*", type=int, default=[1, 2, 8, 64, 256, 1024])
    parser.add_argument("--cores", nargs="*", type=int, default=[1, 2, 16, 128, 1024])
    parser.add_argument(
        "--rows",
        type=int,
        default=50_000_000,
        help="of each GPU (of each core a tenth)",
    )
    parser.add_argument(
        "--task", type=float, default=3e-4, help="seconds of the scheduler for a task"
    )
    parser.add_argument(
        "--check", action="store_true", help="run on this machine as well"
    )
    parser.add_argument(
        "--divide", type=int, default=1, help="by this the rows that are run"
    )
    parser.add_argument("--road", type=Path, help="results of gpu.road to compare with")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(given)
    jobs = [JOBS[name] for name in options.jobs]
    report: dict[str, Any] = {
        "simulated": [],
        "checked": check(jobs, options.divide) if options.check else [],
    }
    for job in jobs:  # plans compile, which must not be part of the times
        simulate(job, 1_000_000, cores(1, options.task))
    machines = [(gpus(n, options.task), options.rows) for n in options.gpus]
    machines += [(cores(n, options.task), options.rows // 10) for n in options.cores]
    for job in jobs:
        for machine, rows in machines:
            one = {"job": job.name, **simulate(job, rows * machine.workers, machine)}
            report["simulated"].append(one)
            print(json.dumps(one), flush=True)
    if options.road:
        report["compared"] = compare(options.road, options.task)
    if options.output:
        report["machines"] = [asdict(machine) for machine, _ in machines]
        where = {"environment": environment([], dask_simjoin.__version__)}
        options.output.write_text(json.dumps(where | report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
