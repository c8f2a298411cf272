"""The driver of Dask DataFrames."""

import dask.dataframe as dd
import pandas as pd

from dask_simjoin.calls.examples import pairs_example
from dask_simjoin.graph.driver import LazyNearest
from dask_simjoin.request.requests import SelfJoinRequest
from dask_simjoin.tasks.nearest import Neighbors

FRAME = pd.DataFrame({"x": [0.0, 1.0, 5.0]})


def test_results_are_lazy_and_plans_are_made_at_once():
    spec = SelfJoinRequest(1.0).spec(FRAME)
    driver = LazyNearest([dd.from_pandas(FRAME, npartitions=2)], spec)
    example = pairs_example(FRAME.iloc[:0], FRAME.iloc[:0], spec)
    assert driver.pairs(example).compute().values.tolist() == [[0, 1]]
    assert driver.number(FRAME.iloc[:0]).compute() == 1
    assert driver.graph("distance").compute().nnz == 2
    assert driver.plan().rows == 3
    assert not driver.finds_mutual(Neighbors(1, mutual=True))
