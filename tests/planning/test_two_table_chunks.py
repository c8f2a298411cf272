"""Chunks of two tables that are joined."""

import pandas as pd


def test_tables_far_apart_do_not_meet():
    near = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 0.0]})
    far = near + 1000
    assert len(near.simjoin.join(far, 1.0)) == 0
    assert near.simjoin.join(far, 1.0, how="leftanti").equals(near)
    assert len(near.simjoin.join(near, 1.0)) == 4
