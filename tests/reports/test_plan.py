"""Reports of plans: their numbers and their text."""

from dataclasses import replace
from xml.etree import ElementTree

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import format_bytes

from dask_simjoin.errors import ApproximateWarning
from dask_simjoin.planning.costs import Costs
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import COUNTS, PAIRS, describe_tasks
from dask_simjoin.planning.partition import summarise
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.reports.plan import PlanReport
from dask_simjoin.request.requests import SelfJoinRequest
from tests.support.frames import lay
from tests.support.plans import EPS, KINDS, ROW
from tests.support.points import frame_of
from tests.support.profiles import in_turns, pairwise

# --- numbers
# ---------------------------------------------------------------------------------------


def test_it_tells_what_the_plan_holds(ddf, chosen):
    report = ddf.simjoin.plan(EPS, **chosen)
    plan = ddf.simjoin.self_join(EPS, **chosen).expr.plan
    assert isinstance(report, PlanReport)
    assert report.rows == plan.rows == 900
    assert report.chunks == len(plan.chunks)
    assert report.block_pairs == len(plan.work) == len(plan.work.blocks)
    assert report.partitions == plan.work.outputs
    assert (
        report.partitioning == plan.partitioning == chosen.get("partitioning", "entity")
    )
    assert report.method == plan.layout.method == "sweep"
    assert report.pairs == plan.result.estimate.total
    assert (report.pairs_low, report.pairs_high) == (
        plan.result.estimate.total_low,
        plan.result.estimate.total_high,
    )
    if chosen:
        assert report.chunks >= 9
        assert report.block_pairs >= 9


@pairwise(pairs=["unique", "both"], include_self=[False, True], distance=[False, True])
def test_a_sample_of_all_rows_tells_the_result_exactly(
    ddf, chosen, pairs, include_self, distance
):
    options = {"pairs": pairs, "include_self": include_self, **chosen}
    # one partition for each block pair
    with dask.config.set({"simjoin.output-size": "1 GiB"}):
        report = ddf.simjoin.plan(EPS, return_distance=distance, **options)
        result = ddf.simjoin.self_join(EPS, return_distance=distance, **options)
        sizes = result.map_partitions(len).compute()
    blocks = report.to_frame()
    assert blocks["pairs"].tolist() == sizes.tolist()
    assert report.pairs == report.pairs_low == report.pairs_high == sizes.sum()
    assert report.result_bytes == sizes.sum() * (24 if distance else 16)
    assert report.pairs == ddf.simjoin.count_pairs(EPS, **options).compute()
    assert report.counted and report.to_dict()["counted"]
    assert line(report, "pairs") == f"{report.pairs:,.0f} (counted)"
    assert "sampled" not in str(report)


@pytest.mark.parametrize("include_self", [False, True])
def test_the_frame_of_block_pairs(ddf, chosen, include_self):
    report = ddf.simjoin.plan(EPS, pairs="both", include_self=include_self, **chosen)
    blocks = report.to_frame()
    assert blocks.columns.tolist() == [
        "query_chunk",
        "data_chunk",
        "query_rows",
        "data_rows",
        "candidates",
        "pairs",
        "pairs_low",
        "pairs_high",
        "bytes",
        "partitions",
        "seconds",
    ]
    assert len(blocks) == report.block_pairs
    assert (blocks["query_chunk"] <= blocks["data_chunk"]).all()
    assert blocks["data_chunk"].max() < report.chunks
    assert blocks["pairs"].sum() == pytest.approx(report.pairs)
    assert blocks["bytes"].sum() == pytest.approx(report.result_bytes, abs=1)
    assert blocks["partitions"].sum() == report.partitions
    assert (blocks["pairs_low"] <= blocks["pairs"]).all()
    assert (blocks["pairs"] <= blocks["pairs_high"]).all()
    most = 2 * blocks["candidates"].sum() + (900 if include_self else 0)
    assert report.pairs <= blocks["pairs_high"].sum() <= most + 1e-6
    first = blocks.drop_duplicates("query_chunk").sort_values("query_chunk")
    assert first["query_rows"].tolist() == pytest.approx(
        report.plan.chunks.rows[first["query_chunk"]]
    )


def test_the_interval_of_a_sample():
    x = np.random.default_rng(1).uniform(size=(60_000, 2))
    ddf = dd.from_pandas(frame_of(x), npartitions=3)
    report = ddf.simjoin.plan(0.05)
    found = ddf.simjoin.count_pairs(0.05).compute()
    assert report.plan.result.estimate.sampled < 60_000
    assert not report.counted
    assert 0 < report.pairs_low < report.pairs < report.pairs_high
    assert report.pairs_low < found < report.pairs_high
    interval = f"{report.pairs_low:,.0f} to {report.pairs_high:,.0f}"
    assert line(report, "pairs") == f"about {report.pairs:,.0f} ({interval})"
    sampled = report.plan.result.estimate.sampled  # of 6,000, as these have many pairs
    assert 2_000 < sampled < 6_000
    assert line(report, "sampled") == f"{sampled:,} rows, for a 95 % interval"


