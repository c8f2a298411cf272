"""The same result for every partitioning: entity and spatial chunks, large and small,
cut and merged.
"""

import re

import dask
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dask_simjoin.errors import BudgetError, ColumnError, OptionError
from dask_simjoin.planning import checks
from tests.support.frames import split
from tests.support.oracle import as_set, assert_same_pairs, brute_force
from tests.support.points import Case, cases, frame_of
from tests.support.profiles import every_nth, examples


@st.composite
def ways(draw):
    """How to make chunks of how many rows, and partitions of the result of how many
    pairs.
    """
    return {
        "partitioning": draw(
            st.sampled_from(["entity", "spatial", "spatial", "replicated", "auto"])
        ),
        "rows": draw(st.sampled_from([5, 12, 1000])),
        "output": draw(st.sampled_from([40, 10_000])),
    }


@settings(max_examples=examples(60))
@given(cases(max_dims=9, max_points=50), ways(), st.integers(0, 2**32 - 1))
@example(
    Case(np.zeros((60, 2)), 0.0, (30,), "constant"),
    {"partitioning": "spatial", "rows": 12, "output": 400},
    0,
)
@example(
    Case(np.arange(60.0).reshape(-1, 1) // 2, 1.0, (), "lattice"),
    {"partitioning": "spatial", "rows": 12, "output": 10},
    1,
)
def test_any_points_in_any_chunks(case, way, seed):
    """Ids in any order: which row is left must not depend on them."""
    frame = frame_of(case.x)
    labels = np.random.default_rng(seed).permutation(len(frame)) + 5
    frame.index = pd.Index(labels)
    ddf = split(frame, case.cuts)
    chosen = {
        "partitioning": way["partitioning"],
        "blocksize": way["rows"] * (8 * case.x.shape[1] + 8),
    }
    if way["partitioning"] == "replicated":
        chosen["blocksize"] = None
    expected = brute_force(case.x, case.eps)
    named = {(labels[i], labels[j]) for i, j in expected}
    with dask.config.set(
        {"scheduler": "sync", "simjoin.output-size": 16 * way["output"]}
    ):
        assert_same_pairs(
            as_set(ddf.simjoin.self_join(case.eps, **chosen).compute()), named
        )
        pairs = ddf.simjoin.self_join(
            case.eps, pairs="both", include_self=True, return_distance=True, **chosen
        )
        found = pairs.compute()
        both = named | {(j, i) for i, j in named} | {(i, i) for i in labels.tolist()}
        assert_same_pairs(as_set(found), both)
        assert ddf.simjoin.count_pairs(case.eps, **chosen).compute() == len(named)
        counts = ddf.simjoin.neighbor_counts(case.eps, **chosen).compute()
    local = frame.simjoin.self_join(
        case.eps, pairs="both", include_self=True, return_distance=True
    )
    by = ["left", "right"]
    pd.testing.assert_frame_equal(
        found.sort_values(by, ignore_index=True),
        local.sort_values(by, ignore_index=True),
        check_dtype=False,
    )
    pd.testing.assert_series_equal(counts, frame.simjoin.neighbor_counts(case.eps))


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(5).uniform(size=(2000, 2))


ENTITY = [
    {"cuts": (), "rows": 2000},
    {"cuts": (500, 1000, 1500), "rows": 500},
    {"cuts": (1, 2, 3, 1990), "rows": 333},
    {"cuts": tuple(range(50, 2000, 50)), "rows": 400},
    {"cuts": (700,), "rows": 100},
]
SPATIAL = [
    {**way, "rows": rows}
    for way, rows in zip(ENTITY, (1000, 500, 300, 200, 60), strict=True)
]


@pytest.mark.parametrize("ids", every_nth(4, ["index", "text"]))
def test_five_entity_and_five_spatial_partitionings(x, ids):
    frame = frame_of(x)
    names = np.arange(len(x))
    if ids == "text":
        names = np.array([f"row {n}" for n in names[::-1]])
        frame["id"] = names
    options = {"on": ["c0", "c1"]} | ({"id": "id"} if ids == "text" else {})
    expected = {(names[i], names[j]) for i, j in brute_force(x, 0.03)}
    sizes = set()
    for kind, way in [("entity", way) for way in ENTITY] + [
        ("spatial", way) for way in SPATIAL
    ]:
        row_bytes = 16 + (8 if ids == "index" else 20)
        pairs = split(frame, way["cuts"]).simjoin.self_join(
            0.03, partitioning=kind, blocksize=way["rows"] * row_bytes, **options
        )
        plan = pairs.expr.plan
        assert plan.partitioning == kind
        sizes.add((kind, len(plan.chunks)))
        assert_same_pairs(as_set(pairs.compute()), expected)
    assert len(sizes) >= 8


def test_only_some_columns_and_partitions(x):
    pairs = split(frame_of(x), (900,)).simjoin.self_join(
        0.03, partitioning="spatial", blocksize=300 * 24, return_distance=True
    )
    whole = pairs.compute()
    assert as_set(whole) == brute_force(x, 0.03)
    parts = [pairs.partitions[n].compute() for n in range(pairs.npartitions)]
    assert as_set(pd.concat(parts)) == as_set(whole)
    assert pairs[["right"]].compute().columns.tolist() == ["right"]
    near = pairs[pairs.distance < 0.01]
    assert as_set(near.compute()) == brute_force(x, 0.01)


def test_dropped_rows_are_numbered_too(x):
    frame = frame_of(x)
    frame.iloc[::7, 0] = np.nan
    frame.iloc[:450, 1] = np.inf
    kept = np.flatnonzero(np.isfinite(frame).all(axis=1))
    expected = {(kept[i], kept[j]) for i, j in brute_force(x[kept], 0.03)}
    local = frame.simjoin.neighbor_counts(0.03, dropna=True)
    for kind in ("entity", "spatial"):
        ddf = split(frame, (400, 401, 1500))
        chosen = {"partitioning": kind, "blocksize": 300 * 24, "dropna": True}
        assert_same_pairs(
            as_set(ddf.simjoin.self_join(0.03, **chosen).compute()), expected
        )
        counts = ddf.simjoin.neighbor_counts(0.03, **chosen)
        pd.testing.assert_series_equal(counts.compute(), local)
        parts = [counts.partitions[n].compute() for n in range(4)]
        pd.testing.assert_series_equal(pd.concat(parts), local)


def test_too_many_block_pairs_are_refused(x, monkeypatch):
    monkeypatch.setattr(checks, "MAX_TASKS", 100)
    ddf = split(frame_of(x), range(100, 2000, 100))
    with pytest.raises(
        BudgetError,
        match=r"20 chunks .* make 210 block pairs, and at most 100 .*blocksize",
    ):
        ddf.simjoin.count_pairs(
            1.0, partitioning="entity", blocksize=100 * 24
        ).compute()
    with pytest.raises(
        BudgetError,
        match=r"result would have [\d,]+ partitions .*at most 100 .*smaller eps",
    ):
        ddf.simjoin.self_join(1.0, partitioning="entity", blocksize=24_000).npartitions  # noqa: B018


def test_block_pairs_of_next_to_no_rows_are_refused():
    """However few bytes are asked for: Dask would be busy for minutes with what takes
    milliseconds.
    """
    points = np.random.default_rng(0).uniform(size=(700, 2))
    ddf = split(frame_of(points), (300,))
    told = r"'12 kB' makes 700 chunks of 1.0 rows .* 22,432 bytes .* 245,350 small block .* at least "
    with pytest.raises(BudgetError, match=told) as refused:
        ddf.simjoin.knn_join(k=2000, blocksize="12 kB").npartitions  # noqa: B018  (plans)
    enough = re.findall(r"blocksize='([^']*)'", str(refused.value))[-1]
    assert ddf.simjoin.knn_join(k=2000, blocksize=enough).npartitions > 1
    with pytest.raises(
        BudgetError, match=r"blocksize='1 B' makes .* small block pairs, .*at most"
    ):
        ddf.simjoin.count_pairs(2.0, blocksize=1).compute()


def test_another_configuration_makes_another_join(x):
    ddf = split(frame_of(x), (1000,))
    one = ddf.simjoin.self_join(0.05)
    assert one.npartitions == 1
    with dask.config.set({"simjoin.output-size": "1 kiB"}):
        assert ddf.simjoin.self_join(0.05).npartitions > 1
    assert ddf.simjoin.self_join(0.05).npartitions == 1


@pytest.mark.parametrize(
    "name", ["simjoin.blocksize", "simjoin.output-size", "simjoin.result-limit"]
)
@pytest.mark.parametrize("value", ["many", -1, True])
def test_a_configuration_that_is_not_allowed(x, name, value):
    with (
        dask.config.set({name: value}),
        pytest.raises(
            OptionError, match=rf"^{name}=.* It comes from dask\.config\.set"
        ),
    ):
        split(frame_of(x), ()).simjoin.self_join(0.05)


@pytest.mark.parametrize("value", ["many", -1, True, 0, [1]])
def test_a_blocksize_that_is_not_allowed(x, value):
    with pytest.raises(OptionError, match=r"blocksize=.* is not allowed"):
        split(frame_of(x), ()).simjoin.self_join(0.05, blocksize=value)


def test_ids_that_no_index_can_hold():
    frame = pd.DataFrame({"x": [1.0, 2.0], "key": np.array([1, 2], np.float16)})
    with pytest.raises(
        ColumnError, match=r"ids in column 'key' are of dtype float16.*astype"
    ):
        frame.simjoin.self_join(1.0, id="key")


def test_sizes_of_partitions_refuse_nothing_that_has_none(x, monkeypatch):
    """Counts materialise no pairs, and a join of a pandas frame comes out as one frame."""
    monkeypatch.setattr(checks, "MAX_TASKS", 100)
    expected = brute_force(x, 0.2)
    with dask.config.set({"simjoin.output-size": "1 kiB"}):
        ddf = split(frame_of(x), (1000,))
        assert ddf.simjoin.count_pairs(0.2).compute() == len(expected)
        assert ddf.simjoin.neighbor_counts(0.2).sum().compute() == 2 * len(expected)
        assert as_set(frame_of(x).simjoin.self_join(0.2)) == expected
        assert frame_of(x).simjoin.count_pairs(0.2) == len(expected)
