"""Run each verb on workers of little memory and a full disk: `python -m
tests.checks.small_disks`.

Two workers share a disk that is much smaller than the rows.  Each verb must be done, be
refused, or fail with an error of this package; none may wait until the deadline.
Mounting the disk needs root on Linux.
"""

import argparse
import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster, wait

import dask_simjoin
from dask_simjoin.errors import SimJoinError

ON = {"on": ["x", "y"]}
NAMED = {**ON, "id": "id"}
WORDS = 2000
BAD = ("WAITED", "FAILED")


def write_data(folder, rows):
    """Write tables as Parquet: points in 40 files of `rows` rows together, and a tenth
    as many sets.
    """
    random = np.random.default_rng(0)
    for number in range(40):
        size = rows // 40
        points = pd.DataFrame(random.uniform(size=(size, 2)), columns=["x", "y"])
        points["id"] = np.arange(number * size, (number + 1) * size)
        points.to_parquet(os.path.join(folder, f"points-{number:02}.parquet"))
        words = random.integers(0, WORDS, (size // 10, 8)) + 10 * np.arange(8)
        sets = pd.DataFrame(
            {"words": words.tolist(), "id": points["id"].to_numpy()[: len(words)]}
        )
        sets.to_parquet(os.path.join(folder, f"sets-{number:02}.parquet"))


def length(frame):
    """Count the rows of a lazy frame without holding it."""
    return int(frame.map_partitions(len, meta=(None, "int64")).sum().compute())


def persisted(frame):
    """Hold a lazy frame on the workers, and count its rows."""
    held = frame.persist()
    wait(held)
    return length(held)


def verbs(data, rows, folder):
    """Map names to calls, on lazy tables of `data`."""
    points = dd.read_parquet(os.path.join(data, "points-*.parquet"))
    sets = dd.read_parquet(os.path.join(data, "sets-*.parquet"))
    few = points.partitions[:4]
    # the distance within which a row has about so many neighbors
    near = functools.partial(
        lambda neighbors: float(np.sqrt(neighbors / (np.pi * rows)))
    )
    pairs = points.simjoin.self_join
    return {
        "self_join": lambda: length(pairs(near(0.5), **NAMED)),
        "self_join entity": lambda: length(
            pairs(near(0.5), partitioning="entity", **NAMED)
        ),
        "self_join spatial": lambda: length(
            pairs(near(0.5), partitioning="spatial", **NAMED)
        ),
        "self_join tasks": lambda: shuffled_by_tasks(
            lambda: length(pairs(near(0.5), **NAMED))
        ),
        "self_join persist": lambda: persisted(pairs(near(20), **NAMED)),
        "points persist": lambda: persisted(points.simjoin.with_row_id("row")),
        "join": lambda: length(points.simjoin.join(few, near(5), how="left", **NAMED)),
        "knn_join": lambda: length(points.simjoin.knn_join(k=2, **NAMED)),
        "knn_join persist": lambda: persisted(points.simjoin.knn_join(k=8, **NAMED)),
        "knn_join two tables": lambda: length(
            points.simjoin.knn_join(few, k=2, **NAMED)
        ),
        "knn_join mutual": lambda: length(
            points.simjoin.knn_join(k=2, mutual=True, **NAMED)
        ),
        "k_distances": lambda: length(points.simjoin.k_distances(5, **ON).to_frame()),
        "count_pairs": lambda: points.simjoin.count_pairs(near(5), **ON).compute(),
        "neighbor_counts": lambda: (
            points.simjoin.neighbor_counts(near(5), **ON).sum().compute()
        ),
        "near_duplicated": lambda: (
            points.simjoin.near_duplicated(near(0.5), **ON).sum().compute()
        ),
        "near_duplicated connected": lambda: (
            points.simjoin.near_duplicated(near(0.5), grouping="connected", **ON)
            .sum()
            .compute()
        ),
        "drop_near_duplicates": lambda: length(
            points.simjoin.drop_near_duplicates(near(0.5), **ON)
        ),
        "dbscan": lambda: points.simjoin.dbscan(near(5), 5, **ON).max().compute(),
        "optics": lambda: length(points.simjoin.optics(near(5), 5, **ON)),
        "optics forest": lambda: length(
            points.simjoin.optics(near(5), 5, mode="forest", **ON)
        ),
        "hdbscan": lambda: length(points.simjoin.hdbscan(50, **ON)),
        "spanning_tree": lambda: length(points.simjoin.spanning_tree(**ON)),
        "neighbor_graph": lambda: (
            dask.compute(points.simjoin.neighbor_graph(near(5), **ON))[0].nnz
        ),
        "connected_components": lambda: length(
            dask_simjoin.connected_components(pairs(near(0.5), **NAMED))
        ),
        "set_self_join": lambda: length(
            sets.simjoin.set_self_join("words", threshold=0.8, id="id")
        ),
        "set_neighbor_counts": lambda: (
            sets.simjoin.set_neighbor_counts("words", threshold=0.8).sum().compute()
        ),
        "count_set_pairs": lambda: sets.simjoin.count_set_pairs(
            "words", threshold=0.8
        ).compute(),
        "set_near_duplicated": lambda: (
            sets.simjoin.set_near_duplicated("words", threshold=0.8).sum().compute()
        ),
        "index": lambda: len(
            points.simjoin.index(near(0.5), os.path.join(folder, "index"), **NAMED)
        ),
    }


def shuffled_by_tasks(call):
    """Call where Dask shuffles by tasks, whose parcels it spills."""
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        return call()


def run_one(name, data, disk, rows, memory):
    """Run one verb on a cluster of its own, and print what came of it."""
    warnings.simplefilter("ignore")
    local = os.path.join(disk, "workers")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=memory,
            local_directory=local,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster),
    ):
        begin = time.perf_counter()
        try:
            outcome = f"done {verbs(data, rows, folder)[name]():,}"
        except SimJoinError as error:
            outcome = f"refused {type(error).__name__}: {error}"
        except Exception as error:
            outcome = f"FAILED {type(error).__name__}: {error}"
        print(
            f"OUTCOME {time.perf_counter() - begin:.0f} {' '.join(outcome.split())}",
            flush=True,
        )


