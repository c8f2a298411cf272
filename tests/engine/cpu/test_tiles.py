"""Tiles of several threads."""

import dask
import dask.dataframe as dd
import numpy as np
import pytest

from dask_simjoin.engine import process
from dask_simjoin.engine.cpu.joiner import JOINER
from tests.engine.test_process import some_points
from tests.support.oracle import as_set, brute_force
from tests.support.points import frame_of
from tests.support.profiles import in_turns


@pytest.fixture(autouse=True)
def little(monkeypatch):
    """Give threads so little work that small indexes are made by several."""
    monkeypatch.setattr(process, "LEAST", 100)


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
        found = JOINER.pairs(index, index, layout, is_self_join=True)
        pairs = set(zip(found.left.tolist(), found.right.tolist(), strict=True))
        assert len(found.left) == len(pairs)
        assert pairs == brute_force(x, eps)


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