@in_turns(
    1,
    options=[
        {},
        {"blocksize": 500 * ROW, "partitioning": "entity"},
        {"blocksize": 500 * ROW, "partitioning": "spatial"},
    ],
    kind=["plain", "by", "radius", "chebyshev", "dropna", "both"],
)
def test_pairs_of_small_tables_are_counted(how, kind, options):
    random = np.random.default_rng(5)
    frame = frame_of(random.uniform(size=(3000, 2)))
    eps, join = 0.02, {"on": ["c0", "c1"]}
    if kind == "by":
        frame["group"], join = random.integers(0, 3, 3000), {**join, "by": "group"}
    elif kind == "radius":
        frame["own"], eps = random.uniform(0, 0.03, 3000), "own"
        join = {**join, "pairs": "both"}
    elif kind == "dropna":
        frame.iloc[::7, 1], join = np.nan, {**join, "dropna": True}
    elif kind == "both":
        join = {**join, "pairs": "both", "include_self": True}
    elif kind == "chebyshev":
        join = {**join, "metric": kind}
    report = lay(frame, how).simjoin.plan(eps, **join, **options)
    assert report.counted
    assert (
        report.pairs
        == report.pairs_low
        == report.pairs_high
        == len(frame.simjoin.self_join(eps, **join))
    )
    assert report.to_frame()["pairs"].sum() == report.pairs


def test_pairs_of_two_small_tables_are_counted(how):
    random = np.random.default_rng(6)
    left, right = (frame_of(random.uniform(size=(rows, 2))) for rows in (3000, 1500))
    found = len(left.simjoin.join(right, EPS))
    for options in ({}, {"blocksize": 500 * ROW}):
        report = lay(left, how).simjoin.plan(EPS, other=lay(right, how), **options)
        assert (
            report.counted and report.pairs == found == report.to_frame()["pairs"].sum()
        )


def test_other_plans_are_not_counted(how):
    frame = frame_of(np.random.default_rng(7).uniform(size=(3000, 2)))
    kmeans = {"method": "kmeans", "approximate": True}
    with pytest.warns(ApproximateWarning):
        assert not lay(frame, how).simjoin.plan(EPS, **kmeans).counted
    assert not lay(frame, how).simjoin.plan(EPS, method="grid").counted
    assert lay(frame, how).simjoin.plan(k=3).counted  # known without counting
    assert not lay(frame, how).simjoin.plan(EPS, k=3).counted


def test_many_partitions_of_sorted_rows_are_estimated_without_bias():
    """A few rows are drawn of each: two of one partition less often than two of
    different ones.
    """
    factors, held = [], 0
    spec = SelfJoinRequest(eps=0.0005, on="x").spec(pd.DataFrame({"x": [0.0]}))
    for seed in range(6):
        x = np.sort(np.random.default_rng(seed).uniform(size=60_000))
        found = int((np.searchsorted(x, x + 0.0005) - np.arange(len(x)) - 1).sum())
        parts = [pd.DataFrame({"x": part}) for part in np.split(x, 200)]
        summaries = [
            summarise(part, k, spec, False, len(parts)) for k, part in enumerate(parts)
        ]
        told = make_plan(join_statistics([summaries], spec)).result.estimate
        assert told.sampled == 200 * 32
        factors.append(told.total / found)
        held += told.total_low <= found <= told.total_high
    assert np.mean(factors) == pytest.approx(1, abs=0.01)
    assert held == 6


def test_a_pandas_frame_is_one_chunk(frame):
    whole = frame[:200]
    with dask.config.set({"simjoin.output-size": 100}):
        report = whole.simjoin.plan(
            EPS, return_distance=True, partitioning="spatial", blocksize=1000
        )
    assert (report.chunks, report.block_pairs, report.partitions) == (1, 1, 1)
    assert report.pairs == len(whole.simjoin.self_join(EPS))
    assert report.result_bytes == 24 * report.pairs
    assert "4.69 kiB per chunk (the size of the frame in memory)" in str(report)
    report = frame.simjoin.plan(EPS)
    assert report.pairs_low == len(frame.simjoin.self_join(EPS)) == report.pairs_high


def test_rows_that_are_dropped_take_no_part(frame):
    frame = frame.copy()
    frame.iloc[::3, 1] = np.nan
    for how in ("pandas", "dask-3"):
        report = lay(frame, how).simjoin.plan(EPS, dropna=True, include_self=True)
        assert report.rows == 600
        assert report.pairs_low >= 600


