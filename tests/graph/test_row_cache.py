"""Rows that planning read are kept for the join."""

import gc
import itertools
from collections import Counter

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, get_client, worker_client

from dask_simjoin.graph import row_cache
from dask_simjoin.graph.planner import StatisticsCache
from dask_simjoin.graph.row_cache import ROWS, shared_by_workers
from dask_simjoin.graph.source import freeze, held_keys
from tests.support.gates import PATIENCE, until
from tests.support.profiles import every_nth

EPS, PARTS, ROWS_OF_PART = 0.05, 3, 50


@pytest.fixture(autouse=True)
def threads(monkeypatch):
    monkeypatch.setattr(ROWS, "most", 1 << 20)
    with dask.config.set(scheduler="threads"):
        yield


NUMBERS = itertools.count()

READS = Counter()
"""Reads of each source, in all threads: workers get copies of a source."""


class Source:
    """A Dask DataFrame that counts how often a partition is read."""

    def __init__(self):
        self.number = next(NUMBERS)
        rng = np.random.default_rng(0)
        index = pd.RangeIndex(PARTS * ROWS_OF_PART)
        self.whole = pd.DataFrame(
            rng.uniform(size=(len(index), 2)), columns=["x", "y"], index=index
        )
        self.whole["text"] = [f"name {k % 20}" for k in index]

    @property
    def reads(self):
        return READS[self.number]

    def _read(self, n, number):
        READS[self.number] += 1
        return self.whole.iloc[n * ROWS_OF_PART : (n + 1) * ROWS_OF_PART]

    def frame(self, part=None):
        return dd.from_map(
            self._read, range(PARTS), number=self.number, meta=self.whole.iloc[:0]
        )


def rows_of(pairs):
    return sorted(zip(pairs["left"], pairs["right"], strict=True))


VERBS = {
    "count_pairs": lambda frame: frame.simjoin.count_pairs(EPS, on=["x", "y"]),
    "self_join": lambda frame: frame.simjoin.self_join(EPS, on=["x", "y"]),
    "in entity chunks": lambda frame: frame.simjoin.self_join(
        EPS, on=["x", "y"], partitioning="entity", blocksize=40 * 24
    ),
    "in spatial chunks": lambda frame: frame.simjoin.self_join(
        EPS, on=["x", "y"], partitioning="spatial", blocksize=40 * 24
    ),
    "edit_self_join": lambda frame: frame.simjoin.edit_self_join("text", 1),
    "dbscan": lambda frame: frame.simjoin.dbscan(EPS, 3, on=["x", "y"]).sum(),
    "dbscan by regions": lambda frame: frame.simjoin.dbscan(
        EPS, 3, on=["x", "y"], partitioning="spatial", blocksize=40 * 64
    ).sum(),
}


def check_read_once(verb):
    """A computation reads each partition once, and finds what the plain frame gives."""
    source = Source()
    lazy = VERBS[verb](source.frame())
    found = lazy.compute()
    assert source.reads == PARTS
    want = (
        VERBS[verb](source.whole)
        if "chunks" not in verb
        else VERBS["self_join"](source.whole)
    )
    assert (
        (rows_of(found) == rows_of(want))
        if isinstance(want, pd.DataFrame)
        else found == want
    )
    again = lazy.compute()  # the rows were taken, so they are read again
    # labels that Dask shuffles back are put beside the index, which another task then
    # reads
    assert source.reads == 2 * PARTS or (
        verb == "dbscan by regions" and source.reads == 3 * PARTS
    )
    assert (
        (rows_of(again) == rows_of(want))
        if isinstance(want, pd.DataFrame)
        else again == want
    )


@pytest.mark.parametrize("verb", VERBS)
def test_a_partition_is_read_once(verb):
    check_read_once(verb)


def test_two_tables_are_read_once():
    left, right = Source(), Source()
    found = left.frame().simjoin.join(right.frame(), EPS, on=["x", "y"]).compute()
    assert (left.reads, right.reads) == (PARTS, PARTS)
    assert rows_of(found) == rows_of(
        left.whole.simjoin.join(right.whole, EPS, on=["x", "y"])
    )


