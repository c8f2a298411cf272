"""A partition without rows may have any dtypes: pandas makes int64 labels of an empty
column of int32.
"""

import dask.dataframe as dd
import numpy as np
import pandas as pd

from tests.support.profiles import in_turns

ROWS = 12

FRAME = pd.DataFrame(
    {
        "x": np.random.default_rng(0).uniform(0, 5, ROWS).astype("float32"),
        "id": np.arange(100, 100 + ROWS, dtype="int32"),
        "far": np.linspace(1, 2, ROWS),
        "kind": pd.Categorical(["a", "b"] * (ROWS // 2)),
        "number": pd.array(range(ROWS), dtype="Int64"),
    },
    index=pd.Index(np.arange(ROWS, dtype="int32"), name="key"),
)

EMPTY = {
    "objects": FRAME.iloc[:0].astype(object),
    "of no lists": pd.DataFrame({name: [] for name in FRAME}),
    "integers": FRAME.iloc[:0]
    .astype("int64")
    .set_index(pd.Index([], dtype="int64", name="key")),
    "strings": FRAME.iloc[:0].astype("str"),
}


def lazy(empty, where):
    """The rows in two partitions, and one without rows."""
    parts = [FRAME.iloc[:5], FRAME.iloc[5:]]
    parts.insert(where, empty)
    return dd.from_map(lambda part: part, parts, meta=FRAME.iloc[:0])


VERBS = {
    "self_join": lambda frame: frame.simjoin.self_join(
        1.0, on="x", id="id", keep=["kind", "number"]
    ),
    "regions": lambda frame: frame.simjoin.self_join(
        1.0, on="x", id="id", keep=["kind"], partitioning="spatial", blocksize=200
    ),
    "labels": lambda frame: frame.simjoin.self_join(1.0, on="x", keep="number"),
    "join": lambda frame: FRAME.simjoin.join(
        frame, 1.0, on="x", id="id", how="left", keep=["number"]
    ),
    "knn_join": lambda frame: frame.simjoin.knn_join(
        FRAME, k=2, on="x", id="id", keep=["kind", "number"]
    ),
    "keep": lambda frame: frame.simjoin.drop_near_duplicates(1.0, on="x", keep="far")[
        ["id"]
    ],
    "spanning_tree": lambda frame: frame.simjoin.spanning_tree(
        min_samples=2, on="x", id="id"
    ),
}


@in_turns(2, name=list(VERBS), empty=list(EMPTY))
def test_results_are_those_of_the_rows(name, empty):
    wanted, found = (
        VERBS[name](lazy(one, len(name) % 3)).compute()
        for one in (FRAME.iloc[:0], EMPTY[empty])
    )
    assert len(wanted)
    if name == "keep":  # rows as they are, with Dask's labels
        wanted, found = (
            one.reset_index(drop=True).astype("int64") for one in (wanted, found)
        )
    pd.testing.assert_frame_equal(found, wanted)


@in_turns(1, id=["id", None], empty=list(EMPTY))
def test_an_index_takes_no_rows_of_any_dtype(empty, id, tmp_path):
    made = FRAME.iloc[:2].simjoin.index(
        1.0, tmp_path / "index", on="x", id=id, keep=["kind", "number"]
    )
    # which no coordinates of a plain frame are, with rows or without
    if empty != "strings":
        made.update(EMPTY[empty])
    made.update(lazy(EMPTY[empty], 1), if_exists="replace")
    rows = made.rows().compute().sort_values("number")
    assert rows["number"].tolist() == FRAME["number"].tolist()
    assert rows.dtypes["number"] == "Int64" and len(made) == ROWS
