from dataclasses import replace

import pandas as pd

from dask_simjoin.strings.planner import EDIT_STEPS
from dask_simjoin.strings.requests import EditSelfJoinRequest


def test_statistics_depend_on_the_texts_alone():
    meta = pd.DataFrame({"t": ["a"], "g": [1]}).iloc[:0]
    one, other = (EditSelfJoinRequest(on="t", k=k).spec(meta) for k in (1, 2))
    assert EDIT_STEPS.key(one) == EDIT_STEPS.key(other)
    assert EDIT_STEPS.key(one) != EDIT_STEPS.key(replace(one, on=("g",)))
    assert EDIT_STEPS.key(one) != EDIT_STEPS.key(replace(one, code="by=g"))