def test_results_of_one_computation_share_the_rows():
    source = Source()
    pairs = source.frame().simjoin.self_join(EPS, on=["x", "y"])
    both = dask.compute(pairs["left"].count(), pairs["right"].max())
    assert source.reads == PARTS
    want = source.whole.simjoin.self_join(EPS, on=["x", "y"])
    assert both == (len(want), want["right"].max())


@pytest.mark.parametrize("most", [0, 1000])
def test_rows_that_take_too_much_memory_are_read_twice(monkeypatch, most):
    monkeypatch.setattr(ROWS, "most", most)
    source = Source()
    source.frame().simjoin.count_pairs(EPS, on=["x", "y"]).compute()
    assert source.reads == 2 * PARTS


@pytest.mark.parametrize(
    "verb",
    [
        lambda frame: frame.simjoin.neighbor_counts(EPS, on=["x", "y"]),
        lambda frame: frame.simjoin.knn_join(k=3, on=["x", "y"])["distance"],
    ],
)
def test_rows_of_a_result_with_a_row_for_each_are_not_kept(verb):
    source = Source()
    assert verb(source.frame()).compute().tolist() == verb(source.whole).tolist()
    assert source.reads >= 2 * PARTS and not ROWS._kept


def test_rows_are_not_sent_to_other_processes():
    source = Source()
    pairs = source.frame().simjoin.self_join(EPS, on=["x", "y"])
    assert pairs.npartitions and len(ROWS._kept) == 1
    with dask.config.set(scheduler="processes"):
        assert not any(
            "simjoin_rows" in str(key) for key in dict(pairs.__dask_graph__())
        )


def test_rows_live_as_long_as_the_join(monkeypatch):
    monkeypatch.setattr(row_cache, "ROWS", ROWS)
    pairs = Source().frame().simjoin.self_join(EPS, on=["x", "y"])
    assert pairs.npartitions and len(ROWS._kept) == 1
    del pairs
    gc.collect()
    assert not ROWS._kept


def test_the_oldest_rows_go_first(monkeypatch):
    each = sum(Source().whole[name].memory_usage(index=False) for name in "xy")
    monkeypatch.setattr(ROWS, "most", 2 * each + each // 2)
    sources = [Source() for _ in range(3)]
    joins = [source.frame().simjoin.self_join(EPS, on=["x", "y"]) for source in sources]
    assert all(join.npartitions for join in joins)
    for join in joins:
        join.compute()
    assert [source.reads for source in sources] == [2 * PARTS, PARTS, PARTS]


def test_processes_do_not_keep_rows(monkeypatch):
    with dask.config.set(scheduler="processes"):
        assert ROWS.passed(None, "pandas") is None


def test_rows_in_memory_are_not_kept():
    frame = dd.from_pandas(Source().whole, npartitions=PARTS)
    assert StatisticsCache().place(frame.expr, "key") is not None
    frame.simjoin.self_join(EPS, on=["x", "y"]).npartitions  # noqa: B018
    assert not ROWS._kept


@pytest.fixture
def local_client():
    """Two workers in this process, so that `Source` counts their reads."""
    how = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": ":0",
    }
    with (
        LocalCluster(**how, memory_limit="1 TB") as cluster,
        Client(cluster) as client,
        dask.config.set(scheduler="dask.distributed"),
    ):
        yield client


@pytest.mark.parametrize("verb", every_nth(4, VERBS))
def test_workers_read_a_partition_once(local_client, verb):
    check_read_once(verb)


def test_workers_drop_the_rows_after_the_join(local_client):
    source = Source()
    pairs = source.frame().simjoin.self_join(EPS, on=["x", "y"])
    assert (
        pairs.npartitions
        and len(ROWS._kept) == 1
        and any(local_client.has_what().values())
    )
    assert len(pairs.compute()) == len(
        source.whole.simjoin.self_join(EPS, on=["x", "y"])
    )
    gc.collect()
    assert not ROWS._kept
    until(
        lambda: not any(local_client.has_what().values()), "the workers still hold rows"
    )


