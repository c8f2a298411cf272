"""The verbs that distances, sets and strings share, by both drivers."""

import dask.dataframe as dd
import pandas as pd
import pytest

from dask_simjoin.errors import OptionError

LEFT = pd.DataFrame({"x": [0.0, 1.0, 5.0, 1.5], "text": ["ab", "abc", "xyz", "abd"]})
RIGHT = pd.DataFrame({"x": [0.5, 9.0], "text": ["abc", "q"]})

KINDS = {
    "distances": ("{}", {"eps": 1.0, "on": "x"}),
    "sets": ("set_{}", {"threshold": 0.2, "on": "text", "tokenizer": ("qgrams", 1)}),
    "strings": ("edit_{}", {"k": 1, "on": "text"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_both_drivers_return_the_same(kind):
    name, how = KINDS[kind]
    lazy, other = (dd.from_pandas(frame, npartitions=2) for frame in (LEFT, RIGHT))

    def verb(frame, called, *args, **more):
        return getattr(frame.simjoin, name.format(called))(*args, **how, **more)

    pairs = verb(LEFT, "self_join")
    found = verb(lazy, "self_join").compute()
    assert (
        len(pairs)
        and found.sort_values(["left", "right"]).equals(
            pairs.sort_values(["left", "right"])
        )
    ) or sorted(found.itertuples(index=False)) == sorted(pairs.itertuples(index=False))
    for called in ("neighbor_counts", "near_duplicated"):
        assert verb(lazy, called).compute().tolist() == verb(LEFT, called).tolist()
    for which in ("inner", "left", "right", "outer", "leftsemi", "leftanti"):
        expected = verb(LEFT, "join", RIGHT, how=which)
        got = verb(lazy, "join", other, how=which).compute()
        assert sorted(map(str, got.to_numpy())) == sorted(map(str, expected.to_numpy()))
    counts = verb(LEFT, "neighbor_counts", other=RIGHT)
    assert (
        verb(lazy, "neighbor_counts", other=other).compute().tolist() == counts.tolist()
    )
    every = verb(LEFT, "join", RIGHT)["left"].value_counts()
    assert counts.to_dict() == every.reindex(LEFT.index, fill_value=0).to_dict()
    named = {"left_on": how["on"], "right_on": "renamed", "on": None}
    renamed = RIGHT.rename(columns={how["on"]: "renamed"})
    found = getattr(LEFT.simjoin, name.format("neighbor_counts"))(
        **how | named, other=renamed
    )
    assert found.tolist() == counts.tolist()
    with pytest.raises(OptionError, match="are for joins of two tables"):
        getattr(LEFT.simjoin, name.format("neighbor_counts"))(**how | named)
    count = {"distances": "count_pairs", "sets": "count_set_pairs"}
    called = count.get(kind, "count_edit_pairs")
    counts = [getattr(frame.simjoin, called)(**how) for frame in (LEFT, lazy)]
    assert counts[0] == counts[1].compute() == len(pairs)
