"""Joins of plain frames have the same result with any number of threads."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin  # noqa: F401
from dask_simjoin.engine import process
from dask_simjoin.errors import BudgetError
from dask_simjoin.tasks import local
from tests.support.gates import PATIENCE
from tests.support.oracle import totals
from tests.support.profiles import chosen, every_nth, in_turns
from tests.support.threads import LITTLE

THREADS = chosen([1, 2, 7, 32], [2, 7])


@pytest.fixture(autouse=True)
def little(monkeypatch):
    for (module, name), value in LITTLE.items():
        monkeypatch.setattr(module, name, value)


def table(rows, dims, seed=0):
    """Points with ties and copies, and labels in no order."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(0, 1, (12, dims))
    x = centers[rng.integers(0, 12, rows)] + rng.normal(0, 0.03, (rows, dims))
    frame = pd.DataFrame(x.round(2), columns=[f"x{k}" for k in range(dims)])
    frame["name"] = [f"n{k % 97}" for k in range(rows)]
    frame.index = rng.permutation(rows) * 3
    return frame


def in_order(found):
    if isinstance(found, pd.DataFrame) and "left" in found.columns:
        return found.sort_values(["left", "right"], ignore_index=True)
    return found


def on(dims):
    return [f"x{k}" for k in range(dims)]


VERBS = {
    "pairs": lambda f, g, how: f.simjoin.self_join(
        0.05, return_distance=True, keep="name", **how
    ),
    "both": lambda f, g, how: f.simjoin.self_join(
        0.05, pairs="both", include_self=True, **how
    ),
    "left": lambda f, g, how: f.simjoin.join(g, 0.01, how="left", **how),
    "anti": lambda f, g, how: f.simjoin.join(g, 0.01, how="leftanti", **how),
    "counts": lambda f, g, how: f.simjoin.neighbor_counts(0.05, **how),
    "several": lambda f, g, how: f.simjoin.count_pairs([0.01, 0.05], **how),
    "several counts": lambda f, g, how: f.simjoin.neighbor_counts([0.01, 0.05], **how),
    "with itself": lambda f, g, how: f.simjoin.count_pairs(
        0.05, pairs="both", include_self=True, **how
    ),
    "semi": lambda f, g, how: f.simjoin.join(g, 0.01, how="leftsemi", **how),
    "number": lambda f, g, how: f.simjoin.count_pairs(0.05, **how),
    "nearest": lambda f, g, how: f.simjoin.knn_join(g, k=3, **how),
    "ties": lambda f, g, how: f.simjoin.knn_join(k=3, ties="all", **how),
    "mutual": lambda f, g, how: f.simjoin.knn_join(k=3, mutual=True, **how),
    "alone": lambda f, g, how: g.simjoin.knn_join(
        f, k=1, max_distance=0.004, how="leftanti", **how
    ),
    "kth": lambda f, g, how: f.simjoin.k_distances(4, **how),
    "closest": lambda f, g, how: f.simjoin.closest_pairs(99, g, **how),
    "graph": lambda f, g, how: f.simjoin.neighbor_graph(0.02, **how),
    "greedy": lambda f, g, how: f.simjoin.near_duplicated(0.01, **how),
    "connected": lambda f, g, how: f.simjoin.drop_near_duplicates(
        0.01, grouping="connected", **how
    ),
    "optics": lambda f, g, how: f.simjoin.optics(0.02, **how),
    "dbscan": lambda f, g, how: f.simjoin.dbscan(0.02, 5, **how),
    "tiles": lambda f, g, how: f.simjoin.dbscan(0.02, 5, method="tiles", **how),
    "hdbscan": lambda f, g, how: f.simjoin.hdbscan(15, **how),
    "tree": lambda f, g, how: f.simjoin.spanning_tree(min_samples=4, **how),
}


@in_turns(1, verb=every_nth(4, VERBS), dims=[1, 2, 6])
def test_any_number_of_threads_gives_the_same(verb, dims):
    frame, how = table(3000, dims), {"on": on(dims)}
    other = frame.sample(frac=0.4, random_state=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "FIRST_WORK", 1 << 60)  # a single part
        expected = VERBS[verb](frame, other, how | {"threads": 1})
    for threads in THREADS:
        found = VERBS[verb](frame, other, how | {"threads": threads})
        again = VERBS[verb](frame, other, how | {"threads": threads})
        if hasattr(expected, "tocsr"):
            assert (found != expected).nnz == 0
        elif isinstance(expected, (pd.DataFrame, pd.Series)):
            assert again.equals(found)  # in the same order
            assert in_order(found).equals(in_order(expected))
        else:
            assert found == again == expected