@pytest.mark.parametrize("share", [10**9, 10**12])
def test_workers_do_not_keep_rows_that_take_too_much_memory(
    local_client, monkeypatch, share
):
    monkeypatch.setattr(row_cache, "CACHE_SHARE", share)
    source = Source()
    pairs = source.frame().simjoin.self_join(EPS, on=["x", "y"])
    assert rows_of(pairs.compute()) == rows_of(
        source.whole.simjoin.self_join(EPS, on=["x", "y"])
    )
    assert not ROWS._kept and source.reads == 2 * PARTS


def growing(n):
    """A partition of 8 * (1 + n)**2 bytes."""
    READS["growing"] += 1
    return pd.DataFrame({"x": np.full((1 + n) ** 2, float(n))})


def count_rows(frame, number, text):
    """Return what shows that the arguments belong together."""
    READS["counted", READS["growing"]] += 1
    if text == "wrong" and number == 3:
        raise ValueError("a wrong partition")
    return number, len(frame), text


def pass_over_growing(text="text", parts=40):
    """The results of a pass of workers over 40 partitions, and their source."""
    source = freeze(dd.from_map(growing, range(parts), meta=growing(0).iloc[:0]), ["x"])
    READS.clear()
    return ROWS.pass_on_workers(
        source, "pandas", "simjoin_summary", count_rows, text, each=range(parts)
    ), source


def check_memory_of_workers(client, holds):
    """Workers soon hold this many results."""
    until(
        lambda: sum(map(len, client.has_what().values())) == holds,
        f"the workers do not hold {holds} results",
    )


def test_results_are_in_the_order_of_partitions(local_client):
    found, source = pass_over_growing()
    assert found == [(n, (1 + n) ** 2, "text") for n in range(40)]
    assert READS["growing"] == 40
    check_memory_of_workers(local_client, 40)
    rows = ROWS.take(source).inner
    assert (
        local_client.gather(rows.operand("layer")[held_keys(rows)[5]]).x.tolist()
        == [5.0] * 36
    )


def test_partitions_are_summarised_while_others_are_read(local_client):
    pass_over_growing()
    assert READS["counted", 40] < 20


@pytest.mark.parametrize("threads", every_nth(4, [1, 10]))
def test_rows_are_dropped_as_soon_as_they_take_too_much(
    local_client, monkeypatch, threads
):
    """The first partitions are small, the last ones are not."""
    monkeypatch.setattr(row_cache, "FEW", threads)
    each = sum(8 * (1 + n) ** 2 for n in range(40))
    limit = row_cache.limits_for("pandas").limit * 2
    monkeypatch.setattr(row_cache, "CACHE_SHARE", limit // (each // 2))
    found, _ = pass_over_growing()
    assert found == [(n, (1 + n) ** 2, "text") for n in range(40)]
    assert READS["growing"] == 40 and not ROWS._kept  # no partition is read twice
    check_memory_of_workers(local_client, 0)


def test_an_error_keeps_no_rows(local_client):
    with pytest.raises(ValueError, match="a wrong partition"):
        pass_over_growing("wrong")
    assert not ROWS._kept
    check_memory_of_workers(local_client, 0)


def test_equal_tables_of_one_computation_are_read_once(local_client):
    source = Source()
    joins = [
        source.frame().simjoin.self_join(eps, on=["x", "y"]) for eps in (EPS, 2 * EPS)
    ]
    found = dask.compute(*joins)
    assert source.reads == PARTS
    for pairs, eps in zip(found, (EPS, 2 * EPS), strict=True):
        assert rows_of(pairs) == rows_of(
            source.whole.simjoin.self_join(eps, on=["x", "y"])
        )


def join_in_a_task(way, folder):
    pairs = dd.read_parquet(folder).simjoin.count_pairs(EPS, on=["x", "y"])
    if way == "worker_client":
        with worker_client():
            return pairs.compute()
    get_client()
    return pairs.compute()


@pytest.mark.parametrize("way", ["worker_client", "get_client"])
def test_a_task_can_join_on_its_only_thread(tmp_path, way):
    whole = Source().whole[["x", "y"]]
    dd.from_pandas(whole, npartitions=PARTS).to_parquet(tmp_path)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
        dask.config.set(scheduler="dask.distributed"),
    ):
        found = client.submit(join_in_a_task, way, tmp_path)
        assert found.result(timeout=PATIENCE) == whole.simjoin.count_pairs(EPS)


