"""The choice of a driver."""

import dask.dataframe as dd
import pandas as pd

from dask_simjoin.cluster.distances import DISTANCES
from dask_simjoin.cluster.local import LocalDistances
from dask_simjoin.graph.driver import LazyJoins
from dask_simjoin.request.requests import SelfJoinRequest


def test_the_table_chooses_the_driver():
    frame = pd.DataFrame({"x": [0.0, 1.0]})
    spec = SelfJoinRequest(1.0).spec(frame)
    assert isinstance(DISTANCES.of([frame], spec), LocalDistances)
    lazy = dd.from_pandas(frame, npartitions=1)
    assert isinstance(DISTANCES.of([lazy], spec), LazyJoins)
