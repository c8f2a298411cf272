"""Work that threads share: nothing is done twice or left out, and indexes find what others find."""

import threading

import numpy as np
import pytest

from dask_simjoin.engine import threads
from dask_simjoin.engine.cpu import nearest
from dask_simjoin.engine.index.cpu_tiles import CUTS, FAN_OUT, TILE, make_nearest_layout
from dask_simjoin.engine.index.kdorder import dims_to_cut, kd_order


@pytest.fixture(autouse=True)
def little(monkeypatch):
    """Give threads so little work that small indexes are made by several."""
    monkeypatch.setattr(threads, "LEAST", 100)


@pytest.mark.parametrize("number", [1, 2, 3, 8])
@pytest.mark.parametrize("grain", [1, 64, 4096])
@pytest.mark.parametrize("n", [0, 1, 99, 500, 1000, 5000])
def test_parts_are_all_there_is(n, number, grain):
    parts = threads.shared_out(lambda a, b: (a, b), n, number, grain)
    assert [b for _, b in parts[:-1]] == [a for a, _ in parts[1:]]
    assert (parts[0][0], parts[-1][1]) == (0, n)
    assert all(a % grain == 0 for a, _ in parts)
    assert 1 <= len(parts) <= number


def test_calls_are_made_at_a_time():
    meet = threading.Barrier(3, timeout=20)
    assert sorted(threads.together([meet.wait] * 3)) == [0, 1, 2]


def test_what_a_thread_raises_is_raised():
    def fail(start, stop):
        raise ValueError(f"from {start}")

    with pytest.raises(ValueError, match="from"):
        threads.shared_out(fail, 1000, 3)


def some_points(kind, n, dims):
    rng = np.random.default_rng(dims)
    if kind == "alike":
        return np.full((n, dims), 7.5)
    if kind == "few values":
        return rng.integers(0, 3, (n, dims)).astype(float)
    if kind == "far":
        return rng.normal(size=(n, dims)) + 1e9
    return rng.normal(size=(n, dims))


@pytest.mark.parametrize("dims", [1, 2, 20])
@pytest.mark.parametrize("kind", ["normal", "few values", "alike", "far"])
def test_nearest_neighbours_by_several_threads(kind, dims):
    n, k = 700, 4
    x = np.asfortranarray(some_points(kind, n, dims))
    layout = make_nearest_layout(x.min(axis=0), x.max(axis=0), x.mean(axis=0), x.var(axis=0), x[:100])
    states = []
    for number in (1, 3):
        index = nearest.build(x, np.arange(n), layout, number)
        state = nearest.fresh(n, k)
        nearest.nearest(index, index, layout, *state, is_self_join=True)
        back = np.argsort(index["order"])
        states.append([part[back] for part in state])
    assert all(np.array_equal(one, other) for one, other in zip(*states, strict=True))


@pytest.mark.parametrize("number", [2, 3, 4, 9])
def test_kd_order_of_several_threads_is_as_good(number):
    """Tiles are no larger than those of one thread."""
    x = np.random.default_rng(1).normal(size=(20_000, 4))
    cuts = dims_to_cut(x.var(axis=0)).first(len(x), TILE, CUTS)
    sizes = []
    for k in (1, number):
        order = kd_order(x, cuts, TILE, FAN_OUT, threads=k)
        assert np.array_equal(np.sort(order), np.arange(len(x)))
        tiles = x[order[: len(x) // TILE * TILE]].reshape(-1, TILE, 4)
        sizes.append(np.log(np.ptp(tiles, axis=1)).sum(axis=1).mean())
    assert sizes[1] == pytest.approx(sizes[0], abs=0.01)
