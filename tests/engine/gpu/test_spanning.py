"""The GPU's spanning trees without a GPU: driver, and CUDA C++ compiled for the host."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.spanning import SPANNER
from dask_simjoin.engine.index.gpu import (
    HOST,
    build_nearest,
    make_nearest_device_layout,
    relabelled,
)
from dask_simjoin.metrics.norms import add
from tests.support.hierarchy import tree_by_definition
from tests.support.oracle import totals
from tests.support.points import KINDS, make_points
from tests.support.profiles import chosen, every_nth, everything


def layout_of(x, engine="auto", norm=2):
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.clip(x.mean(axis=0), x.min(axis=0), x.max(axis=0))
        mean = np.where(np.isfinite(mean), mean, x[0])
        variance = np.nan_to_num(x.var(axis=0))
    return make_nearest_device_layout(
        x.min(0), x.max(0), mean, variance, x, engine, norm=norm
    )


def known_of(x, index, rows, samples, listed, metric="euclidean"):
    """Core distances of some rows of `x` by place, and of so many of the nearest what
    is known of them.
    """
    away = totals(x, x, metric)
    core = np.sort(away, axis=1)[:, min(samples, len(x)) - 1]
    here = np.asarray(rows)[index["order"]]
    away[np.arange(len(x)), np.arange(len(x))] = np.inf
    first = np.lexsort((np.broadcast_to(np.arange(len(x)), away.shape), away), axis=1)
    place = np.full(len(x), -1, np.int32)
    place[here] = np.arange(len(here), dtype=np.int32)
    near = np.where(first == np.arange(len(x))[:, None], -1, place[first])[
        here, :listed
    ]
    sorted_away = np.take_along_axis(away, first, axis=1)[here, : listed + 1]
    beyond = np.full(len(here), -1.0)
    if listed < sorted_away.shape[1]:
        beyond = np.nextafter(
            np.maximum(sorted_away[:, -1], 0.0).astype(np.float32), np.float32(-1)
        )
    nearest = (
        near.astype(np.int32),
        np.ascontiguousarray(sorted_away[:, :listed]),
        beyond.astype(np.float32),
    )
    return core[here], nearest


def edges_of(found):
    return list(zip(found[1].tolist(), found[2].tolist(), strict=True))


EVERY = [
    (d, e)
    for d in (1, 2, 8, 64)
    for e in ("float64", "float32", "float16")
    if d > 8 or e != "float16"
]
FEW = [(2, "float64"), (64, "float16")]
SIZES = (1, 2, 64, 65, 150)


@pytest.mark.parametrize(("dims", "engine"), chosen(EVERY, FEW))
def test_trees_are_those_of_the_definition(spanning, dims, engine):
    for n, kind in every_nth(3, enumerate(KINDS)):
        rng = np.random.default_rng(n)
        x = make_points(kind, SIZES[n % 5], dims, rng)
        layout = layout_of(x, engine)
        index = build_nearest(x, layout, HOST)
        samples = (1, 2, 5)[n % 3]
        with np.errstate(over="ignore"):
            want = tree_by_definition(x, samples, shown=False)[0]
            for listed in (0, 3):
                core, nearest = known_of(x, index, range(len(x)), samples, listed)
                known = relabelled(index, 0), layout, core, nearest
                assert edges_of(spanning.SPANNER.tree_of(*known)) == want, (
                    kind,
                    listed,
                )
                # no parts: none of the rounds is shared
                ways = ((1, 3), (9, 3), (0, 0))
                for rounds, parts in (
                    ways if everything() else (ways[(n // 5 + bool(listed)) % 3],)
                ):
                    found = shared_tree(spanning.SPANNER, known, rounds, parts)
                    assert edges_of(found) == want, (kind, listed, rounds)


def shared_tree(spanner, known, rounds, parts):
    """The tree of so many rounds in parts, and of what is left; all that a part tells
    the others is edges.
    """
    progress = spanner.begin(*known, parts)
    for _ in range(rounds):
        if len(progress["sizes"]) < 2:
            break
        found = [
            spanner.share(*known, progress, (part, parts)) for part in range(parts)
        ]
        assert all(type(column) is np.ndarray for part in found for column in part)
        assert max(len(part[0]) for part in found) <= len(progress["sizes"])
        progress = spanner.join(*known, progress, found)
    return spanner.tree_of(*known, progress)


@pytest.mark.slow
@pytest.mark.parametrize("norm", [1, 3, np.inf])
def test_other_norms(spanning, norm):
    x = np.random.default_rng(3).integers(0, 9, (130, 2)) / 7
    layout = layout_of(x, norm=norm)
    index = relabelled(build_nearest(x, layout, HOST), 0)
    away = np.zeros((130, 130))
    for column in x.T:
        away = add(away, np.abs(column[:, None] - column[None]), norm)
    core = np.sort(away, axis=1)[:, 3]
    weight = np.maximum(away, np.maximum(core[:, None], core[None]))
    found = spanning.SPANNER.tree_of(
        index, layout, core[index["order"]], nothing(len(x))
    )
    i, j = np.triu_indices(len(x), 1)
    order = np.lexsort((j, i, weight[i, j]))
    want = SPANNER.merge(
        len(x),
        (np.zeros(0), *np.zeros((2, 0), np.int32)),
        (
            weight[i, j][order],
            i[order].astype(np.int32),
            j[order].astype(np.int32),
        ),
    )
    assert edges_of(found) == edges_of(want)


def nothing(n):
    """What is known of the nearest rows where none were sought."""
    return np.zeros((n, 0), np.int32), np.zeros((n, 0)), np.full(n, -1, np.float32)
