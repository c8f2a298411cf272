import dask.dataframe as dd
import pandas as pd

from dask_simjoin.graph.planner import STATISTICS, collect, plan_for
from dask_simjoin.graph.source import freeze
from dask_simjoin.planning.outputs import PAIRS
from dask_simjoin.request.columns import example_of
from dask_simjoin.sets.planner import SET_STEPS
from dask_simjoin.sets.requests import SetSelfJoinRequest

TEXTS = pd.DataFrame({"text": ["a b c", "a b c d", "e f", "a b"]})


def test_sources_keep_plans_and_frames_keep_statistics():
    frame = dd.from_pandas(TEXTS, npartitions=2)
    spec = SetSelfJoinRequest("text", 0.5, tokenizer="whitespace").spec(example_of(frame))
    source = freeze(frame, spec.columns)
    STATISTICS.clear()
    plan = plan_for(source, spec, PAIRS, steps=SET_STEPS)
    assert plan.rows == 4 and len(STATISTICS) == 1
    assert plan_for(source, spec, PAIRS, steps=SET_STEPS) is plan
    again = collect(freeze(frame, spec.columns), spec, True, steps=SET_STEPS)
    assert [summary.source_rows for summary in again.summaries] == [2, 2]
    assert len(STATISTICS) == 1
