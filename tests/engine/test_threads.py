"""Work that threads share: nothing is done twice or left out, and indexes find what others find."""

import threading

import dask
import dask.dataframe as dd
import numpy as np
import pytest

from dask_simjoin.engine import threads
from dask_simjoin.engine.cpu import nearest
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.index.cpu_tiles import CUTS, FAN_OUT, TILE, make_nearest_layout
from dask_simjoin.engine.index.kdorder import dims_to_cut, kd_order
from tests.support.oracle import as_set, brute_force
from tests.support.points import frame_of
from tests.support.profiles import in_turns


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


@in_turns(2, dims=[1, 3, 6, 20], kind=["normal", "few values", "alike", "far"], number=[2, 5])
def test_tiles_of_several_threads(kind, dims, number):
    n = 700
    x = np.asfortranarray(some_points(kind, n, dims))
    eps = 0.4 * dims**0.5
    for method in ("tiles", "auto"):
        moments = x.min(axis=0), x.max(axis=0), x.mean(axis=0), x.var(axis=0)
        layout = JOINER.layout(method, *moments, eps * eps)
        index, alone = (JOINER.build(x, layout, k) for k in (number, 1))
        assert {name: (part.dtype, part.shape) for name, part in index.items() if hasattr(part, "dtype")} == {
            name: (part.dtype, part.shape) for name, part in alone.items() if hasattr(part, "dtype")
        }
        assert index.get("norm") == alone.get("norm")
        found = JOINER.pairs(index, index, layout, same=True)
        pairs = set(zip(found.left.tolist(), found.right.tolist(), strict=True))
        assert len(found.left) == len(pairs)
        assert pairs == brute_force(x, eps)


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
        nearest.nearest(index, index, layout, *state, same=True)
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


def test_one_chunk_is_indexed_by_all_threads(monkeypatch):
    x = np.random.default_rng(2).uniform(size=(3000, 2))
    ddf = dd.from_pandas(frame_of(x), npartitions=5)
    built = []
    build = JOINER.build

    def watched(x, layout, threads=1):
        built.append((len(x), threads))
        return build(x, layout, threads)

    monkeypatch.setattr(type(JOINER), "build", staticmethod(watched))
    for scheduler, number, eps in (("threads", 3, 0.02), ("sync", 1, 0.03)):
        built.clear()
        with dask.config.set(scheduler=scheduler, num_workers=3):
            pairs = ddf.simjoin.self_join(eps, partitioning="entity")
            assert as_set(pairs.compute()) == brute_force(x, eps)
        assert pairs.expr.plan.threads == number
        assert (3000, number) in built
