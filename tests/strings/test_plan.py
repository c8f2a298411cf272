import numpy as np
import pandas as pd

from dask_simjoin.strings.plan import gather_texts, summarise_texts
from dask_simjoin.strings.requests import EditSelfJoinRequest


def test_samples_keep_the_order_of_codes():
    frame = pd.DataFrame({"t": ["ba", None, "c"]})
    spec = EditSelfJoinRequest(on="t", k=1).spec(frame.iloc[:0])
    summaries = [summarise_texts(frame, number, spec, True, 2) for number in range(2)]
    assert summaries[0].missing == 1
    (sampled,), bound = gather_texts([summaries])
    assert sampled.sizes.tolist() == [3, -1, 2] * 2
    assert sampled.sets["codes"].tolist() == [98, 97, 0, 99, 0] * 2
    assert np.unique(sampled.hashes).size == 3 and bound > 0x10FFFF


def test_a_report_names_the_rule_and_the_groups():
    frame = pd.DataFrame({"t": ["ab", "ac", None], "g": [1, 1, 2]})
    plan = frame.simjoin.edit_plan("t", 1, transpositions=True, by="g")
    text = str(plan)
    assert plan.title == "Plan of an edit self-join, k=1, with transpositions"
    assert "without a text" in text and "within" in text and "by length" in text
    assert plan.characters == 4 and plan.pairs == 1
