"""Joins of two tables, attributes, radii and nearest neighbours on cuDF frames: what
pandas frames say.
"""

import dask
import numpy as np
import pandas as pd
import pytest

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")
dask_cudf = pytest.importorskip("dask_cudf")

from dask.base import is_dask_collection

from dask_simjoin.errors import UnsupportedFrameError
from tests.support.gpu_frames import lay
from tests.support.gpu_programs import join_programs, search_programs
from tests.support.oracle import as_set, assert_same_pairs
from tests.support.points import frame_of

pytestmark = pytest.mark.gpu

HOW = ["cudf", "dask-1", "dask-4"]
ON = ["c0", "c1"]
WAYS = [
    {},
    {"partitioning": "entity", "blocksize": "8 kB"},
    {"partitioning": "spatial", "blocksize": "8 kB"},
]


def programs():
    return join_programs([2]) + [
        one for norm in (2, 1, 3) for one in search_programs([2], norm=norm)
    ]


def table(n, seed):
    """Points of a lattice with attributes of several dtypes."""
    rng = np.random.default_rng(seed)
    frame = frame_of(rng.integers(0, 20, (n, 2)) * 0.5).set_index(
        rng.permutation(n) + 7
    )
    frame["name"] = [None if k % 11 == 0 else f"n{k % 7}" for k in range(n)]
    frame["when"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(
        rng.permutation(n), unit="s"
    )
    frame["weight"] = rng.uniform(size=n).astype(np.float32)
    frame["far"] = rng.choice([0.0, 0.5, 0.8, 2.0], n)
    return frame


LEFT, RIGHT = table(500, 1), table(300, 2)


def computed(result):
    """The result on the host; it must have come from the GPU."""
    if is_dask_collection(result):
        example = result._meta
        result = result.compute(scheduler="sync")
        assert [str(t) for t in result.dtypes] == [str(t) for t in example.dtypes]
    assert isinstance(result, cudf.DataFrame)
    return result.to_pandas()


def options_of(how, way):
    return way if how != "cudf" else {}


def assert_same_rows(found, want, keys=("left", "right")):
    """The same rows in any order, missing values included, whatever dtypes libraries
    give them.
    """
    found, want = (
        some.sort_values(list(keys))
        .reset_index(drop=True)
        .astype(object)
        .where(lambda x: x.notna(), None)
        for some in (found, want)
    )
    pd.testing.assert_frame_equal(found, want, check_dtype=False)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_join(how, way):
    options = {"on": ON, "keep": ["name", "when", "weight"], "return_distance": True}
    want = LEFT.simjoin.join(RIGHT, 0.5, **options)
    found = lay(LEFT, how).simjoin.join(
        lay(RIGHT, how), 0.5, **options, **options_of(how, way)
    )
    assert_same_rows(computed(found), want)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_rows_in_no_pair(how, way):
    here = LEFT.assign(c0=np.where(np.arange(500) % 9 == 0, 1e6, LEFT.c0))
    left, right, more = lay(here, how), lay(RIGHT, how), options_of(how, way)
    options = {
        "on": ON,
        "how": "left",
        "keep": ["name", "weight"],
        "return_distance": True,
    }
    want = here.simjoin.join(RIGHT, 0.4, **options)
    assert_same_rows(computed(left.simjoin.join(right, 0.4, **options, **more)), want)
    for kind in ("leftsemi", "leftanti"):
        want = here.simjoin.join(RIGHT, 0.4, on=ON, how=kind)
        found = computed(left.simjoin.join(right, 0.4, on=ON, how=kind, **more))
        assert sorted(found.index) == sorted(want.index)
        assert found.columns.tolist() == want.columns.tolist()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_radii_and_attributes_in_self_joins(how, way):
    frame, more = lay(LEFT, how), options_of(how, way)
    options = {
        "on": ON,
        "pairs": "both",
        "include_self": True,
        "keep": ["name", "far"],
        "return_distance": True,
    }
    for eps in ("far", 0.5):
        want = LEFT.simjoin.self_join(eps, **options)
        assert_same_rows(
            computed(frame.simjoin.self_join(eps, **options, **more)), want
        )
    count = frame.simjoin.count_pairs("far", on=ON, pairs="both", **more)
    count = count.compute(scheduler="sync") if is_dask_collection(count) else count
    assert count == LEFT.simjoin.count_pairs("far", on=ON, pairs="both")
    want = LEFT.simjoin.join(RIGHT, "far", on=ON)
    found = computed(frame.simjoin.join(lay(RIGHT, how), "far", on=ON, **more))
    assert_same_pairs(as_set(found), as_set(want))


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    ("metric", "p"),
    [("euclidean", 2), ("manhattan", 2), ("minkowski", 3), ("cosine", 2)],
)
def test_nearest_rows(how, way, metric, p):
    shift = {"c0": LEFT.c0 + 1, "c1": LEFT.c1 + 1}  # no row of zeros
    left, right = LEFT.assign(**shift), RIGHT.assign(c0=RIGHT.c0 + 1, c1=RIGHT.c1 + 1)
    options = {"on": ON, "metric": metric, "p": p, "keep": ["name"]}
    for other in (None, right):
        want = left.simjoin.knn_join(other, 4, **options)
        there = None if other is None else lay(other, how)
        found = computed(
            lay(left, how).simjoin.knn_join(there, 4, **options, **options_of(how, way))
        )
        # the last bits of roots may differ
        far = {"distance": lambda frame: frame.distance.round(12)}
        assert_same_rows(found.assign(**far), want.assign(**far), ("left", "rank"))


