"""What is told of many pairs at once is what is told of them one by one."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.cpu import tiles
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.filters.quantization import make_filter
from dask_simjoin.engine.index.cpu_tiles import TILE, make_tiles_layout
from dask_simjoin.engine.index.screen import Screen
from dask_simjoin.metrics.norms import Norm, add
from tests.support.profiles import chosen, examples, in_turns

NORMS = chosen([1, 2, 3, math.inf], [1, 2])


def totals(x: np.ndarray, y: np.ndarray, norm: Norm) -> np.ndarray:
    """All totals (n, m), by the definition."""
    total = np.zeros((len(x), len(y)))
    for k in range(x.shape[1]):
        total = np.asarray(add(total, np.abs(x[:, None, k] - y[None, :, k]), norm))
    return total


@st.composite
def clumps(draw: st.DrawFn) -> tuple[np.ndarray, float, Norm]:
    """Points in clumps, some of them all equal or just within eps of each other, and a
    threshold.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    dims, norm = draw(st.integers(1, 6)), draw(st.sampled_from(NORMS))
    step = draw(st.sampled_from([0.0, 1e-3, 1.0, 1 / 3]))
    parts = []
    for _ in range(draw(st.integers(1, 5))):
        size = draw(st.integers(1, 150))
        grid = random.integers(0, draw(st.integers(1, 4)), (size, dims)) * step
        parts.append(
            grid + random.integers(0, 3, dims) * draw(st.sampled_from([0.0, 1.0, 7.0]))
        )
    x = np.concatenate(parts) + draw(st.sampled_from([0.0, -3.5, 1e6, 1e12]))
    random.shuffle(x)
    away = totals(x[:40], x[:40], norm)
    # ties at the threshold
    exact = draw(st.sampled_from(sorted(set(away.ravel().tolist()))))
    nudged = draw(
        st.sampled_from(
            [exact, math.nextafter(exact, math.inf), math.nextafter(exact, 0.0)]
        )
    )
    return x, max(nudged, 0.0), norm


def layout_of(x: np.ndarray, threshold: float, norm: Norm):  # type: ignore[no-untyped-def]
    return JOINER.layout(
        "tiles", x.min(0), x.max(0), x.mean(0), x.var(0), threshold, norm
    )


def sets_of(near: np.ndarray, taking: np.ndarray) -> np.ndarray:
    """The smallest row of each row's component among those that take part."""
    root = np.arange(len(near))
    joined = near & taking[:, None] & taking[None, :]
    while True:
        low = np.where(joined, root[None, :], len(near)).min(1, initial=len(near))
        new = np.minimum(root, low)
        if (new == root).all():
            return root
        root = new


@settings(max_examples=examples(60))
@given(clumps(), st.integers(0, 80))
def test_one_chunk(case: tuple[np.ndarray, float, Norm], enough: int) -> None:
    x, threshold, norm = case
    near = totals(x, x, norm) <= threshold
    np.fill_diagonal(near, False)
    layout = layout_of(x, threshold, norm)
    index = JOINER.build(x, layout)
    true = near.sum(1)
    assert (JOINER.counts(index, index, layout, is_self_join=True)[0] == true).all()
    some = JOINER.counts(index, index, layout, is_self_join=True, enough=enough)[0]
    assert (np.minimum(some, enough) == np.minimum(true, enough)).all()
    weights = JOINER.weights(index, index, layout, is_self_join=True)
    pairs = JOINER.pairs(index, index, layout, is_self_join=True)
    assert weights.sum() == len(pairs.left) == near.sum() // 2

    core = true >= enough
    parent = np.arange(len(x), dtype=np.int32)
    JOINER.connect(index, index, layout, parent, (core, core), 0, is_self_join=True)
    JOINER.roots(parent)
    root = sets_of(near, core)
    assert (parent == root).all()

    labels = np.where(core, root, -1)
    low = np.full(len(x), len(x))
    JOINER.lowest(index, index, layout, (labels, labels), (low, low), is_self_join=True)
    expected = np.where(near & core[None, :], labels[None, :], len(x)).min(
        1, initial=len(x)
    )
    assert (low[~core] == expected[~core]).all()