@pytest.mark.parametrize("size", [0, 1])
def test_frames_of_no_pairs(frame, how, size):
    report = lay(frame[:size], how).simjoin.plan(EPS, include_self=True)
    assert (report.rows, report.pairs, report.partitions) == (size, size, 1)
    assert report.block_pairs == len(report.to_frame()) == size
    assert line(report, "pairs") == f"{size} (counted)"
    assert report.result_bytes == 16 * size
    ElementTree.fromstring(report._repr_html_())


# --- text
# -----------------------------------------------------------------------------------------


def test_the_text_names_the_numbers(ddf):
    report = ddf.simjoin.plan(EPS, **KINDS["entity"])
    assert repr(report) == str(report)
    assert 12 <= len(str(report).splitlines()) <= 21
    assert max(map(len, str(report).splitlines())) <= 100
    assert line(report, "rows") == "900"
    assert line(report, "dimensions") == "2: 'c0', 'c1', all numeric columns"
    grid = report.plan.layout.grid
    assert (
        line(report, "engine")
        == f"sweep along 'c{grid.sweep}' in cells of 'c{grid.dims[0]}'"
    )
    assert line(report, "partitioning").startswith("entity")
    assert line(report, "chunks") == "10 (21.09 kiB)"
    assert line(report, "largest chunk") == "90 rows, 2.11 kiB"
    assert line(report, "block pairs") == "55 of 55 possible"
    assert line(report, "skipped").startswith("0, ")
    assert line(report, "pairs") == f"{report.pairs:,.0f} (counted)"
    assert "16 bytes per pair" in line(report, "result")
    assert line(report, "partitions").startswith(f"{report.partitions:,}, ")
    assert line(report, "memory").startswith("10.55 kiB")
    assert line(report, "budget") == "2.34 kiB per chunk (blocksize='2.4 kB')"
    assert f"{format_bytes(report.plan.limits.result)} for the result" in str(report)


def test_the_text_of_spatial_chunks_and_tiles(ddf):
    report = ddf.simjoin.plan(EPS, method="tiles", **KINDS["spatial"])
    chunks = report.plan.chunks
    halo = 100 * chunks.halo_rows.sum() / chunks.own_rows.sum()
    assert f"spatial: {len(chunks.regions)} regions, {halo:.3g} %" in line(
        report, "partitioning"
    )
    assert line(report, "engine").startswith("tiles, in order of 'c")
    possible = report.chunks * (report.chunks + 1) // 2
    assert (
        line(report, "block pairs") == f"{report.block_pairs} of {possible:,} possible"
    )
    assert line(report, "skipped").startswith(f"{possible - report.block_pairs:,}, ")


def test_many_columns_are_cut_short():
    report = frame_of(np.zeros((200, 200))).simjoin.plan(1.0)
    names = ", ".join(f"'c{k}'" for k in range(8))
    assert (
        line(report, "dimensions") == f"200: {names} and 192 more, all numeric columns"
    )


def test_a_notebook_shows_a_table_and_a_picture():
    name = '<b> & "x"'
    ddf = dd.from_pandas(pd.DataFrame({name: [0.0, 1.0]}), npartitions=2)
    report = ddf.simjoin.plan(1.0, partitioning="entity", blocksize=16)
    root = ElementTree.fromstring(report._repr_html_())
    cells = ["".join(cell.itertext()) for cell in root.iter("td")]
    assert f"1: {name!r}, all numeric columns" in cells
    assert len(cells) == len(str(report).splitlines()) - 1
    assert root.find("{http://www.w3.org/2000/svg}svg") is not None


def test_plans_of_places_name_their_columns_and_the_unit(frame):
    places = 9 * frame.rename(columns={"c0": "lat", "c1": "lon"})
    report = dd.from_pandas(places, npartitions=2).simjoin.plan(
        500.0, on=["lat", "lon"], metric="haversine", partitioning="spatial"
    )
    assert (
        line(report, "dimensions")
        == "2: 'lat', 'lon', as points 'x', 'y', 'z' on a sphere"
    )
    assert "eps=500.0 m" in str(report).splitlines()[0]
    assert line(report, "partitioning").startswith("spatial: 1 region, ")
    assert " m" not in str(frame.simjoin.plan(EPS)).splitlines()[0]


def test_plans_of_lists_are_told_in_words():
    lists = pd.DataFrame(
        {"embedding": list(np.random.default_rng(0).normal(size=(50, 40)))}
    )
    report = lists.simjoin.plan(0.5, on="embedding", metric="cosine")
    assert line(report, "dimensions") == "40: the numbers of each list in 'embedding'"
    assert line(report, "engine") == "tiles, in order of the 16 numbers that vary most"


def line(report, name):
    """The text of one line of a report."""
    (found,) = [
        text for text in str(report).splitlines() if text.startswith(f"  {name}  ")
    ]
    return found.removeprefix(f"  {name}").strip()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["tasks", "disk"])