def outcome_of(name, data, disk, options):
    """Run one verb as a process that ends at the deadline, and tell what came of it."""
    how = ["--one", name, "--data", data, "--at", disk, "--rows", str(options.rows)]
    command = [
        sys.executable,
        "-m",
        "tests.checks.small_disks",
        *how,
        "--memory",
        options.memory,
    ]
    with (
        open(os.path.join(data, "log"), "w+") as log,
        subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(options.deadline)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.seek(0)
        lines = log.read().splitlines()
    if options.verbose:
        print(*lines, sep="\n")
    found = [
        line.removeprefix("OUTCOME ") for line in lines if line.startswith("OUTCOME ")
    ]
    return found[-1] if found else f"{options.deadline:.0f} WAITED"


@contextlib.contextmanager
def small_disk(size):
    """Mount a disk of this size in memory, and take it away again."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True
        )
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def main():
    """Run the verbs that are named, or all, and print what came of each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--memory", default="600MB")
    parser.add_argument("--disk", default="30m")
    parser.add_argument("--deadline", type=float, default=240)
    parser.add_argument("--verbose", action="store_true")
    for own in ("--one", "--data", "--at"):
        parser.add_argument(own, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(options.one, options.data, options.at, options.rows, options.memory)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that disks are unmounted
    bad = 0
    with tempfile.TemporaryDirectory() as data:
        write_data(data, options.rows)
        for name in options.names or verbs(data, options.rows, data):
            with small_disk(options.disk) as disk:
                outcome = outcome_of(name, data, disk, options)
            bad += any(word in outcome for word in BAD)
            print(f"{name:<26}{outcome[:400]}", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
