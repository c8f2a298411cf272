"""The tables of a join: whose regions, radii and candidates are asked for."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.planning.statistics.partition import summarise
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.request.requests import JoinRequest, SelfJoinRequest
from tests.support.points import frame_of


def one(x, eps=0.5, parts=1, **options):
    spec = SelfJoinRequest(eps=eps, **options).spec(frame_of(x))
    return join_statistics(
        [[summarise(frame_of(p), n, spec, True, parts) for n, p in enumerate(np.array_split(x, parts))]], spec
    )


def two(left, right, eps=0.5):
    spec = JoinRequest(frame_of(right), eps).spec(frame_of(left), frame_of(right))
    return join_statistics(
        [[summarise(frame_of(x), 0, own, True, 1)] for x, own in ((left, spec), (right, spec.right))], spec
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
    assert tables.left.offsets.tolist() == [0, *np.cumsum([len(p) for p in np.array_split(x, parts)])]
    assert tables.left.row_bytes >= 16 and tables.left.source_rows == 31


def test_rows_that_are_left_out_are_rows_of_the_source():
    frame = pd.DataFrame({"a": [0.0, np.nan, 1.0], "b": 0.0})
    spec = SelfJoinRequest(eps=1.0, dropna=True).spec(frame)
    table = join_statistics([[summarise(frame, 0, spec, True, 1)]], spec).left
    assert (table.rows, table.source_rows) == (2, 3)


def test_regions_hold_equally_many_rows_however_few_of_them_were_drawn():
    """Of the left table a tenth as many rows were drawn as of the right one, for as many rows."""
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
    regions = tables._regions(2100)
    assert len(regions) == 2 and abs(regions.split[0] - 1.0) < 0.1  # else 1.45
