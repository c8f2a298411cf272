"""What the steps of a join cost, and the parts that its work is cut into."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from dask_simjoin.planning.costs import (
    CALL,
    CALL_ROW,
    RESULT_BYTE,
    TOGETHER,
    Costs,
)
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import COUNTS, PAIRS, ROW_COUNTS, OutputSpec


class Chunks(NamedTuple):
    """What costs ask of chunks."""

    rows: np.ndarray
    sides: list
    method: str | None
    visits: np.ndarray

    def __len__(self):
        return len(self.rows)


def test_pieces_are_as_even_as_the_estimate():
    for threads in (2, 8):
        have = Limits(threads)
        made = Costs("tiles", 16, (1.0, 1.0), 1e6, COUNTS, have)
        seconds = np.array([8.0, 1.0, 1.0, 0.001])
        rows = np.full(4, 1e6)
        parts = made.pieces(seconds, rows, 1000.0)
        assert parts[-1] == 1 and (seconds / parts).max() <= 1.5 * seconds.sum() / (
            4 * threads
        )
    one = Costs("tiles", 16, (1.0, 1.0), 1e6, COUNTS, Limits(1))
    assert one.pieces(seconds, rows, 1000.0).tolist() == [1, 1, 1, 1]


def test_pieces_that_find_a_number_for_each_row_are_worth_it():
    """Few of many rows, or they take longer than what they do; one for each thread in
    any case.
    """
    goal, rows = ROW_COUNTS, np.full(1, 8e6)
    few, free = (
        Costs("sweep", 2, (1.0, 1.0), 8e6, g, Limits(4)) for g in (goal, COUNTS)
    )
    assert free.pieces(np.array([1.0]), rows, 1000.0).tolist() == [16]
    assert few.pieces(np.array([1.0]), rows, 1000.0).tolist() == [4]
    assert few.pieces(np.array([100.0]), rows, 1000.0).tolist() == [16]
    assert few.pieces(np.array([1.0, 0.1]), np.full(2, 8e6), 1000.0).tolist() == [4, 1]
    many = Costs("sweep", 2, (1.0, 1.0), 8e6, goal, Limits(4, 2**30, True, gpu=True))
    assert many.pieces(np.array([1.0]), rows, 1000.0).tolist() == [16]


@pytest.mark.parametrize("threads", [2, 3])
def test_the_work_of_one_block_pair_is_cut_for_all_threads_alike(threads):
    made = Costs(
        "tiles",
        16,
        (1.0, 1.0),
        1e6,
        COUNTS,
        Limits(threads, 2**30, True, gpu=True, workers=threads),
    )
    for seconds in (0.1, 0.4, 3.66):
        assert (
            made.pieces(np.array([seconds]), np.full(1, 1e6), 1000.0)[0] % threads == 0
        )


def test_the_work_of_each_worker_is_cut_for_its_threads_alike():
    have = Limits(16, 2**33, True, workers=4, together=4)
    made = Costs("sweep", 2, (1.0, 1.0), 64e6, COUNTS, have)
    for seconds in (np.full(4, 2.3), np.array([1.0, 0.7, 0.9, 0.01])):
        parts = made.pieces(seconds, np.full(4, 16e6), None)
        assert (parts[seconds > 0.1] % 4 == 0).all()
        assert (parts[seconds < 0.1] == 1).all()


def test_a_search_costs_more_than_a_look():
    look, search = (
        Costs("tiles", 4, (0.1, 0.2), 1e5, goal, Limits(2))
        for goal in (COUNTS, OutputSpec(k=5))
    )
    assert (
        search.searches(np.array([1e5]), np.array([1e5]))[0] > look.compare * 1e10 * 0.1
    )


def test_rows_of_many_chunks_are_compared_half_as_often_again():
    """They are in no common order: of two chunks a quarter more, of many half as much."""
    rows, method = 1e6, "tiles"
    compared = []
    for number in (1, 2, 1000):
        costs = Costs(method, 16, (1.0, 1.0), rows, COUNTS, Limits(1), row_bytes=8.0)
        each = np.full(number, rows / number)
        chunks = Chunks(each, [], None, np.array([0.0, 0.0]))
        compared.append(costs.choosing(chunks) - costs.made(chunks))
    every = Costs(method, 16, (1.0, 1.0), rows, COUNTS, Limits(1)).compare * rows**2 / 2
    assert np.allclose(compared, [0.0, 0.25 * every, 0.5 * every], rtol=2e-3)


def test_gpus_compare_at_most_all_points():
    """Chunks in the order of the frame cost no more comparisons than one chunk, if
    tiles exclude nothing.
    """
    for near, more in (((1.0, 1.0), 0.0), ((0.5, 0.5), 0.5)):
        costs = Costs(
            "tiles",
            768,
            near,
            1e7,
            COUNTS,
            Limits(1, 2**36, True, gpu=True),
            row_bytes=8.0,
        )
        chunks = Chunks(np.full(1000, 1e4), [], None, np.array([0.0, 0.0]))
        compared = costs.choosing(chunks) - costs.made(chunks)
        assert np.isclose(
            compared, more * costs.compare * near[0] * 1e14 / 2, rtol=2e-3, atol=1e-9
        )


def test_workers_compare_at_most_all_points_of_many_dimensions():
    """Each worker then indexes its own rows, instead of waiting for one index of all
    rows.
    """
    one, two = (
        Chunks(np.full(n, 48_000 / n), [], None, np.array([n, 0.0])) for n in (1, 2)
    )
    for dims, workers, least in ((384, 2, 0.0), (384, 1, 0.2), (6, 2, 0.2)):
        have = Limits(2, 2**30, True, workers=workers)
        costs = Costs("tiles", dims, (1.0, 1.0), 48_000, COUNTS, have)
        compared = [
            costs.choosing(chunks) - costs.made(chunks) for chunks in (one, two)
        ]
        every = costs.compare * 48_000**2 / 2 / have.threads
        assert compared[0] == pytest.approx(0.0)
        assert (
            compared[1] == pytest.approx(0.0)
            if not least
            else compared[1] > least * every
        )


def test_a_shuffle_beyond_the_memory_of_gpus_costs_more():
    chunks = Chunks(np.full(10, 1e6), [], "tasks", np.array([0.0, 0.0]))
    few, many = (
        Costs(
            "tiles",
            768,
            (1.0, 1.0),
            1e7,
            COUNTS,
            Limits(1, memory, True, gpu=True),
            row_bytes=6200.0,
        )
        for memory in (2**37, 2**36)
    )
    assert few.made(chunks) < many.made(chunks) < few.made(chunks) + 60


def test_chunks_beyond_the_memory_of_workers_move_for_each_visit():
    visits = np.array([55.0, 10e7])  # each of ten chunks is compared ten times
    chunks = Chunks(np.full(10, 1e6), [], "tasks", visits)
    much, little = (
        Costs(
            "sweep",
            2,
            (1.0, 1.0),
            1e7,
            COUNTS,
            Limits(2, None, True, limit, workers=2),
            row_bytes=24.0,
        ).made(chunks)
        for limit in (2**30, 2**27)
    )
    # nine of ten visits, instead of one: 24 bytes of 1.5 ns, for two workers
    assert little - much == pytest.approx((9e7 - 1e7) * 24 * 1.5e-9 / 2)


@pytest.mark.parametrize("cluster", [True, False])
def test_what_is_read_and_searched_is_shared_by_threads(cluster):
    """Threads of one process also wait for each other."""
    one, four = (
        Costs("tiles", 4, (0.5, 0.5), 1e6, COUNTS, Limits(n, cluster=cluster))
        for n in (1, 4)
    )
    share = 1 / 4 if cluster else TOGETHER / 4 + 1 - TOGETHER
    none, seconds = np.array([]), np.array([2.0, 6.0])
    reading = [costs.expected(0.0, none) for costs in (one, four)]
    assert np.isclose(share * reading[0], reading[1]) and reading[1] > 0
    assert np.isclose(one.expected(1.0, seconds) - reading[0], 9.0)
    assert np.isclose(four.expected(1.0, seconds) - reading[1], 1.0 + 8 * share)


def test_a_single_thread_decides_the_rows_after_the_join():
    """More threads do not shorten this step."""
    output = replace(COUNTS, after_row=400.0, after_pair=100.0)
    seconds = np.array([2.0, 6.0])
    for threads in (1, 4):
        own, none = (
            Costs("tiles", 4, (0.5, 0.5), 1e6, some, Limits(threads))
            for some in (output, COUNTS)
        )
        more = own.expected(1.0, seconds, 5e6) - none.expected(1.0, seconds, 5e6)
        assert np.isclose(more, 0.4 + 0.5)


def test_a_call_with_few_plain_rows_takes_milliseconds_and_more_with_many_pairs():
    plain, lazy = (
        Costs("sweep", 2, (0.1, 0.1), 1e4, PAIRS, Limits(1, plain=plain))
        for plain in (True, False)
    )
    work = np.array([1e-4])
    more = plain.expected(0.0, work) - lazy.expected(0.0, work)
    assert np.isclose(more, CALL + 1e4 * CALL_ROW * 1e-9)
    numbers, distances, texts = (
        plain.expected(0.0, work, 0.0, 1e6, size) for size in (16, 24, 48)
    )
    assert numbers == plain.expected(0.0, work)
    assert np.isclose(distances - numbers, 8e6 * RESULT_BYTE * 1e-9)
    assert np.isclose(texts - numbers, 4 * (distances - numbers))


def test_pairs_are_counted_if_that_is_as_cheap_as_the_rest_of_planning():
    def counts(
        rows, pairs=0.0, lazy=False, listed=False, embeds=False, dims=2, method="sweep"
    ):
        costs = Costs(
            method,
            dims,
            (1.0, 1.0),
            float(rows),
            COUNTS,
            Limits(1),
            swept=min(dims, 2),
        )
        return costs.counts(
            [rows], [rows // 10], pairs, listed, costs.planning(lazy, embeds)
        )

    assert (
        counts(10_000)
        and counts(60_000)
        and not counts(100_000)
        and not counts(1_000_000)
    )
    assert counts(100_000, lazy=True) and counts(100_000, embeds=True)
    assert not counts(10_000, pairs=1e7)
    assert counts(10_000, pairs=1e5) and not counts(10_000, pairs=1e5, listed=True)
    assert counts(2000, dims=64, method="tiles") and not counts(
        10_000, dims=64, method="tiles"
    )


def test_counting_two_tables_costs_as_much_as_their_rows():
    costs = Costs("sweep", 2, (1.0, 1.0), 60_000.0, COUNTS, Limits(1))
    planning = costs.planning(False, False)
    assert costs.counts([30_000, 30_000], [3000, 3000], 0.0, False, planning)
    assert not costs.counts([130_000, 30_000], [6500, 3000], 0.0, False, planning)
