"""The tables of a join: whose regions, radii and candidates are asked for."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.engine.base import joiner_of_library
from dask_simjoin.planning.partition import summarise
from dask_simjoin.planning.sample_pairs import number_of_pairs
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.request.requests import JoinRequest, SelfJoinRequest
from dask_simjoin.sizes import BATCH
from tests.support.points import frame_of


def one(x, eps=0.5, parts=1, **options):
    spec = SelfJoinRequest(eps=eps, **options).spec(frame_of(x))
    return join_statistics(
        [
            [
                summarise(frame_of(p), n, spec, True, parts)
                for n, p in enumerate(np.array_split(x, parts))
            ]
        ],
        spec,
    )


def two(left, right, eps=0.5):
    spec = JoinRequest(frame_of(right), eps).spec(frame_of(left), frame_of(right))
    return join_statistics(
        [
            [summarise(frame_of(x), 0, own, True, 1)]
            for x, own in ((left, spec), (right, spec.right))
        ],
        spec,
    )


def test_a_table_with_itself_has_each_pair_once_and_two_tables_all():
    x = np.random.default_rng(0).normal(size=(30, 2))
    alone, both = one(x), two(x, x[:20])
    assert alone.left is alone.right and len(alone.each) == 1 and len(both.each) == 2
    assert (alone.candidates, both.candidates) == (30 * 29 / 2, 30 * 20)


def test_another_distance_changes_nothing_else():
    tables = one(np.random.default_rng(0).normal(size=(30, 2)))
    other = tables.with_eps(2.0)
    assert (tables.spec.eps, other.spec.eps, other.left.spec.eps) == (0.5, 2.0, 2.0)
    assert other.left.points.x is tables.left.points.x


@pytest.mark.parametrize("parts", [1, 3])
def test_moments_are_of_the_rows_of_all_partitions(parts):
    x = np.random.default_rng(1).normal(size=(31, 2))
    tables = one(x, parts=parts)
    every = tables.left.every
    assert every.rows == 31 and every.lower.tolist() == x.min(0).tolist()
    assert np.allclose(every.mean, x.mean(0)) and np.allclose(every.variance, x.var(0))
    assert tables.left.offsets.tolist() == [
        0,
        *np.cumsum([len(p) for p in np.array_split(x, parts)]),
    ]
    assert tables.left.row_bytes >= 16 and tables.left.source_rows == 31


def test_rows_that_are_left_out_are_rows_of_the_source():
    frame = pd.DataFrame({"a": [0.0, np.nan, 1.0], "b": 0.0})
    spec = SelfJoinRequest(eps=1.0, dropna=True).spec(frame)
    table = join_statistics([[summarise(frame, 0, spec, True, 1)]], spec).left
    assert (table.rows, table.source_rows) == (2, 3)


def test_regions_hold_equally_many_rows_however_few_of_them_were_drawn():
    """Of the left table a tenth as many rows were drawn as of the right one, for as
    many rows.
    """
    rng = np.random.default_rng(2)
    left, right = rng.uniform(0, 1, (2000, 1)), rng.uniform(1, 2, (2000, 1))
    spec = JoinRequest(frame_of(right), 1e-3).spec(frame_of(left), frame_of(right))
    tables = join_statistics(
        [
            [summarise(frame_of(x), 0, own, True, 1, most)]
            for x, own, most in ((left, spec, 100), (right, spec.right, 1000))
        ],
        spec,
    )
    regions = tables._regions(2100, "tasks")
    assert len(regions) == 2 and abs(regions.split[0] - 1.0) < 0.1  # else 1.45


def test_all_points_of_small_tables_are_known():
    x = np.random.default_rng(4).normal(size=(1000, 2))
    for parts in (1, 3):
        whole = one(x, parts=parts).left.whole
        assert np.array_equal(np.concatenate([some.x for some in whole]), x)
    few = one(x[:100]).left
    assert few.whole[0] is few.summaries[0].sample  # which has all points
    assert few.summaries[0].nbytes == 100 * 24
    assert one(np.zeros((1 + BATCH // 2, 2))).left.whole is None
    spec = SelfJoinRequest(eps=0.5).spec(frame_of(x))
    for with_ids, most in ((False, None), (True, 500)):  # other verbs count no pairs
        assert summarise(frame_of(x), 0, spec, with_ids, 1, most).whole is None


@pytest.mark.parametrize("parts", [1, 3])
def test_the_count_of_a_block_pair_is_the_sum_of_its_pairs(parts):
    x = np.random.default_rng(5).uniform(size=(600, 3))
    tables = one(x, eps=0.2, parts=parts)
    layout, same = tables.layout(), tables.left.whole
    joiner = joiner_of_library(tables.spec.library)
    points = [[some.x for some in same]]
    away = ((x[:, None] - x) ** 2).sum(axis=2)
    assert number_of_pairs(points, layout, joiner) == np.count_nonzero(
        np.triu(away <= 0.2**2, 1)
    )
    left, right = [x[:250]], [x[250:400], x[400:]]
    found = np.count_nonzero(away[:250, 250:] <= 0.2**2)
    assert number_of_pairs([left, right], layout, joiner) == found
