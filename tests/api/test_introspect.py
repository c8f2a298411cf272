"""`plan`: what a join would run and give, when it computes, and what it refuses."""

from dataclasses import replace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.errors import (
    BudgetError,
    ColumnError,
    CoordinateError,
    DuplicateIdError,
    OptionError,
    OptionTypeError,
    UnsupportedFrameError,
)
from dask_simjoin.planning.budget import PEAK
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import PAIRS
from dask_simjoin.planning.partition import summarise
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.reports.plan import PlanReport
from dask_simjoin.request.messages import size_text
from dask_simjoin.request.requests import SelfJoinRequest
from tests.support.frames import computed, lay
from tests.support.points import frame_of

EPS = 0.04


@pytest.fixture(scope="module")
def frame():
    return frame_of(np.random.default_rng(3).uniform(size=(900, 2)))


def test_it_computes_at_the_call_and_joins_stay_lazy(frame):
    read = []

    def part(number):
        read.append(number)
        return frame[number * 300 : number * 300 + 300]

    ddf = dd.from_map(part, range(3), meta=frame[:0])
    with dask.config.set(scheduler="sync"):
        report = ddf.simjoin.plan(EPS)
        assert sorted(read) == [0, 1, 2]
        pairs = ddf.simjoin.self_join(EPS)
        assert len(read) == 3
        assert str(report) and report.svg() and len(report.to_frame())
        assert len(read) == 3
        found = len(pairs.compute())
    assert len(read) == 6  # the join takes the rows that its planning has read
    assert report.counted and report.pairs_low == found == report.pairs_high


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"eps": -1.0}, OptionError, "finite number >= 0"),
        ({"eps": "1"}, OptionTypeError, "is not a number"),
        ({"on": "x9"}, ColumnError, "not a column"),
        ({"id": "name"}, ColumnError, "not a column"),
        ({"metric": "cosin"}, OptionError, "metric='cosin'"),
        ({"pairs": "all"}, OptionError, "pairs='all'"),
        ({"include_self": 1}, OptionTypeError, "include_self=1"),
        ({"return_distance": None}, OptionTypeError, "return_distance=None"),
        ({"dropna": "no"}, OptionTypeError, "dropna='no'"),
        ({"method": "grids"}, OptionError, "method='grids'"),
        ({"partitioning": "space"}, OptionError, "partitioning='space'"),
        ({"blocksize": "big"}, OptionError, "blocksize='big'"),
    ],
)
def test_options_are_refused_as_self_join_does(frame, how, options, error, says):
    asked = {"eps": EPS} | options
    laid = lay(frame, how)
    messages = []
    for verb in ("plan", "self_join"):
        with pytest.raises(error, match=says) as caught:
            getattr(laid.simjoin, verb)(**asked)
        messages.append(str(caught.value).replace("self_join()", "plan()"))
    assert messages[0] == messages[1]


def test_frames_are_refused_as_self_join_does(frame):
    levels = frame.set_index(pd.MultiIndex.from_arrays([range(900), range(900)]))
    with pytest.raises(ColumnError, match="MultiIndex"):
        levels.simjoin.plan(EPS)
    with pytest.raises(UnsupportedFrameError):
        dask_simjoin.plan([1.0], EPS)


def test_data_are_refused_as_when_a_join_is_planned(frame, how):
    bad = frame.copy()
    bad.iloc[17, 0] = np.inf
    with pytest.raises(CoordinateError, match="'c0' has 1 infinite value"):
        lay(bad, how).simjoin.plan(EPS)
    twice = frame.set_axis([*range(899), 3])
    with pytest.raises(DuplicateIdError):
        lay(twice, how).simjoin.plan(EPS)


def test_a_result_beyond_the_limit_is_refused(frame, how):
    laid = lay(frame, how)
    pairs = computed(laid.simjoin.count_pairs(0.2))
    with dask.config.set({"simjoin.result-limit": "1 kB"}):
        with pytest.raises(BudgetError) as caught:
            laid.simjoin.plan(0.2)
        laid.simjoin.plan(1e-5)
    said = str(caught.value)
    least = int(said.split(" pairs")[0].rpartition(" ")[2].replace(",", ""))
    assert 0 < least <= pairs
    assert size_text(16 * least, 1000) in said  # the need,
    assert "The limit is 1 kB" in said
    assert (
        "smaller eps" in said
        and "count_pairs()" in said
        and "simjoin.result-limit" in said
    )


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr("dask_simjoin.planning.budget.free_memory", lambda: 80 * 2**20)


def test_threads_of_a_plain_frame_are_expected_to_share_the_work():
    frame = frame_of(np.random.default_rng(0).uniform(0, 100, (20_000, 2)))
    one, two, many = (
        [frame.simjoin.plan(0.5, threads=n), frame.simjoin.plan(k=5, threads=n)]
        for n in (1, 2, 16)
    )
    for plans in zip(one, two, many, strict=True):
        seconds = [plan.seconds for plan in plans]
        assert seconds[0] > seconds[1] > seconds[2] > seconds[0] / 16
        names = "rows", "pairs", "chunks", "block_pairs", "partitions", "task_bytes"
        facts = [[getattr(plan, name) for name in names] for plan in plans]
        assert facts[0] == facts[1] == facts[2]