def test_radii_of_rows_and_threads():
    frame = table(2000, 2).assign(r=lambda f: 0.01 + 0.02 * (f["x0"] % 0.1))
    how = {"on": on(2), "pairs": "both"}
    expected = in_order(frame.simjoin.self_join("r", **how, threads=1))
    assert in_order(frame.simjoin.self_join("r", **how, threads=7)).equals(expected)


def test_an_error_of_a_thread_is_raised(monkeypatch):
    def refuse(*_):
        raise MemoryError("no memory here")

    monkeypatch.setattr(local, "result_rows", refuse)
    with pytest.raises(BudgetError, match="no memory here"):
        table(3000, 2).simjoin.self_join(0.05, on=on(2), threads=4)


def test_after_a_fork_threads_work_again():
    frame, how = table(3000, 2), {"on": on(2), "threads": 4}
    expected = frame.simjoin.count_pairs(0.05, **how)
    child = os.fork()
    if not child:
        try:
            found = frame.simjoin.count_pairs(0.05, **how)
            os._exit(int(found != expected))
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_nested_pools(monkeypatch):
    used = []
    monkeypatch.setattr(
        local,
        "_threads_for",
        lambda block_pair, plan, threads: used.append(threads) or 1,
    )
    frame = table(200, 2)
    with ThreadPoolExecutor(2) as pool:
        for threads in (None, 3):
            calls = (frame.simjoin.count_pairs, 0.05), {"on": on(2), "threads": threads}
            pool.submit(*calls[0], **calls[1]).result()
    assert used == [1, 3]


INTERRUPTED = {
    "number": "count_block_pairs",
    "counts": "count_block",
    "several counts": "count_block",
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("verb", INTERRUPTED)
def test_ctrl_c_ends_a_count_after_a_part(verb, threads, monkeypatch):
    frame, calls = table(3000, 6), []
    real = getattr(local, INTERRUPTED[verb])

    def count(*args, **options):
        calls.append(threading.current_thread())
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        if len(calls) > 3:
            time.sleep(0.5)  # for the main thread to see it
        return real(*args, **options)

    monkeypatch.setattr(local, INTERRUPTED[verb], count)
    with pytest.raises(KeyboardInterrupt):
        VERBS[verb](frame, None, {"on": on(6), "threads": threads})
    assert 3 <= len(calls) < 8  # of 12 or more


PROGRAM = """
    import numpy as np, pandas as pd, dask_simjoin
    frame = pd.DataFrame(np.random.default_rng(0).random((60_000, 16)))
    frame.iloc[:2000].simjoin.count_pairs(0.4)
    print("ready", flush=True)
    while True:
        frame.simjoin.count_pairs(0.9, threads=4)
"""


@pytest.mark.processes
def test_ctrl_c_ends_threads():
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            assert program.stdout.readline() == "ready\n"
            program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=PATIENCE)
        finally:
            program.kill()
    assert "KeyboardInterrupt" in errors


@in_turns(
    1,
    method=every_nth(2, ["auto", "sweep", "tiles", "grid"]),
    way=["plain", "entity", "spatial"],
    dims=[2, 4],
)
def test_rows_with_a_match_in_dense_tables(method, way, dims):
    """Counts stop at the first match, and warnings still count pairs."""
    frame, other = table(700, dims), table(500, dims, 1).reset_index(drop=True)
    other["x0"] += 0.2
    eps = 0.3
    on = [f"x{k}" for k in range(dims)]
    near = totals(frame[on].to_numpy(), other[on].to_numpy()) <= eps * eps
    how = {"on": on, "method": method}
    left, right = frame, other
    if way != "plain":
        left, right = (dd.from_pandas(some, npartitions=3) for some in (frame, other))
        how |= {"partitioning": way, "blocksize": 200 * 8 * dims}
    with dask.config.set({"simjoin.threads": 3}):
        semi, anti, outer = dask.compute(
            left.simjoin.join(right, eps, how="leftsemi", **how),
            left.simjoin.join(right, eps, how="leftanti", **how),
            left.simjoin.join(right, eps, how="outer", **how),
        )
    assert set(semi.index) == set(frame.index[near.any(1)])
    assert set(anti.index) == set(frame.index[~near.any(1)])
    alone = outer.loc[outer["left"].isna(), "right"]
    assert set(alone) == set(other.index[~near.any(0)])