def test_the_number_of_tasks_is_about_that_of_the_graph(ddf, kind, method):
    with dask.config.set({"dataframe.shuffle.method": method}):
        told = int(
            line(ddf.simjoin.plan(EPS, **KINDS[kind]), "tasks")
            .removeprefix("about ")
            .replace(",", "")
        )
        graph = dict(
            ddf.simjoin.self_join(EPS, **KINDS[kind]).optimize().__dask_graph__()
        )
    # reading is not counted
    assert told / 2 <= len(graph) <= 2 * told + 3 * ddf.npartitions


def test_many_tasks_are_told_with_a_remedy(ddf):
    assert describe_tasks(10_000, 1 << 20) == "about 10,000"
    assert describe_tasks(73_214, 200_000) == (
        "about 73,214: Dask alone needs 146 s for these; for fewer tasks, use a "
        "blocksize= above "
        "200 kB, or larger partitions"
    )
    report = ddf.simjoin.plan(EPS, partitioning="entity", blocksize=6 * ROW)
    assert "use a blocksize= above 144 B" in line(report, "tasks")
    report = ddf.simjoin.plan(k=1, blocksize=8 * ROW)
    assert report.to_frame()["candidates"].sum() > report.pairs


def test_large_partitions_are_shown_on_a_cluster(ddf):
    report = ddf.simjoin.plan(EPS, partitioning="spatial", blocksize=10 * ROW)
    assert "  reading  " not in str(report)
    settings = replace(report.spec.settings, cluster=True)
    assert "for the largest partition of the table" in line(
        replace(report, spec=replace(report.spec, settings=settings)), "reading"
    )


def two_thousand_rows(**options):
    """The spec and the statistics of a table."""
    x = np.random.default_rng(0).uniform(size=(2000, 2))
    frame = pd.DataFrame(x, columns=["x", "y"])
    spec = SelfJoinRequest(eps=0.01, **options).spec(frame)
    return spec, join_statistics([[summarise(frame, 0, spec, True, 1)]], spec)


def test_a_cluster_that_is_expected_to_be_slower_is_named(monkeypatch):
    spec, tables = two_thousand_rows()
    cluster = Limits(2, 2**30, True, 2**31, workers=2)

    def planned(machine, here):
        monkeypatch.setattr("dask_simjoin.planning.plan.limits_here", lambda: here)
        return PlanReport(make_plan(tables, PAIRS, machine), spec)

    slower = planned(cluster, Limits(2, shared=2**30))
    assert 0 < slower.one_process_seconds < slower.seconds
    assert "without the cluster, which is faster here" in line(slower, "one process")
    # no cluster; GPUs; a machine that has too little memory, or an unknown one
    for machine, here in (
        (Limits(2), Limits(2, shared=2**30)),
        (Limits(1, 2**36, True, gpu=True), Limits(2, shared=2**30)),
        (cluster, Limits(2, shared=2**10)),
        (cluster, Limits(2)),
    ):
        report = planned(machine, here)
        assert report.one_process_seconds is None
        assert "one process" not in str(report)
    faster = replace(slower.plan, one_process=2 * slower.seconds)
    assert "one process" not in str(replace(slower, plan=faster))


def test_a_cluster_with_many_threads_is_faster_for_much_work():
    costs = {
        limits.cluster: Costs("tiles", 16, (1.0, 1.0), 1e6, COUNTS, limits)
        for limits in (Limits(64, 2**30, True, workers=64), Limits(2))
    }
    alone = costs[True].in_one_process([1e6], 0.0, Limits(2))
    assert alone == costs[False].in_one_process([1e6], 0.0, Limits(2))
    whole = costs[True]._indexed_and_met([1e6])
    assert alone > 10 * costs[True].expected(0.0, np.array([whole]))


def test_time_has_what_is_spilled_and_names_what_is_written():
    spec, tables = two_thousand_rows(partitioning="entity", blocksize=200 * 24)
    few, many = (
        PlanReport(
            make_plan(tables, PAIRS, Limits(2, 2**20, True, limit, workers=2)), spec
        )
        for limit in (2**20, 2**40)
    )
    assert few.spilled_bytes == 0 < many.spilled_bytes
    assert many.seconds == pytest.approx(few.seconds + many.plan.memory.disk.spilling)
    assert few.writing_seconds == many.writing_seconds > 0
    assert "spill" not in repr(few)
    disk = replace(many.plan.memory.disk, spilling=2.0, writing=3.0)
    slow = replace(many.plan, memory=replace(many.plan.memory, disk=disk))
    told = repr(replace(many, plan=slow))
    assert (
        " 2 s of this to spill " in told
        and " 3 s more to write the pairs as parquet" in told
    )