def test_a_plan_of_a_plain_frame_refuses_what_the_join_refuses(little_memory):
    x = frame_of(np.random.default_rng(0).uniform(size=(20_000, 2)))
    for call in ({"eps": 0.3}, {"k": 300}):
        verb = x.simjoin.self_join if "eps" in call else x.simjoin.knn_join
        said = []
        for refused in (verb, x.simjoin.plan):
            with pytest.raises(
                BudgetError, match="must fit in memory, and 80 MiB are free"
            ) as caught:
                refused(**call)
            said.append(str(caught.value).partition("The result must")[2])
        assert said[0] == said[1]
    lazy = dd.from_pandas(x, npartitions=2).simjoin.plan(0.3)
    assert lazy.result_bytes > 80 * 2**20


@pytest.mark.parametrize("limit", [None, "10 MiB"])
def test_the_limit_of_a_plain_result_is_the_smaller_one(frame, little_memory, limit):
    sets = pd.DataFrame({"t": [["a"], ["a"]]})
    with dask.config.set({"simjoin.result-limit": limit}):
        plans = [
            frame.simjoin.plan(EPS),
            frame.simjoin.plan(k=2),
            sets.simjoin.set_plan("t", 0.5),
            pd.DataFrame({"t": ["a", "b"]}).simjoin.edit_plan("t", k=1),
        ]
    expected = int(80 * 2**20 / PEAK) if limit is None else 10 * 2**20
    assert [plan.result_limit for plan in plans] == [expected] * 4
    assert [plan.partition_limit for plan in plans] == [expected] * 4
    assert dask.utils.format_bytes(expected) in str(plans[0])


@pytest.mark.parametrize("k", [None, 40])
def test_memory_includes_the_result(frame, k):
    plan = frame.simjoin.plan(**({"eps": 0.5} if k is None else {"k": k}))
    result = frame.simjoin.self_join(0.5) if k is None else frame.simjoin.knn_join(k=k)
    size = result.memory_usage(index=False).sum()
    found = plan.to_dict()
    assert found["partition_bytes"] == pytest.approx(size, rel=0.05)
    chunk = plan.rows * plan.plan.indexing.row_bytes
    assert found["task_bytes"] == pytest.approx(
        4 * chunk + PEAK * found["partition_bytes"]
    )
    assert dask.utils.format_bytes(found["task_bytes"]) in str(plan)
    lazy = dd.from_pandas(frame, npartitions=3).simjoin.plan(
        k=k or 20, blocksize="64 kB", partitioning="entity"
    )
    assert 0 < lazy.partition_bytes < lazy.result_bytes
    assert lazy.chunk_limit == lazy.partition_limit == 64_000


def test_chunks_beyond_the_memory_of_a_worker_are_refused():
    frame = frame_of(np.random.default_rng(0).uniform(size=(50_000, 1)))
    spec = SelfJoinRequest(eps=1e-6).spec(frame)
    summaries = [summarise(frame, 0, spec, True, 1)]
    with pytest.raises(BudgetError) as caught:
        make_plan(join_statistics([summaries], spec), machine=Limits(memory=10**6))
    said = str(caught.value)
    assert "50,000 rows of 16 bytes" in said
    assert (
        "needs about 4 MB" in said
        and "has 1 MB" in said
        and "blocksize='83.3 kB'" in said
    )
    spec = SelfJoinRequest(eps=1e-6, blocksize="83.3 kB", partitioning="entity").spec(
        frame
    )
    report = PlanReport(
        make_plan(join_statistics([summaries], spec), machine=Limits(memory=10**6)),
        spec,
    )
    assert report.chunks == 10


def test_it_is_a_function_of_the_package():
    report = dask_simjoin.plan(pd.DataFrame({"x": [0.0, 1.0]}), 1.0)
    assert (report.rows, report.pairs) == (2, 1)


def test_workers_too_small_to_shuffle_between():
    x = np.random.default_rng(0).uniform(size=(1000, 2))
    frame = pd.DataFrame(x, columns=["x", "y"])
    spec = SelfJoinRequest(eps=0.01, partitioning="spatial", blocksize=200 * 24).spec(
        frame
    )
    summaries = [summarise(frame, 0, spec, True, 1)]
    small = Limits(2, 2**27, True, 500_000_000)
    with pytest.raises(
        BudgetError,
        match=r"between workers of 500 MB. Each worker needs at least 672 MB.*entity",
    ):
        make_plan(
            join_statistics([summaries], spec), PAIRS, replace(small, shuffle="p2p")
        )
    assert len(make_plan(join_statistics([summaries], spec), PAIRS, small).chunks) > 1
