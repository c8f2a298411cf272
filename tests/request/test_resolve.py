"""What results say of rows besides their ids, radii of rows, and plans of both."""

import numpy as np
import pandas as pd
import pytest

import dask_simjoin  # noqa: F401
from dask_simjoin.errors import ColumnError, OptionError, OptionTypeError
from tests.support.frames import computed, lay
from tests.support.oracle import as_set, assert_same_pairs, squared_distances
from tests.support.profiles import every_nth, in_turns


def table(n=240, seed=7):
    """Points of a small lattice with attributes of several dtypes."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        rng.integers(0, 14, (n, 2)) * 0.5,
        columns=["x", "y"],
        index=rng.permutation(n) + 5,
    )
    frame["name"] = pd.array(
        [None if k % 11 == 0 else f"n{k % 7}" for k in range(n)], "string"
    )
    frame["kind"] = pd.Categorical(["a", "b", "c"] * n)[:n]
    frame["count"] = pd.array([None if k % 5 == 0 else k for k in range(n)], "Int32")
    frame["far"] = rng.choice([0.0, 0.5, 0.8, 2.0], n)
    frame["flag"] = rng.uniform(size=n) < 0.5
    return frame


FRAME = table()
ON = ["x", "y"]
D2 = squared_distances(FRAME[ON].to_numpy(), FRAME[ON].to_numpy())
KEEP = ["name", "count", "kind", "flag", "x"]
WAYS = [
    {"partitioning": "entity"},
    {"partitioning": "entity", "blocksize": "8 kB"},
    {"partitioning": "spatial", "blocksize": "8 kB"},
    {"partitioning": "replicated"},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("pairs", ["unique", "both"])
def test_attributes_of_both_rows(how, way, pairs):
    frame = lay(FRAME, how)
    lazy = frame.simjoin.self_join(
        0.5,
        on=ON,
        pairs=pairs,
        include_self=True,
        keep=KEEP,
        suffixes=("_a", "_b"),
        return_distance=True,
        **way,
    )
    found = computed(lazy)
    assert list(found.columns) == [
        "left",
        "right",
        "distance",
        *(f"{c}{s}" for s in ("_a", "_b") for c in KEEP),
    ]
    assert list(found.dtypes) == list(lazy.dtypes)
    near = np.argwhere(D2 <= 0.25 if pairs == "both" else np.triu(D2 <= 0.25))
    assert_same_pairs(
        as_set(found), {(FRAME.index[i], FRAME.index[j]) for i, j in near}
    )
    for side, ids in (("_a", found.left), ("_b", found.right)):
        for column in KEEP:
            wanted = FRAME[column].loc[ids].reset_index(drop=True)
            pd.testing.assert_series_equal(
                found[f"{column}{side}"], wanted, check_names=False, check_index=False
            )


def test_only_what_is_asked_for_is_read_and_made():
    lazy = lay(FRAME, "dask-3").simjoin.self_join(0.5, on=ON, keep=KEEP)
    some = lazy[["kind_right"]]
    assert list(some.compute(scheduler="sync").columns) == ["kind_right"]
    source = lazy.expr.operand("source").inner
    # the frame's order
    assert list(source.columns) == ["x", "y", "name", "kind", "count", "flag"]


SIDES = {"left": ["name", "kind"], "right": ["kind"]}
CHOSEN = ["name_left", "kind_left", "kind_right"]
CALLED = ["name", "kind_left", "kind_right"]


@in_turns(
    1,
    verb=every_nth(
        4,
        [
            lambda frame, keep: frame.simjoin.self_join(0.5, on=ON, keep=keep),
            lambda frame, keep: frame.simjoin.self_join(
                0.5, on=ON, pairs="both", include_self=True, keep=keep
            ),
            lambda frame, keep: frame.simjoin.self_join(
                "far", on=ON, pairs="both", keep=keep
            ),
            lambda frame, keep: frame.simjoin.join(
                FRAME[::2], 0.5, on=ON, how="left", keep=keep
            ),
            lambda frame, keep: frame.simjoin.knn_join(
                k=2, on=ON, max_distance=0.25, how="left", keep=keep
            ),
            lambda frame, keep: frame.simjoin.closest_pairs(9, on=ON, keep=keep),
            lambda frame, keep: frame.simjoin.closest_pairs(
                2, on=ON, by="flag", per_group=True, max_distance=1, keep=keep
            ),
            lambda frame, keep: frame.simjoin.knn_join(
                k=3, on=ON, mutual=True, keep=keep
            ),
            lambda frame, keep: frame.simjoin.edit_self_join("name", 1, keep=keep),
            lambda frame, keep: frame.simjoin.set_self_join(
                "name", 0.3, tokenizer=("qgrams", 1), keep=keep
            ),
        ],
    ),
    layout=["pandas", "dask-3"],
)
def test_columns_of_one_row(verb, layout):
    frame = lay(FRAME, layout)
    lazy = verb(frame, SIDES)
    found, both = computed(lazy), computed(verb(frame, ["name", "kind"]))
    assert len(found) and list(found.dtypes) == list(lazy.dtypes)
    both = both.drop(columns="name_right").rename(columns={"name_left": "name"})
    assert list(found.columns) == [*found.columns[:-3], *CALLED]
    pd.testing.assert_frame_equal(found, both)


def test_columns_of_one_row_in_any_order():
    keep = {"right": ["count", "kind", "name"], "left": "name"}
    found = FRAME.simjoin.self_join(0.25, on=ON, keep=keep, suffixes=("", "_b"))
    names = ["left", "right", "name", "count", "kind", "name_b"]
    assert list(found.columns) == names
    renamed = FRAME.rename(columns={"kind": "name'"})
    found = renamed.simjoin.self_join(
        0.25, on=ON, keep={"left": ["name", "name'"], "right": ["count"]}
    )
    assert list(found.columns) == ["left", "right", "name", "name'", "count"]
    assert found["name'"].tolist() == renamed["name'"].loc[found["left"]].tolist()
    for none in ({}, {"left": []}, {"left": None}):
        found = FRAME.simjoin.self_join(0.25, on=ON, keep=none)
        assert list(found.columns) == ["left", "right"]


@pytest.mark.parametrize(
    ("keep", "error", "text"),
    [
        (
            {"name": "a"},
            OptionTypeError,
            "with the key 'name'; its keys are 'left' and",
        ),
        ({"right": "nam"}, ColumnError, "did you mean 'name'"),
        ({"left": ["kind", "kind"]}, ColumnError, "names 'kind' more than once"),
    ],
)
def test_refused_columns_of_one_row(keep, error, text):
    with pytest.raises(error, match=text):
        FRAME.simjoin.self_join(0.5, on=ON, keep=keep)


def test_columns_of_one_table_must_be_there():
    other = FRAME[["x", "y", "kind"]]
    with pytest.raises(ColumnError, match="In the right table, keep= names 'name'"):
        FRAME.simjoin.join(other, 0.5, on=ON, keep={"right": "name"})
    found = FRAME.simjoin.join(other, 0.5, on=ON, keep={"left": "name"})
    assert list(found.columns) == ["left", "right", "name"]


def test_an_index_keeps_columns_of_both_rows(tmp_path):
    with pytest.raises(OptionTypeError, match="An index keeps columns of both rows"):
        FRAME.simjoin.index(0.5, tmp_path / "new", on=ON, keep={"left": "name"})


@pytest.mark.parametrize("way", every_nth(4, WAYS), ids=str)
def test_radii_are_those_of_left_rows(how, way, method):
    frame = lay(FRAME, how)
    way = way | {"method": method}
    far = FRAME.far.to_numpy()[:, None]
    within = far * far >= D2
    expected = {
        (FRAME.index[i], FRAME.index[j]) for i, j in np.argwhere(within) if i != j
    }
    found = computed(
        frame.simjoin.self_join(
            "far", on=ON, pairs="both", return_distance=True, keep="far", **way
        )
    )
    assert_same_pairs(as_set(found), expected)
    assert (found.distance <= found.far_left).all()
    assert (found.distance > found.far_right).any()
    count = computed(
        frame.simjoin.count_pairs("far", on=ON, pairs="both", include_self=True, **way)
    )
    assert count == len(expected) + 240
    counts = computed(frame.simjoin.neighbor_counts("far", on=ON, **way))
    pd.testing.assert_series_equal(
        counts, pd.Series(within.sum(1) - 1, FRAME.index, name="neighbors")
    )
    plan = frame.simjoin.plan("far", on=ON, pairs="both", **way)
    assert plan.pairs == pytest.approx(len(expected))
    assert "eps='far'" in str(plan)


def test_chunks_without_pairs_within_radii():
    frame = pd.DataFrame({"x": np.arange(40.0), "r": 0.5})
    lazy = lay(frame, "dask-3").simjoin.self_join(
        "r",
        on="x",
        pairs="both",
        return_distance=True,
        keep="r",
        partitioning="spatial",
        blocksize="200 B",
    )
    assert len(lazy.compute(scheduler="sync")) == 0
    assert lazy.compute(scheduler="sync").distance.dtype == np.float64


def test_a_radius_is_no_coordinate_by_default():
    frame = FRAME[["x", "y", "far"]]
    assert len(frame.simjoin.self_join("far", pairs="both")) == len(
        frame.simjoin.self_join("far", on=ON, pairs="both")
    )
    with pytest.raises(
        OptionError, match=r"eps='far' names a column.* Use pairs='both'"
    ):
        frame.simjoin.self_join("far")


def test_kept_columns_are_planned_for():
    plain, more = (
        FRAME.simjoin.plan(0.5, on=ON, keep=keep) for keep in (None, ["x", "flag"])
    )
    assert more.plan.result.pair_bytes == plain.plan.result.pair_bytes + 2 * 9
    assert more.plan.indexing.row_bytes == plain.plan.indexing.row_bytes + 9
    strings = FRAME.simjoin.plan(0.5, on=ON, keep=["name"])
    assert strings.plan.result.pair_bytes > plain.plan.result.pair_bytes + 2


def test_plans_of_two_tables_and_of_nearest_neighbours():
    left, right = lay(FRAME, "dask-3"), lay(table(100, 3), "dask-1")
    plan = left.simjoin.plan(
        0.5, other=right, on=ON, blocksize="6 kB", partitioning="spatial"
    )
    found = left.simjoin.join(
        right, 0.5, on=ON, blocksize="6 kB", partitioning="spatial"
    )
    assert plan.partitions == found.npartitions
    assert plan.pairs == len(found)
    assert (
        plan.block_pairs
        == len(plan.to_frame())
        < len(plan.plan.chunks.left) * len(plan.plan.chunks.right)
    )
    assert "240 and 100" in str(plan)
    assert plan._repr_html_().startswith("<div>")
    search = left.simjoin.plan(
        k=3, other=right, on=ON, blocksize="8 kB", partitioning="spatial"
    )
    assert search.pairs == 720
    assert search.block_pairs == len(search.to_frame())
    assert f"at most {search.block_pairs} " in str(search)
    assert search._repr_html_().startswith("<div>")
    alone = left.simjoin.plan(0.5, k=3, on=ON)
    assert (alone.pairs_low, alone.pairs_high) == (0, 720)
    assert FRAME.simjoin.plan(k=500, on=ON).pairs == 240 * 239
    few = FRAME.iloc[:200]
    assert (
        few.simjoin.plan(0.5, other=few, on=ON).pairs == (D2[:200, :200] <= 0.25).sum()
    )


@pytest.mark.parametrize("lazy", [False, True])
def test_a_tuple_that_names_a_column_is_one(lazy):
    frame = pd.DataFrame(
        {"x": [0.0, 1.0, 5.0], "a": list("uvw"), ("a", 1): [7, 8, 9], 1: [4, 5, 6]}
    )
    tables = lay(frame, "dask-3") if lazy else frame
    for keep in (("a", 1), [("a", 1)]):
        found = computed(tables.simjoin.self_join(1.0, on="x", keep=keep))
        assert found[["('a', 1)_left", "('a', 1)_right"]].to_numpy().tolist() == [
            [7, 8]
        ]
    other = frame.drop(columns=[("a", 1)])
    joined = computed(tables.simjoin.join(other, 0.0, on="x", keep=("a", 1)))
    assert joined["('a', 1)"].tolist() == [7, 8, 9]
    columns = computed(other.simjoin.self_join(1.0, on="x", keep=("a", 1)))
    assert columns[["a_left", "1_right"]].to_numpy().tolist() == [["u", 5]]