@pytest.mark.parametrize("how", HOW)
def test_nearest_rows_within_a_distance(how):
    want = LEFT.simjoin.knn_join(RIGHT, 4, on=ON, max_distance=0.5)
    found = computed(
        lay(LEFT, how).simjoin.knn_join(lay(RIGHT, how), 4, on=ON, max_distance=0.5)
    )
    assert_same_rows(found, want, ("left", "rank"))


def test_tables_of_two_libraries_are_refused():
    with pytest.raises(
        UnsupportedFrameError,
        match="left table is a pandas frame and the right one a cudf frame",
    ):
        LEFT.simjoin.join(lay(RIGHT, "cudf"), 1.0, on=ON)
    # lazy and plain go together
    lazy = lay(LEFT, "dask-4").simjoin.join(lay(RIGHT, "cudf"), 0.5, on=ON)
    assert_same_pairs(
        as_set(computed(lazy)), as_set(LEFT.simjoin.join(RIGHT, 0.5, on=ON))
    )


def test_small_partitions_of_results():
    with dask.config.set({"simjoin.output-size": "4 kB"}):
        lazy = lay(LEFT, "dask-4").simjoin.join(
            lay(RIGHT, "dask-1"), 0.5, on=ON, keep="weight"
        )
        assert lazy.npartitions > 4
        found = computed(lazy)
    assert_same_rows(found, LEFT.simjoin.join(RIGHT, 0.5, on=ON, keep="weight"))


KINDS = ["bool", "int8", "uint16", "int32", "uint64", "float32", "float64"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("pairs", ["unique", "both"])
@pytest.mark.parametrize("more", [[], ["name"]], ids=str)
def test_kept_columns_of_every_size(how, pairs, more):
    frame = LEFT.assign(**{kind: (np.arange(500) % 120).astype(kind) for kind in KINDS})
    options = {
        "on": ON,
        "pairs": pairs,
        "keep": [*KINDS, *more],
        "return_distance": True,
    }
    found = computed(lay(frame, how).simjoin.self_join(0.5, **options))
    assert {str(found[f"{kind}_left"].dtype) for kind in KINDS} == set(KINDS)
    assert_same_rows(found, frame.simjoin.self_join(0.5, **options))


@pytest.mark.parametrize("how", HOW)
def test_not_a_number_stays_one(how):
    frame = lay(LEFT, "cudf")
    real = cupy.where(cupy.arange(500) % 3 == 0, cupy.nan, 1.0)
    frame["real"] = cudf.Series(real, index=frame.index, nan_as_null=False)
    if how != "cudf":
        frame = dask_cudf.from_cudf(frame, npartitions=int(how[-1]), sort=False)
    found = frame.simjoin.self_join(0.5, on=ON, keep="real")
    if how != "cudf":
        found = found.compute(scheduler="sync")
    assert found.real_left.null_count == 0
    assert 0 < int(cupy.isnan(found.real_left.values).sum()) < len(found)


def test_kept_columns_of_several_batches(monkeypatch):
    """More pairs than a buffer holds."""
    from dask_simjoin.engine.gpu import tiles as gpu_tiles

    monkeypatch.setattr(gpu_tiles, "CAPACITY_PER_POINT", 0)
    monkeypatch.setattr(gpu_tiles, "BATCH", 1 << 16)
    frame = frame_of(np.random.default_rng(3).integers(0, 9, (3000, 2)) * 0.5).assign(
        k=np.arange(3000)
    )
    options = {"on": ON, "keep": ["k"], "return_distance": True}
    found = computed(cudf.from_pandas(frame).simjoin.self_join(1.0, **options))
    assert len(found) > 1 << 18
    assert_same_rows(found, frame.simjoin.self_join(1.0, **options))
