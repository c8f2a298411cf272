"""The scheduler follows the order of visits, and workers read fewer spilled chunks."""

import asyncio
import contextlib
from time import sleep
from types import SimpleNamespace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Scheduler, Status, Worker

import dask_simjoin
from dask_simjoin.graph import lazy_join
from dask_simjoin.graph.placement import (
    ChunkHomes,
    Moment,
    PlacementPlugin,
    VisitOrder,
    let_run_elsewhere,
    on_worker_of,
    schedule,
)
from dask_simjoin.planning import visits
from dask_simjoin.sizes import KEPT
from tests.support.gates import PATIENCE
from tests.support.profiles import chosen, every_nth, in_turns

EPS = 0.0002


class Fake:
    """A task of the scheduler."""

    def __init__(self, key, *dependencies):
        self.key, self.dependencies, self.dependents = key, set(dependencies), set()
        self.worker_restrictions, self.loose_restrictions, self.state = (
            set(),
            False,
            "released",
        )
        self.priority = ()
        for one in dependencies:
            one.dependents.add(self)

    def __repr__(self):
        return str(self.key)


def order_of(*places):
    """The order of visits (i, j, worker, place)."""
    found = np.array(places)
    return VisitOrder({"chunks": 0}, found[:, :2], found[:, 2], found[:, 3])


def join_of(blocks, number):
    """The tasks of a join, in an order in which dependencies come first."""
    read = [Fake(("read", c)) for c in range(number)]
    chunks = [Fake(("chunks", c), read[c]) for c in range(number)]
    pairs = [
        Fake(("pairs", b), *{chunks[i], chunks[j]}) for b, (i, j) in enumerate(blocks)
    ]
    written = [Fake(("write", b), one) for b, one in enumerate(pairs)]
    tasks = [*read, *chunks, *pairs, *written]
    for n, task in enumerate(tasks):
        task.priority = (0, 1, n)
    return tasks, read, chunks, pairs, written


def updated(plugin, tasks, workers=("a",)):
    """Tasks by their priorities, after the plugin has seen them."""
    found = SimpleNamespace(
        tasks={task.key: task for task in tasks},
        running=[SimpleNamespace(address=address) for address in workers],
    )
    plugin.update_graph(found, tasks=list(found.tasks))
    return sorted(tasks, key=lambda task: task.priority)


def plugin_with(*orders):
    plugin = PlacementPlugin()
    for order in orders:
        plugin.add(order)
    return plugin


BLOCKS = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]


def test_block_pairs_are_visited_in_order_and_chunks_are_made_when_they_are_needed():
    tasks, read, chunks, pairs, written = join_of(BLOCKS, 3)
    places = [3, 5, 0, 4, 2, 1]
    order = order_of(
        *((i, j, 0, place) for (i, j), place in zip(BLOCKS, places, strict=True))
    )
    before = sorted(task.priority for task in tasks)
    found = updated(plugin_with(order), tasks)
    assert [task for task in found if task in pairs] == [
        pairs[b] for b in np.argsort(places)
    ]
    assert found[:6] == [read[0], read[2], chunks[0], chunks[2], pairs[2], written[2]]
    assert (
        found.index(chunks[1]) == found.index(pairs[4]) - 1 == found.index(read[1]) + 1
    )
    assert sorted(task.priority for task in tasks) == before
    # workers would otherwise get the tasks that read late
    assert all(
        task.worker_restrictions == {"a"} and task.loose_restrictions for task in read
    )
    assert not any(task.worker_restrictions for task in [*chunks, *pairs, *written])


def test_each_worker_has_its_own_visits():
    tasks, read, _, pairs, written = join_of(BLOCKS, 3)
    order = order_of(*((i, j, int(b > 2), b % 3) for b, (i, j) in enumerate(BLOCKS)))
    updated(plugin_with(order), tasks, ("b", "a"))
    for some in (pairs, written):
        assert [task.worker_restrictions for task in some] == [{"a"}] * 3 + [{"b"}] * 3
    assert all(task.loose_restrictions for task in pairs)
    assert [task.worker_restrictions for task in read] == [{"a"}, {"b"}, {"b"}]


