"""Orders of visits: simulated reads against the optimum, bounds, and the choice of an
order.
"""

import heapq
import itertools
import math
from dataclasses import replace

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.planning.entity_chunks import serpentine
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.visits import (
    chunks_in_memory,
    count_reads,
    greedy_order,
    grouped_order,
    min_reads,
    plan_visits,
)
from tests.planning.test_resources import GB


def belady_reads(blocks: np.ndarray, capacity: int) -> np.ndarray:
    """Return how often each chunk is read. The chunk with the latest next visit is
    evicted (Belady's rule).

    No rule needs fewer reads for a given order.  See `count_reads`.
    """
    pairs = np.asarray(blocks).tolist()
    never, upcoming = (
        len(pairs),
        [[math.inf] for _ in range(int(np.max(blocks, initial=-1)) + 1)],
    )
    for place in range(never - 1, -1, -1):
        for chunk in set(pairs[place]):
            upcoming[chunk].append(place)
    reads, memory = [0] * len(upcoming), set[int]()
    # a heap of (-next visit, chunk), with outdated items
    latest: list[tuple[float, int]] = []
    for pair in pairs:
        for chunk in set(pair):
            reads[chunk] += chunk not in memory
            memory.add(chunk)
            upcoming[chunk].pop()
            heapq.heappush(latest, (-upcoming[chunk][-1], chunk))
        own: list[tuple[float, int]] = []
        while len(memory) > capacity:
            item = heapq.heappop(latest)
            if item[1] in pair:
                own.append(item)
            elif -item[0] == upcoming[item[1]][-1]:
                memory.discard(item[1])
        for item in own:
            heapq.heappush(latest, item)
    return np.array(reads, np.int64)


def all_pairs(chunks):
    """All block pairs of a table with itself, in the usual order."""
    return serpentine(
        np.array(list(itertools.combinations_with_replacement(range(chunks), 2)))
    )


def near_pairs(side):
    """Block pairs of the neighboring cells of a square grid, in the usual order."""
    cells = list(itertools.product(range(side), repeat=2))
    near = [
        (a, b)
        for a, b in itertools.combinations_with_replacement(range(len(cells)), 2)
        if max(abs(cells[a][0] - cells[b][0]), abs(cells[a][1] - cells[b][1])) <= 1
    ]
    return serpentine(np.array(near))


@st.composite
def block_pairs(draw, most=5):
    number = draw(st.integers(2, most))
    every = list(itertools.combinations_with_replacement(range(number), 2))
    chosen = draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    return np.array(draw(st.permutations(chosen)))


def fewest_reads(blocks, capacity):
    """The fewest reads for visits in this order, by trying all evictions."""
    states = {frozenset(): 0}
    for pair in blocks.tolist():
        found = {}
        for memory, reads in states.items():
            needed = memory | set(pair)
            reads += len(needed) - len(memory)
            others = needed - set(pair)
            kept = [needed]
            if len(needed) > capacity:
                kept = [
                    set(pair) | set(some)
                    for some in itertools.combinations(
                        others, capacity - len(set(pair))
                    )
                ]
            for some in kept:
                key = frozenset(some)
                found[key] = min(reads, found.get(key, reads))
        states = found
    return min(states.values())


def fewest_reads_of_any_order(blocks, capacity):
    """The fewest reads in any order: Dijkstra's algorithm over visited pairs and chunks
    in memory.
    """
    edges = [frozenset(pair) for pair in blocks.tolist()]
    chunks = sorted(set().union(*edges))

    def done(memory, visited):
        return visited | {edge for edge in edges if edge <= memory}

    heap, best, count = [(0, 0, frozenset(), frozenset())], {}, itertools.count(1)
    while heap:
        reads, _, memory, visited = heapq.heappop(heap)
        if len(visited) == len(set(edges)):
            return reads
        if best.get((memory, visited), reads + 1) <= reads:
            continue
        best[memory, visited] = reads
        for chunk in set(chunks) - memory:
            for evicted in [None] if len(memory) < capacity else memory:
                then = (memory - {evicted}) | {chunk}
                heapq.heappush(
                    heap, (reads + 1, next(count), then, frozenset(done(then, visited)))
                )
    raise AssertionError


@given(block_pairs(), st.integers(2, 4))
def test_beladys_rule_reads_as_few_chunks_as_any_evictions(blocks, capacity):
    least = fewest_reads(blocks, capacity)
    assert (
        belady_reads(blocks, capacity).sum()
        == least
        <= count_reads(blocks, capacity).sum()
    )


@given(block_pairs(4), st.integers(2, 3))
def test_no_order_reads_less_than_the_bound(blocks, capacity):
    least = fewest_reads_of_any_order(blocks, capacity)
    assert min_reads(blocks, capacity) <= least <= belady_reads(blocks, capacity).sum()
    assert belady_reads(blocks[greedy_order(blocks, capacity)], capacity).sum() >= least


@given(block_pairs(12), st.integers(1, 8))
def test_orders_visit_each_block_pair_once(blocks, capacity):
    for order in (
        grouped_order(blocks, capacity),
        greedy_order(blocks, max(capacity, 2)),
    ):
        assert sorted(order.tolist()) == list(range(len(blocks)))


@given(block_pairs(12), st.integers(2, 14))
def test_a_chunk_is_read_once_if_all_fit(blocks, capacity):
    reads = count_reads(blocks, capacity)
    used = np.unique(blocks)
    assert (reads[used] >= 1).all() and reads.sum() == reads[used].sum()
    if capacity >= len(used):
        assert (
            reads.sum()
            == belady_reads(blocks, capacity).sum()
            == min_reads(blocks, capacity)
            == len(used)
        )


