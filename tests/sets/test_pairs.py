"""Parts of the pairs of sets that one task finds."""

import pandas as pd
import pytest

from dask_simjoin.sets.local import LocalSets
from dask_simjoin.sets.pairs import cut_block, join_block
from dask_simjoin.sets.requests import SetSelfJoinRequest


@pytest.mark.parametrize("parts", [1, 2, 7, 40])
def test_more_parts_than_pairs(parts):
    """Results are cut by an estimate: parts may have nothing, of equal sets or of
    others.
    """
    frame = pd.DataFrame(
        {
            "sets": [
                ["a", "b"],
                ["b", "a"],
                ["a", "b", "c"],
                ["x"],
                ["y", "z"],
                ["y", "z", "w"],
            ]
        }
    )
    spec = SetSelfJoinRequest(on="sets", threshold=0.6, return_similarity=True).spec(
        frame
    )
    driver = LocalSets([frame], spec)
    meeting = driver.pair(driver.chunks(with_ids=True))
    columns = ["left", "right", "similarity"]
    cuts = cut_block(meeting, parts)
    found = [join_block(meeting, columns, cuts, number) for number in range(parts)]
    want = frame.simjoin.set_self_join("sets", 0.6, return_similarity=True)
    together = pd.concat([some for some in found if len(some)])
    assert sorted(together.itertuples(index=False)) == sorted(
        want.itertuples(index=False)
    )
    assert len(want) == 4
    assert all(list(some.columns) == columns for some in found)