def test_a_further_pass_over_the_block_pairs_comes_later():
    tasks, _, chunks, counts, _ = join_of(BLOCKS, 3)
    total = Fake("total", *counts)
    later = [
        Fake(("later", b), total, *{chunks[i], chunks[j]})
        for b, (i, j) in enumerate(BLOCKS)
    ]
    cut = Fake("cut", chunks[0], chunks[2])
    halves = [Fake(("half", k), cut, chunks[0], chunks[2]) for k in range(2)]
    order = order_of(*((i, j, 0, 5 - b) for b, (i, j) in enumerate(BLOCKS)))
    found = schedule([*tasks, total, *later, cut, *halves], order).moments
    assert found[total] == Moment(0, 5, 0)
    assert [found[task] for task in later] == [Moment(1, 5 - b, 0) for b in range(6)]
    assert found[cut] == found[halves[0]] == found[halves[1]] == Moment(0, 3, 0)


def test_a_task_of_one_chunk_runs_with_its_first_visit_and_shuffles_are_left_alone():
    blocks = [(0, 2), (1, 2)]
    tasks, _, chunks, _, _ = join_of(blocks, 3)
    names = Fake("names", chunks[2])
    order = order_of((0, 2, 0, 1), (1, 2, 0, 0))
    assert schedule([*tasks, names], order).moments[names] == Moment(0, 0, 0)
    first = Fake("source")
    many = [Fake(("chunks", c), first) for c in range(40)]
    pairs = [Fake(("pairs", c), one) for c, one in enumerate(many)]
    found = schedule(
        [first, *many, *pairs], order_of(*((c, c, 0, c) for c in range(40)))
    )
    assert found.moments[first] == Moment(0, 0, 0) and found.making == {first, *many}
    assert not found.first


def homes_for(blocks, home, seconds=None, threads=(1, 1)):
    """Homes of chunks; by default, all block pairs take equally long."""
    seconds = np.ones(len(blocks)) if seconds is None else np.array(seconds)
    return ChunkHomes(
        {"chunks": 0}, np.array(blocks), seconds, np.array(home), np.array(threads)
    )


def test_tasks_run_at_the_homes_of_their_chunks_and_others_balance_the_work():
    blocks = [(0, 0), (0, 1), (1, 1)]
    chunks = [Fake(("chunks", c), Fake(("read", c))) for c in range(2)]
    pairs = [
        Fake(("pairs", b, k), *{chunks[i], chunks[j]})
        for b, (i, j) in enumerate(blocks)
        for k in range(2)
    ]
    total = Fake("total", *pairs)
    tasks = [*chunks, *pairs, total]
    for n, task in enumerate(tasks):
        task.priority = (0, 1, n)
    before = [task.priority for task in tasks]
    updated(plugin_with(homes_for(blocks, [1, 0])), tasks, ("b", "a"))
    assert [task.worker_restrictions for task in chunks] == [{"b"}, {"a"}]
    found = [task.worker_restrictions for task in pairs]
    assert found[:2] == [{"b"}] * 2 and found[4:] == [{"a"}] * 2
    assert sorted(map(list, found[2:4])) == [["a"], ["b"]]
    assert all(task.loose_restrictions for task in [*chunks, *pairs])
    assert not total.worker_restrictions and [task.priority for task in tasks] == before


def test_tasks_run_where_their_copy_of_a_chunk_is_made():
    rows = [Fake(("points", n)) for n in range(3)]
    copies = [
        Fake(key, *rows)
        for key in (("index", 0), *(("index", on_worker_of(n, 0)) for n in (1, 2)))
    ]
    pairs = [Fake(("pairs", n), one) for n, one in enumerate(copies)]
    others = [
        Fake(key, *rows)
        for key in (("other", 1), *(("other", on_worker_of(n, 1)) for n in (1, 2)))
    ]
    tables = [
        Fake(("tables", n), *two)
        for n, two in enumerate(zip(copies, others, strict=True))
    ]
    both, total = Fake("both", *copies[:2]), Fake("total", *pairs)
    updated(
        PlacementPlugin(),
        [*rows, *copies, *others, *pairs, *tables, both, total],
        ("b", "a"),
    )
    for placed in (copies, pairs, tables):
        assert [task.worker_restrictions for task in placed] == [{"a"}, {"b"}, {"a"}]
        assert all(task.loose_restrictions for task in placed)
    assert not any(task.worker_restrictions for task in (*rows, both, total))


