"""Rows with radii of their own, joined in classes, give the pairs that brute force
gives.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_simjoin  # noqa: F401  registers the accessor
from dask_simjoin.tasks import matches
from dask_simjoin.tasks.chunks import make_chunk
from dask_simjoin.tasks.matches import BlockPair, equal_work
from tests.support.frames import planned
from tests.support.points import frame_of
from tests.support.profiles import examples

NORMS = {"euclidean": 2, "manhattan": 1, "chebyshev": np.inf}


def expected(
    x: np.ndarray, y: np.ndarray, radius: np.ndarray, metric: str
) -> set[tuple[int, int]]:
    t = np.abs(x[:, None, :] - y[None, :, :])
    total = np.zeros(t.shape[:2])
    for k in range(x.shape[1]):
        part = t[:, :, k]
        total = (
            np.maximum(total, part)
            if metric == "chebyshev"
            else total + part ** NORMS[metric]
        )
    limit = radius * radius if metric == "euclidean" else radius
    return set(
        zip(
            *(side.tolist() for side in np.nonzero(total <= limit[:, None])),
            strict=True,
        )
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[pd.DataFrame, str]:
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, dims = draw(st.integers(2, 150)), draw(st.integers(1, 6))
    x = random.integers(0, draw(st.sampled_from([3, 50])), (n, dims)) * draw(
        st.sampled_from([1.0, 1 / 3])
    )
    frame = pd.DataFrame(x, columns=[f"c{k}" for k in range(dims)])
    small = draw(st.sampled_from([0.0, 1e-9, 1.0]))
    frame["r"] = np.where(
        random.random(n) < draw(st.sampled_from([0.02, 0.3])), 40.0, small
    )
    if draw(st.booleans()):
        frame["r"] *= random.choice([1.0, 0.1, 1e-3], n)
    return frame, draw(st.sampled_from(sorted(NORMS)))


@settings(max_examples=examples(120))
@given(cases(), st.booleans())
def test_radii(case: tuple[pd.DataFrame, str], always: bool) -> None:
    frame, metric = case
    on = [name for name in frame if name != "r"]
    x, r = frame[on].to_numpy(), frame["r"].to_numpy()
    want = expected(x, x, r, metric)
    want = {(i, j) for i, j in want if i != j}
    options = {"on": on, "metric": metric}
    with pytest.MonkeyPatch.context() as patch:
        if always:
            patch.setattr(matches, "MIN_GAIN", 0.0)
        parts = dd.from_pandas(frame, npartitions=3, sort=False)
        for some in (frame, parts):
            made = some.simjoin.self_join("r", pairs="both", **options)
            pairs = (
                made
                if isinstance(made, pd.DataFrame)
                else made.compute(scheduler="sync")
            )
            assert len(pairs) == len(want)
            assert set(zip(pairs["left"], pairs["right"], strict=True)) == want
            counts = some.simjoin.neighbor_counts("r", **options)
            counts = (
                counts
                if isinstance(counts, pd.Series)
                else counts.compute(scheduler="sync")
            )
            assert (
                counts.tolist()
                == np.bincount([i for i, _ in want], minlength=len(x)).tolist()
            )
        other = frame.iloc[: len(frame) // 2]
        two = frame.simjoin.join(other[on], "r", **options)
        assert set(zip(two["left"], two["right"], strict=True)) == expected(
            x, x[: len(other)], r, metric
        )


def test_few_large_radii_are_a_class() -> None:
    limits = np.full(1000, 1.0)
    limits[:3] = 1e6
    chunk = {"own_limit": limits}
    classes = matches._classes(chunk, 2, np)  # type: ignore[arg-type]
    assert classes is not None and (classes[:3] == 0).all() and (classes[3:] > 0).all()
    assert matches._classes({"own_limit": np.full(1000, 2.0)}, 2, np) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("dims", [6, 16])
def test_parts_are_even(dims):
    """Of points all of which meet, and of such as meet few others: no part does half
    more than its share.
    """
    x = np.random.default_rng(0).uniform(size=(30_000, dims))
    frame = frame_of(x)
    spec, layout, source = planned(frame, 0.25 if dims == 6 else 1.0)
    chunk = make_chunk(frame, (0, source), spec, layout)
    whole = BlockPair(chunk, chunk, True, spec, layout)
    work = np.repeat(whole.joiner.work(*whole.operands, is_self_join=True), 100)
    done = np.concatenate([[0.0], np.cumsum(work)]) / work.sum()
    places = np.linspace(0, len(x), len(done))
    for parts in (2, 5, 8):
        shares = [
            float(
                np.diff(np.interp(whole._replace(part=(k, parts)).rows, places, done))[
                    0
                ]
            )
            for k in range(parts)
        ]
        assert max(shares) < 1.5 / parts


def test_equal_work():
    assert equal_work(np.ones(1), 100, 1, 4) == [0, 25, 50, 75, 100]
    assert equal_work(np.array([3.0, 1.0]), 100, 1, 2) == [0, 33, 100]
    assert equal_work(np.ones(1), 10, 64, 3) == [0, 0, 0, 10]


def test_a_halo_of_one_row_is_compared():
    x = np.random.default_rng(1).random((400, 2))
    ddf = dd.from_pandas(frame_of(x), npartitions=4)
    how = {"partitioning": "spatial", "blocksize": "2 kB"}
    # a region has a halo of one row, which is in one of the two pairs
    assert ddf.simjoin.count_pairs(0.004, **how).compute(scheduler="sync") == 2