def test_rows_on_workers_are_not_used_elsewhere(local_client):
    source = Source()
    pairs = source.frame().simjoin.self_join(EPS, on=["x", "y"], partitioning="entity")
    assert pairs.npartitions and len(ROWS._kept) == 1
    with dask.config.set(scheduler="threads"):
        assert rows_of(pairs.compute()) == rows_of(
            source.whole.simjoin.self_join(EPS, on=["x", "y"])
        )
    assert source.reads >= 2 * PARTS


def test_rows_that_workers_have_lost_are_read_again(local_client):
    """As after a restart of the client, which cancels all futures."""
    source = Source()
    pairs = source.frame().simjoin.self_join(EPS, on=["x", "y"], partitioning="entity")
    assert pairs.npartitions and len(ROWS._kept) == 1
    ((rows, _),) = ROWS._kept.values()
    local_client.cancel(list(rows.operand("layer").values()), force=True)
    assert rows_of(pairs.compute()) == rows_of(
        source.whole.simjoin.self_join(EPS, on=["x", "y"])
    )
    assert source.reads >= 2 * PARTS


def test_rows_that_workers_hold_are_sent_by_worker(local_client):
    source = Source()
    join = {"on": ["x", "y"], "partitioning": "spatial", "blocksize": 40 * 24}
    pairs = source.frame().simjoin.self_join(EPS, **join)
    steps = {
        str(key[0] if isinstance(key, tuple) else key).split("-")[0]
        for key in pairs.__dask_graph__()
    }
    assert "simjoin_parcel" in steps


@pytest.mark.parametrize(
    "index", [None, list("abcdef"), [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]]
)
def test_bytes_of_a_frame(index):
    frame = pd.DataFrame(
        {"x": np.arange(6.0), "y": np.arange(6, dtype=np.int16)}, index=index
    )
    size = 6 * (8 + 2) + (0 if index is None else frame.index.memory_usage(deep=True))
    assert row_cache._bytes(frame) == size
    frame["text"], frame["kind"] = list("uvwxyz"), pd.Categorical(list("uvuvuv"))
    frame["list"] = [[1.0]] * 6
    texts = frame[["text", "kind", "list"]].memory_usage(index=False, deep=True).sum()
    assert row_cache._bytes(frame) == pytest.approx(size + texts)
    assert row_cache._bytes(frame.iloc[:0][["x"]]) == 0


def test_workers_read_consecutive_partitions():
    keys = list("abcdefg")
    assert shared_by_workers(keys, {"v": 1, "u": 1}) == {
        "u": ["a", "b", "c", "d"],
        "v": ["e", "f", "g"],
    }
    assert shared_by_workers(keys, {"u": 2, "v": 1}) == {
        "u": list("abcde"),
        "v": ["f", "g"],
    }
    assert shared_by_workers(["a"], {"u": 1, "v": 1}) == {"u": ["a"]}


def test_each_worker_holds_the_partitions_of_its_chunks(client, tmp_path):
    x = pd.DataFrame(
        np.random.default_rng(1).uniform(size=(800, 2)), columns=["x", "y"]
    )
    dd.from_pandas(x, npartitions=8).to_parquet(tmp_path)
    pairs = dd.read_parquet(tmp_path).simjoin.self_join(EPS, partitioning="entity")
    assert pairs.npartitions
    (source,) = ROWS._kept
    rows = ROWS.look_up(source).inner
    there = client.who_has([rows.operand("layer")[key] for key in held_keys(rows)])
    holders = [there[key] for key in held_keys(rows)]
    assert (
        holders[:4] == holders[:1] * 4
        and holders[4:] == holders[4:5] * 4 != holders[:4]
    )