def test_tasks_that_use_chunks_of_one_worker_run_there():
    chunks = [Fake(("simjoin_index-0", on_worker_of(c // 2, c))) for c in range(4)]
    counts = [Fake(("simjoin_count-0", c), one) for c, one in enumerate(chunks)]
    inside = Fake(("simjoin_pairs-0", 0), *chunks[2:])
    across = Fake(("simjoin_pairs-0", 1), *chunks[1:3])
    updated(PlacementPlugin(), [*chunks, *counts, inside, across], ("b", "a"))
    placed = [task.worker_restrictions for task in [*counts, inside, across]]
    assert placed == [{"a"}, {"a"}, {"b"}, {"b"}, {"b"}, set()]
    assert all(task.loose_restrictions for task in [*counts, inside])


async def stolen_by_another(sending):
    """Whether an idle worker gets tasks that another worker prefers, if to send their
    data seems to take it this many seconds.
    """
    often = dask.config.set({"distributed.scheduler.work-stealing-interval": "2ms"})
    async with (
        contextlib.nullcontext(often),
        Scheduler(port=0, dashboard_address=":0") as scheduler,
        Client(scheduler.address, asynchronous=True) as client,
        Worker(scheduler.address, nthreads=2) as busy,
        Worker(scheduler.address, nthreads=2),
    ):
        await client.register_plugin(PlacementPlugin())
        data = client.submit(np.ones, 1000, workers=[busy.address])
        scheduler.bandwidth = 8000 / sending
        tasks = client.map(
            lambda _, n: sleep(0.04),
            [data] * 8,
            range(8),
            key="simjoin_work",
            workers=[busy.address],
            allow_other_workers=True,
        )
        await client.gather(tasks)
        found = await client.who_has(tasks)
        return any(workers != (busy.address,) for workers in found.values())


@pytest.mark.parametrize(("sending", "stolen"), [(3.0, False), (0.01, True)])
def test_tasks_are_stolen_only_if_that_is_faster(sending, stolen):
    """Eight tasks seem to take 0.5 s each, so two threads seem to need 2 s for them.
    Dask takes them for 4 s of work.
    """
    assert asyncio.run(stolen_by_another(sending)) == stolen


def test_the_worker_with_less_work_gets_the_comparisons_of_two_chunks():
    blocks = [(0, 0), (0, 1), (1, 1)]
    _, _, chunks, pairs, _ = join_of(blocks, 2)
    assert homes_for(blocks, [0, 1], [3, 2, 1]).workers([*chunks, *pairs]) == dict(
        zip([*chunks, *pairs], [0, 1, 0, 1, 1], strict=True)
    )
    # a worker with more threads gets more work
    found = homes_for(blocks, [0, 1], [2, 2, 2], (2, 1)).workers([*chunks, *pairs])
    assert [found[pair] for pair in pairs] == [0, 0, 1]


def test_one_worker_compares_two_chunks_if_that_is_fair():
    """Of each two of three chunks, only one index is sent."""
    blocks = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    chunks = [Fake(("chunks", c)) for c in range(3)]
    pairs = {
        (i, j): [Fake(("pairs", b, k), *{chunks[i], chunks[j]}) for k in range(2)]
        for b, (i, j) in enumerate(blocks)
    }
    tasks = [*chunks, *(task for some in pairs.values() for task in some)]
    found = homes_for(blocks, [0, 1, 2], [1, 2, 2, 1, 2, 1], (1, 1, 1)).workers(tasks)
    workers = {pair: {found[task] for task in some} for pair, some in pairs.items()}
    assert all(len(some) == 1 and some <= set(pair) for pair, some in workers.items())
    assert {*workers[0, 1], *workers[0, 2], *workers[1, 2]} == {0, 1, 2}


def test_each_step_of_a_verb_balances_its_own_work():
    blocks = [(0, 0), (0, 1), (1, 1)]
    chunks = [Fake(("chunks", c)) for c in range(2)]
    steps = [
        [
            Fake((name, (b, k)), *{chunks[i], chunks[j]})
            for b, (i, j) in some
            for k in range(2)
        ]
        for name, some in {
            "count": [*enumerate(blocks)],
            "across": [(1, (0, 1))],
        }.items()
    ]
    alone = Fake(("merge", 0), *chunks)
    found = homes_for(blocks, [0, 1]).workers([*chunks, *steps[0], *steps[1], alone])
    for some in steps:
        assert [found[task] for task in some].count(0) == len(some) / 2
    assert alone not in found


def test_dask_places_tasks_if_homes_have_unequal_work_or_workers_have_changed():
    blocks = [(0, 0), (0, 1), (1, 1)]
    _, _, chunks, pairs, written = join_of(blocks, 2)
    assert homes_for(blocks, [0, 1], [4, 1, 1]).workers([*chunks, *pairs]) == {}
    tasks = [*chunks, *pairs, *written]
    updated(plugin_with(homes_for(blocks, [0, 1], [2, 2, 2])), tasks, ("a", "b", "c"))
    assert not any(task.worker_restrictions for task in tasks)


def test_tasks_keep_the_workers_that_a_caller_has_chosen():
    blocks = [(0, 0), (0, 1), (1, 1)]
    tasks, _, chunks, _, _ = join_of(blocks, 2)
    chunks[0].worker_restrictions = {"b"}
    updated(plugin_with(homes_for(blocks, [0, 1], [2, 1, 1])), tasks, ("a", "b"))
    assert chunks[0].worker_restrictions == {"b"} == chunks[1].worker_restrictions
    assert not chunks[0].loose_restrictions


def test_other_tasks_and_other_joins_keep_their_priorities():
    tasks, *_ = join_of(BLOCKS, 3)
    before = [task.priority for task in tasks]
    order = VisitOrder(
        {"others": 0}, np.zeros((1, 2), int), np.zeros(1, int), np.zeros(1, int)
    )
    updated(plugin_with(order), tasks)
    assert [task.priority for task in tasks] == before
    plugin = plugin_with(
        *(VisitOrder({f"{n}": 0}, *(np.zeros(0, int),) * 3) for n in range(KEPT + 4))
    )
    assert len(plugin._orders) == KEPT


def test_a_new_worker_may_run_tasks_whose_preferred_workers_are_absent():
    loose, strict, own, free = (
        Fake(name) for name in ("loose", "strict", "own", "free")
    )
    for task, worker in ((loose, "gone"), (strict, "gone"), (own, "new")):
        task.worker_restrictions = {worker}
        task.loose_restrictions = task is not strict
    found = SimpleNamespace(unrunnable=dict.fromkeys((loose, strict, own, free)))
    let_run_elsewhere(found, "new")
    assert not loose.worker_restrictions
    assert strict.worker_restrictions == {"gone"}
    assert own.worker_restrictions == {"new"}
    assert not free.worker_restrictions


async def everybody_leaves(scheduler, workers):
    """Both workers leave, and another one comes."""
    await everybody_closes(workers)
    yield
    async with Worker(scheduler.address):
        yield


async def everybody_is_retired(scheduler, workers):
    """Another worker comes while the workers still finish their work; then they leave."""
    for worker in workers:
        worker.status = Status.closing_gracefully
    yield
    async with Worker(scheduler.address):
        await everybody_closes(workers)
        yield


async def one_resumes(scheduler, workers):
    """Both workers are paused, and only the other one resumes."""
    for worker in workers:
        worker.status = Status.paused
    yield
    workers[1].status = Status.running
    yield


async def one_comes_and_pauses(scheduler, workers):
    """A worker comes, but is paused at first."""
    await everybody_closes(workers)
    async with Worker(scheduler.address) as worker:
        await running_in(scheduler, 1)
        worker.status = Status.paused
        await running_in(scheduler, 0)
        yield
        worker.status = Status.running
        yield


async def one_comes_back(scheduler, workers):
    """Both workers leave, and one with the first one's address comes."""
    port = int(workers[0].address.rsplit(":", 1)[1])
    await everybody_closes(workers)
    yield
    async with Worker(scheduler.address, port=port) as worker:
        assert worker.address == workers[0].address
        yield


async def everybody_closes(workers):
    await asyncio.gather(*(worker.close() for worker in workers))


async def running_in(scheduler, number):
    """Wait until the scheduler counts this many running workers."""
    async with asyncio.timeout(PATIENCE):
        while len(scheduler.running) != number:
            await asyncio.sleep(0.005)


async def results_after(change):
    """Results of tasks that prefer a worker, if workers change before they are ready."""
    async with (
        Scheduler(port=0, dashboard_address=":0") as scheduler,
        Client(scheduler.address, asynchronous=True) as client,
        Worker(scheduler.address) as first,
        Worker(scheduler.address) as second,
    ):
        await client.register_plugin(PlacementPlugin())
        for worker in (first, second):
            # its memory would let it resume
            worker.periodic_callbacks.pop("memory_monitor").stop()
        preferred = {"workers": [first.address], "allow_other_workers": True}
        async with contextlib.aclosing(change(scheduler, [first, second])) as steps:
            await anext(steps)
            await running_in(scheduler, 0)
            x = client.submit(int, 1, **preferred)
            y = client.submit(lambda x: x + 1, x, **preferred)
            async with asyncio.timeout(PATIENCE):
                while not scheduler.unrunnable:
                    await asyncio.sleep(0.005)
            await anext(steps)
            async with asyncio.timeout(PATIENCE):
                return await client.gather([x, y])


@pytest.mark.parametrize(
    "change",
    [
        everybody_leaves,
        everybody_is_retired,
        one_resumes,
        one_comes_and_pauses,
        one_comes_back,
    ],
)
def test_tasks_run_on_other_workers_than_those_that_they_prefer(change):
    assert asyncio.run(results_after(change)) == [1, 2]


@pytest.fixture(scope="module")
def small_memory():
    """A worker that spills data beyond six chunks."""
    config = {
        f"distributed.worker.memory.{name}": False
        for name in ("spill", "pause", "terminate")
    }
    with (
        dask.config.set(config | {"distributed.worker.memory.target": 0.0005}),
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            memory_limit="1 GB",
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def points_of(number, seed=0):
    x = np.random.default_rng(seed).uniform(size=(number, 2))
    return pd.DataFrame(x, columns=["x", "y"]).assign(id=np.arange(number))


JOIN = {"on": ["x", "y"], "id": "id", "partitioning": "entity", "blocksize": "49 kB"}


def read_bytes(client):
    """Bytes of spilled data that the workers have read."""
    return sum(
        client.run(
            lambda dask_worker: dask_worker.data.cumulative_metrics[
                "disk-read", "bytes"
            ]
        ).values()
    )


@pytest.mark.parametrize("ordered", chosen([False, True], [True]))
def test_workers_follow_the_order_and_reports_count_what_they_read(
    small_memory, monkeypatch, ordered
):
    frame = points_of(24_000, ordered)
    expected = frame.simjoin.self_join(EPS, on=["x", "y"], id="id")
    if not ordered:
        monkeypatch.setattr(lazy_join, "send_placement", lambda order: None)
    ddf = dd.from_pandas(frame, npartitions=12, sort=False)
    lazy, plan = ddf.simjoin.self_join(EPS, **JOIN), ddf.simjoin.plan(EPS, **JOIN)
    order = lazy.expr.plan.work.visits
    before = read_bytes(small_memory)
    small_memory.get_task_stream()  # the first call starts the recording
    found = lazy.compute().sort_values(["left", "right"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(
        found, expected.sort_values(["left", "right"]).reset_index(drop=True)
    )
    tasks = [
        one
        for one in small_memory.get_task_stream()
        if "simjoin_pairs" in str(one["key"])
    ]
    tasks = sorted(
        tasks, key=lambda one: min(span["start"] for span in one["startstops"])
    )[-78:]
    places = order.place[[one["key"][1] for one in tasks]]
    late = np.abs(places - np.arange(78)).mean()
    assert late < 4 if ordered else late > 8

    assert plan.table_bytes == 24_000 * 24 and plan.table_reads > 1.5
    assert plan.to_dict()["table_reads"] == plan.table_reads
    assert f"{plan.table_reads:.2g} times the bytes of the table (expected: " in repr(
        plan
    )
    report = dask_simjoin.report(lazy)
    assert 0 < report.read_again <= read_bytes(small_memory) - before
    assert report.table_reads == 1 + report.read_again / plan.table_bytes
    assert f"{report.table_reads:.2g} times the bytes of the table (" in repr(report)
    assert report.to_dict()["read_again"] == report.read_again


VERBS = {
    "count_pairs": lambda frame, **how: frame.simjoin.count_pairs(10 * EPS, **how),
    "neighbor_counts": lambda frame, **how: frame.simjoin.neighbor_counts(
        10 * EPS, **how
    ),
    "dbscan": lambda frame, **how: frame.simjoin.dbscan(0.01, 3, **how),
    "join": lambda frame, **how: frame.simjoin.join(
        frame.assign(x=frame["x"] + 0.001), 10 * EPS, **how
    ),
}


@in_turns(1, verb=every_nth(4, VERBS), partitioning=["entity", "spatial"])
def test_other_verbs_find_the_same_in_any_order_of_visits(
    small_memory, monkeypatch, verb, partitioning
):
    monkeypatch.setattr(visits, "chunks_in_memory", lambda *arguments: 3)
    frame = points_of(4000, 2)
    ddf = dd.from_pandas(frame, npartitions=5, sort=False)
    how = {"on": ["x", "y"], "blocksize": "24 kB", "partitioning": partitioning}
    found = VERBS[verb](ddf, **how).compute()
    expected = VERBS[verb](frame, on=["x", "y"])
    if verb == "count_pairs":
        assert found == expected > 0
    elif verb == "join":
        assert len(found) == len(expected) > 0
    else:
        assert (
            np.asarray(found.sort_index()) == np.asarray(expected.sort_index())
        ).all()
