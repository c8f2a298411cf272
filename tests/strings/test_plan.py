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
