"""Joins of sets of cuDF frames: what pandas frames say."""

import dask
import numpy as np
import pandas as pd
import pytest

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")
dask_cudf = pytest.importorskip("dask_cudf")

from dask.base import is_dask_collection

from dask_simjoin.errors import ColumnError, TokenError
from dask_simjoin.sets.methods import CHOICES
from tests.support.sets import found_pairs

pytestmark = pytest.mark.gpu


def table(rows, seed=0):
    random = np.random.default_rng(seed)
    sets = [
        [f"t{t}" for t in random.integers(0, 12, random.integers(0, 7))]
        for _ in range(rows)
    ]
    texts = [" ".join(tokens) for tokens in sets]
    frame = pd.DataFrame(
        {"sets": sets, "text": texts, "name": [f"row {n % 7}" for n in range(rows)]}
    )
    frame["numbers"] = [[int(token[1:]) for token in tokens] for tokens in sets]
    frame.loc[::17, ["sets", "numbers"]] = None
    frame.loc[::17, "text"] = None
    return frame.set_index(random.permutation(rows) + 100)


def laid(frame, how):
    """A cuDF frame, plain or in so many partitions."""
    moved = cudf.DataFrame(frame)
    return (
        moved
        if how == "cudf"
        else dask_cudf.from_cudf(moved, npartitions=int(how[-1]), sort=False)
    )


def computed(result):
    found = result.compute(scheduler="sync") if is_dask_collection(result) else result
    assert type(found).__module__.startswith("cudf")
    return found.to_pandas()


COLUMNS = {"sets": {}, "numbers": {}, "text": {"tokenizer": "whitespace"}}


@pytest.fixture(params=["cudf", "dask-1", "dask-3"])
def how(request):
    """Where rows lie."""
    return request.param


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("size", [None, "6 kB"])
def test_pairs_counts_and_kept_columns(how, column, special, size):
    frame = table(300)
    options = COLUMNS[column] | {
        "allow_empty": special,
        "allow_missing": special,
        "blocksize": size,
    }
    moved = laid(frame, how)
    with dask.config.set({"simjoin.output-size": "3 kB"}):
        lazy = moved.simjoin.set_self_join(
            column, 0.6, keep="name", return_similarity=True, **options
        )
        found = computed(lazy)
    want = frame.simjoin.set_self_join(
        column, 0.6, keep="name", return_similarity=True, **options
    )
    assert found_pairs(found) == found_pairs(want)
    keys = ["left", "right"]
    names = [
        some.sort_values(keys)[["name_left", "name_right"]].to_numpy().tolist()
        for some in (found, want)
    ]
    assert names[0] == names[1]
    number = moved.simjoin.count_set_pairs(column, 0.6, **options)
    assert int(number.compute(scheduler="sync") if how != "cudf" else number) == len(
        want
    )
    counts = computed(moved.simjoin.set_neighbor_counts(column, 0.6, **options))
    assert (
        counts.to_dict()
        == frame.simjoin.set_neighbor_counts(column, 0.6, **options).to_dict()
    )


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("grouping", ["greedy", "connected"])
@pytest.mark.parametrize("keep", ["first", "last", "votes", False])
def test_near_duplicates(how, column, grouping, keep):
    frame = table(300)
    frame["votes"] = np.arange(300) % 11
    options = COLUMNS[column] | {
        "on": column,
        "threshold": 0.6,
        "grouping": grouping,
        "keep": keep,
    }
    moved = laid(frame, how)
    gone = computed(moved.simjoin.set_near_duplicated(**options, blocksize="6 kB"))
    assert gone.tolist() == frame.simjoin.set_near_duplicated(**options).tolist()
    stay = computed(moved.simjoin.drop_set_near_duplicates(**options))
    assert (
        stay.index.tolist()
        == frame.simjoin.drop_set_near_duplicates(**options).index.tolist()
    )


@pytest.mark.parametrize("way", ["inner", "left", "leftsemi", "leftanti"])
def test_two_tables(how, way):
    frame, other = table(200), table(120, 1)
    found = computed(
        laid(frame, how).simjoin.set_join(laid(other, how), "sets", 0.6, how=way)
    )
    want = frame.simjoin.set_join(other, "sets", 0.6, how=way)
    if way == "inner":
        assert found_pairs(found) == found_pairs(want)
    elif way == "left":
        assert sorted(map(str, found.fillna(-1).to_numpy().tolist())) == sorted(
            map(str, want.astype({"right": "float64"}).fillna(-1).to_numpy().tolist())
        )
    else:
        assert found.index.tolist() == want.index.tolist()


@pytest.mark.parametrize("method", CHOICES)
@pytest.mark.parametrize("similarity", ["jaccard", "cosine"])
def test_methods_and_profiles(method, similarity):
    frame = table(400)
    options = {
        "on": "sets",
        "threshold": 0.7,
        "similarity": similarity,
        "method": method,
    }
    moved = laid(frame, "cudf")
    assert moved.simjoin.count_set_pairs(**options) == frame.simjoin.count_set_pairs(
        **options
    )
    profile = moved.simjoin.profile(**options)
    assert profile.numbers["pairs"] == frame.simjoin.count_set_pairs(**options)


def test_plans_and_refusals(how):
    frame = table(200)
    moved = laid(frame, how)
    truth = frame.simjoin.count_set_pairs("sets", 0.6)
    assert moved.simjoin.set_plan("sets", 0.6).pairs == truth
    with pytest.raises((ColumnError, TokenError), match="tokenizer="):
        computed(moved.simjoin.set_self_join("text", 0.5))
