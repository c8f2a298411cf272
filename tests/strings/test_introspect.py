import dask.dataframe as dd
import numpy as np
import pandas as pd


def names(rows):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"t": ["".join("abc"[k] for k in row) for row in rng.integers(0, 3, (rows, 9))]})


def test_plans_of_plain_and_lazy_frames():
    frame = names(200)
    pairs = len(frame.simjoin.edit_self_join("t", 2))
    whole = frame.simjoin.edit_plan("t", 2)
    assert whole.rows == 200 and whole.characters == 1800 and whole.pairs == pairs and whole.blocks == 1
    lazy = dd.from_pandas(frame, npartitions=3).simjoin.edit_plan("t", 2, blocksize=8_000)
    assert lazy.blocks > 1 and lazy.characters == 1800 and lazy.pairs == pairs
    assert "Plan of an edit self-join, k=2" in str(lazy)
    assert len(lazy.to_frame()) == lazy.block_pairs
    two = frame.simjoin.edit_plan("t", similarity=0.8, other=names(10), by="t")
    assert "join of two tables" in str(two) or "two tables" in two.title
    assert two.pairs == 10


def test_a_profile_counts_the_work():
    found = names(300).simjoin.edit_profile("t", 2)
    numbers = {name: int(value) for name, value in found.numbers.items()}
    assert numbers["characters"] == 2700 and numbers["texts"] == names(300)["t"].nunique()
    assert numbers["pairs"] < numbers["row_pairs"] == len(names(300).simjoin.edit_self_join("t", 2))
    assert numbers["listed"] >= numbers["candidates"] >= numbers["verified"] >= numbers["pairs"]
    assert list(found.seconds) == ["characters", "encode", "join"]
    assert dd.from_pandas(names(300), npartitions=2).simjoin.edit_profile("t", 2).numbers == found.numbers