@pytest.mark.parametrize(("chunks", "capacity"), [(48, 12), (80, 20), (80, 6)])
def test_groups_read_little_more_than_the_bound_and_less_than_other_orders(
    chunks, capacity
):
    blocks = all_pairs(chunks)
    grouped = count_reads(blocks[grouped_order(blocks, capacity - 2)], capacity).sum()
    assert min_reads(blocks, capacity) <= grouped <= 1.27 * min_reads(blocks, capacity)
    # each new chunk meets all earlier ones, as in the order of Dask
    growing = blocks[np.lexsort((blocks[:, 0], blocks[:, 1]))]
    assert 3 * grouped < count_reads(growing, capacity).sum()
    assert grouped < 0.6 * count_reads(blocks, capacity).sum()


def test_neighboring_regions_are_read_little_more_than_once():
    blocks = near_pairs(16)
    assert min_reads(blocks, 64) == 256
    assert count_reads(blocks[greedy_order(blocks, 64)], 64).sum() <= 1.1 * 256


def few(memory, workers=2, threads=2):
    """Workers that hold `memory` bytes of data each."""
    limit = 4 * GB
    itself = 0.7 * limit - memory
    return Limits(
        threads,
        round((limit - itself) / (threads / workers)),
        True,
        round(limit),
        workers=workers,
    )


class Table:
    """Chunks of equal rows, which all meet."""

    def __init__(self, number, rows):
        self.rows = np.full(number, float(rows))

    def __len__(self):
        return len(self.rows)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_plan_has_the_visits_of_each_worker(workers):
    chunks, blocks = Table(40, 10**6), all_pairs(40)
    resources = few(0.5 * GB, workers, workers)
    visits = plan_visits(chunks, blocks, np.ones(len(blocks)), 24.0, True, resources)
    assert visits.capacity == chunks_in_memory(chunks, 24.0, True, resources) < 20
    seconds = [int((visits.worker == number).sum()) for number in range(workers)]
    assert max(seconds) - min(seconds) <= 1
    again = 0.0
    for number in range(workers):
        own = np.flatnonzero(visits.worker == number)
        assert sorted(visits.place[own].tolist()) == list(range(len(own)))
        ordered = blocks[own[np.argsort(visits.place[own])]]
        again += count_reads(ordered, visits.capacity).sum()
    assert visits.again == pytest.approx((again - 40) * 10**6)
    usual = count_reads(blocks, visits.capacity).sum()
    assert 40 < again < usual


@pytest.mark.parametrize("passes", [2, 3])
def test_each_pass_reads_the_chunks_that_it_needs_first(passes):
    """The pass before it has ended with other chunks in memory."""
    chunks, blocks, resources = Table(40, 10**6), all_pairs(40), few(0.5 * GB, 1, 1)
    how = np.ones(len(blocks)), 24.0, True, resources
    one, more = (plan_visits(chunks, blocks, *how, some) for some in (1, passes))
    ordered = blocks[np.argsort(one.place)]
    reads = count_reads(np.tile(ordered, (passes, 1)), one.capacity).sum()
    assert more.again == pytest.approx((reads - 40) * 10**6)
    assert more.again > passes * one.again
    assert (more.place == one.place).all()


def test_chunks_that_fit_or_meet_no_others_have_no_order():
    seconds = np.ones(820)
    chunks, blocks = Table(40, 10**6), all_pairs(40)
    assert plan_visits(chunks, blocks, seconds, 24.0, True, few(3 * GB)) is None
    assert plan_visits(chunks, blocks, seconds, 24.0, True, Limits(2)) is None
    own = np.repeat(np.arange(40), 2).reshape(-1, 2)
    assert plan_visits(chunks, own, seconds[:40], 24.0, True, few(0.5 * GB)) is None
    assert plan_visits(chunks, blocks, seconds, 24.0, True, few(0.5 * GB)) is not None


def test_the_target_of_dask_limits_the_chunks_in_memory():
    chunks = Table(40, 10**6)
    with dask.config.set({"distributed.worker.memory.target": 0.05}):
        # bytes per row with its index: 41, or 33 without ids
        assert chunks_in_memory(chunks, 24.0, False, few(2 * GB)) == int(
            0.85 * 0.05 * 4 * GB / (33.6 * 10**6)
        )
        assert chunks_in_memory(chunks, 24.0, True, few(2 * GB)) == int(
            0.85 * 0.05 * 4 * GB / (41 * 10**6)
        )
    with dask.config.set({"distributed.worker.memory.target": False}):
        assert chunks_in_memory(chunks, 24.0, True, few(2 * GB)) > 10
    assert chunks_in_memory(chunks, 24.0, True, Limits(2)) is None


def test_the_bound_is_reached_by_a_triangle():
    """Two of three chunks fit, so the third block pair needs a chunk that was evicted."""
    blocks = np.array([[0, 1], [1, 2], [0, 2]])
    assert min_reads(blocks, 2) == belady_reads(blocks, 2).sum() == 4


def test_gpus_visit_chunks_in_an_order_if_the_limit_of_dask_cuda_has_no_room_for_all():
    chunks, blocks = Table(40, 10**6), all_pairs(40)
    gpu = Limits(1, 80 * GB, True, gpu=True)
    assert chunks_in_memory(chunks, 24.0, True, gpu) is None
    for device, room in ((10.3 * 51.25e6, 10), (51.25e6, 2)):  # 41 bytes, 1.25 times
        limited = replace(gpu, device=int(device))
        assert chunks_in_memory(chunks, 24.0, True, limited) == room
        visits = plan_visits(chunks, blocks, np.ones(820), 24.0, True, limited)
        assert visits.capacity == room
    roomy = replace(gpu, device=50 * 52 * 10**6)
    assert plan_visits(chunks, blocks, np.ones(820), 24.0, True, roomy) is None