@settings(max_examples=examples(80))
@given(
    clumps(), st.one_of(st.integers(0, 80), st.integers(80, 1000)), st.integers(1, 6)
)
def test_parts_of_one_chunk(
    case: tuple[np.ndarray, float, Norm], enough: int, parts: int
) -> None:
    """All parts together count each pair once from each side. With `enough`, each part
    writes only its own places.
    """
    x, threshold, norm = case
    near = totals(x, x, norm) <= threshold
    np.fill_diagonal(near, False)
    layout = layout_of(x, threshold, norm)
    index = JOINER.build(x, layout)
    order, true = index["order"][: len(x)], near.sum(1)
    cuts = [
        min(-(-len(x) * k // parts // TILE) * TILE, len(x)) for k in range(parts + 1)
    ]
    labels = np.where(true >= enough, np.arange(len(x)) // 3, -1)
    expected = np.where(near & (labels >= 0)[None, :], labels[None, :], len(x)).min(
        1, initial=len(x)
    )
    count = np.zeros(len(x), np.int64)
    for rows in itertools.pairwise(cuts):
        own = order[slice(*rows)]
        count += JOINER.counts(index, index, layout, is_self_join=True, rows=rows)[0]
        (found,) = JOINER.counts(
            index, index, layout, is_self_join=True, enough=enough, rows=rows
        )
        assert (np.minimum(found, enough)[own] == np.minimum(true, enough)[own]).all()
        assert not np.delete(found, own).any()
        low = np.full(len(x), len(x))
        JOINER.lowest(
            index,
            index,
            layout,
            (labels, labels),
            (low, low),
            is_self_join=True,
            rows=rows,
        )
        some = own[labels[own] < 0]
        assert (low[some] == expected[some]).all() and (
            np.delete(low, some) == len(x)
        ).all()
    assert (count == true).all()


@in_turns(1, dims=[1, 2, 3, 5, 8, 16], eps=[0.125, 0.25, 0.75])
def test_counts_up_to_a_number_in_many_tiles(
    dims: int, eps: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most rows of the first points settle early, so that others search alone; the
    others search in pairs.
    """
    random = np.random.default_rng(dims)
    dense, lattice = (
        random.random((1500, dims)) * 0.25,
        random.integers(0, 9, (500, dims)) * 0.25,
    )
    alone = []
    run = tiles.record_pairs
    monkeypatch.setattr(
        tiles,
        "record_pairs",
        lambda join, notes, state: (
            alone.append(not notes.both),
            run(join, notes, state),
        ),
    )
    for x in (np.concatenate([dense, lattice]), lattice):
        away, threshold = totals(x, x, 2), eps * eps
        layout = layout_of(x, threshold, 2)
        index, true = JOINER.build(x, layout), (away <= threshold).sum(1) - 1
        for enough in (0, 1, 3, 9, 63, 64, 99, 250, 999):
            for rows in (None, (0, 1024), (1024, 2000), (512, 640)):
                if rows is not None and rows[1] > len(x):
                    continue
                (found,) = JOINER.counts(
                    index, index, layout, is_self_join=True, enough=enough, rows=rows
                )
                own = index["order"][slice(*(rows or (0, len(x))))]
                assert (
                    np.minimum(found, enough)[own] == np.minimum(true, enough)[own]
                ).all()
    assert {True, False} == set(alone)


@settings(max_examples=examples(40))
@given(clumps(), st.integers(0, 80), st.randoms(use_true_random=False))
def test_two_chunks(case: tuple[np.ndarray, float, Norm], enough: int, random) -> None:  # type: ignore[no-untyped-def]
    x, threshold, norm = case
    cut = random.randint(0, len(x))
    layout = layout_of(x, threshold, norm)
    sides = x[:cut], x[cut:]
    one, two = (JOINER.build(side, layout) for side in sides)
    near = totals(*sides, norm) <= threshold
    for told in (None, enough):
        found = JOINER.counts(one, two, layout, is_self_join=False, enough=told)
        for counts, true in zip(found, (near.sum(1), near.sum(0)), strict=True):
            most = len(x) if told is None else told
            assert (np.minimum(counts, most) == np.minimum(true, most)).all()

    taking = np.array([random.random() < 0.8 for _ in x], bool)
    whole = np.zeros((len(x), len(x)), bool)
    whole[:cut, cut:] = near
    whole |= whole.T
    parent = np.arange(len(x), dtype=np.int32)
    JOINER.connect(
        one, two, layout, parent, (taking[:cut], taking[cut:]), cut, is_self_join=False
    )
    JOINER.roots(parent)
    assert (parent == sets_of(whole, taking)).all()

    labels = np.where(taking, np.arange(len(x)), -1)
    low = np.full(len(x), len(x))
    sides_low = low[:cut].copy(), low[cut:].copy()
    JOINER.lowest(
        one, two, layout, (labels[:cut], labels[cut:]), sides_low, is_self_join=False
    )
    expected = np.where(whole & taking[None, :], labels[None, :], len(x)).min(
        1, initial=len(x)
    )
    assert (np.concatenate(sides_low)[~taking] == expected[~taking]).all()


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32), st.sampled_from([0.0, 1e-3, 0.4, 0.7]), st.booleans())
def test_screened(seed: int, narrow: float, far: bool) -> None:
    """Boxes of some dimensions leave room for what the others add."""
    random = np.random.default_rng(seed)
    x = np.concatenate(
        [
            random.integers(0, 2, (600, 1)) * 3.0,
            random.integers(0, 2, (600, 1)) * 3.0,
            random.integers(0, 3, (600, 3)) * narrow + (1e6 if far else 0.0),
        ],
        axis=1,
    )
    threshold = float(random.choice(totals(x[:60], x[:60], 2).ravel()))
    moments = x.min(0), x.max(0), x.mean(0), x.var(0)
    layout = make_tiles_layout(*moments, threshold)
    least = make_tiles_layout(*(some[:2] for some in moments), threshold)
    rest = float((np.ptp(x[:, 2:], axis=0) ** 2).sum()) * (1 + 1e-9)
    layout = replace(
        layout, screen=Screen((0, 1), rest), filter=least.filter, quantized=None
    )
    index = JOINER.build(x, layout)
    near = totals(x, x, 2) <= threshold
    np.fill_diagonal(near, False)
    assert (
        JOINER.counts(index, index, layout, is_self_join=True)[0] == near.sum(1)
    ).all()
    parent = np.arange(len(x), dtype=np.int32)
    every = np.ones(len(x), bool)
    JOINER.connect(index, index, layout, parent, (every, every), 0, is_self_join=True)
    JOINER.roots(parent)
    assert (parent == sets_of(near, every)).all()


@pytest.mark.parametrize("dims", [1, 3, 16, 128])
def test_boxes_that_hold_nothing_but_pairs(dims: int) -> None:
    """No span that is sure is of points further apart than eps, one ulp around its
    limit included.
    """
    random = np.random.default_rng(dims)
    x = random.normal(0, 1, (400, dims)) + 100.0
    told = 0
    for eps in (0.5, 2.0 * math.sqrt(dims), 40.0):
        made = make_filter(x.min(0), x.max(0), x.mean(0), x.var(0), eps * eps)
        if made is None:
            continue
        z = ((x - np.array(made.centre)) * made.scale).astype(np.float32)
        norm = float((z.astype(float) ** 2).sum(1).max())
        limit = made.box_sure(norm)
        assert limit <= made.box_reach(norm)
        span = np.zeros((len(z), len(z)), np.float32)
        for k in range(dims):
            t = np.abs(z[:, None, k] - z[None, :, k])
            span += t * t
        surely = span <= limit
        told += int(surely.sum()) - len(z)
        assert (totals(x, x, 2)[surely] <= eps * eps).all()
    assert told > 0


def test_as_many_nodes_as_there_are_may_need_64_bits():
    x = np.random.default_rng(0).uniform(0, 12, (300, 3))
    every, layout = np.ones(len(x), bool), layout_of(x, 1.0, 2)
    index = JOINER.build(x, layout)
    found = [np.arange(len(x), dtype=kind) for kind in (np.int32, np.int64)]
    for parent in found:
        JOINER.connect(
            index, index, layout, parent, (every, every), 0, is_self_join=True
        )
        JOINER.roots(parent)
    assert (
        found[0].tolist()
        == found[1].tolist()
        == sets_of(totals(x, x, 2) <= 1.0, every).tolist()
    )
