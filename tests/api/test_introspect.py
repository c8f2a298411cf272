"""`plan`: what a join would run and give, told before it runs."""

import os
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import format_bytes

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
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.outputs import PAIRS, describe_tasks
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.statistics.partition import summarise
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.reports.plan import PlanReport
from dask_simjoin.reports.svg import CELLS
from dask_simjoin.request.requests import SelfJoin
from tests.support.frames import computed, lay
from tests.support.paths import ROOT
from tests.support.points import frame_of

EPS = 0.04
ROW = 24
"""Bytes of a row of two columns and its id."""


@pytest.fixture(scope="module")
def frame():
    """Few enough rows for the sample to be all of them, where partitions are small."""
    return frame_of(np.random.default_rng(3).uniform(size=(900, 2)))


@pytest.fixture(scope="module")
def ddf(frame):
    return dd.from_pandas(frame, npartitions=5)


KINDS = {
    "entity": {"partitioning": "entity", "blocksize": 100 * ROW},
    "spatial": {"partitioning": "spatial", "blocksize": 100 * ROW},
    "one chunk": {},
}


@pytest.fixture(params=KINDS)
def chosen(request):
    """Options that give many chunks of either kind, or one."""
    return KINDS[request.param]


# --- numbers ---------------------------------------------------------------------------------------


def test_it_tells_what_the_plan_holds(ddf, chosen):
    report = ddf.simjoin.plan(EPS, **chosen)
    plan = ddf.simjoin.self_join(EPS, **chosen).expr.plan
    assert isinstance(report, PlanReport)
    assert report.rows == plan.rows == 900
    assert report.chunks == len(plan.chunks)
    assert report.block_pairs == len(plan) == len(plan.blocks)
    assert report.partitions == plan.outputs
    assert report.partitioning == plan.partitioning == chosen.get("partitioning", "entity")
    assert report.method == plan.layout.method == "sweep"
    assert report.pairs == plan.estimate.total
    assert (report.pairs_low, report.pairs_high) == (plan.estimate.total_low, plan.estimate.total_high)
    if chosen:
        assert report.chunks >= 9
        assert report.block_pairs >= 9


@pytest.mark.parametrize("pairs", ["unique", "both"])
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("distance", [False, True])
def test_a_sample_of_all_rows_tells_the_result_exactly(ddf, chosen, pairs, include_self, distance):
    options = {"pairs": pairs, "include_self": include_self, **chosen}
    with dask.config.set({"simjoin.output-size": "1 GiB"}):  # one partition for each block pair
        report = ddf.simjoin.plan(EPS, return_distance=distance, **options)
        result = ddf.simjoin.self_join(EPS, return_distance=distance, **options)
        sizes = result.map_partitions(len).compute()
    blocks = report.to_frame()
    assert blocks["pairs"].tolist() == sizes.tolist()
    assert report.pairs == report.pairs_low == report.pairs_high == sizes.sum()
    assert report.result_bytes == sizes.sum() * (24 if distance else 16)
    assert report.pairs == ddf.simjoin.count_pairs(EPS, **options).compute()
    assert f"  {report.pairs:,.0f}\n" in str(report)
    assert "which is all of them" in str(report)


@pytest.mark.parametrize("include_self", [False, True])
def test_the_frame_of_block_pairs(ddf, chosen, include_self):
    report = ddf.simjoin.plan(EPS, pairs="both", include_self=include_self, **chosen)
    blocks = report.to_frame()
    assert blocks.columns.tolist() == [
        "query_chunk", "data_chunk", "query_rows", "data_rows", "candidates", "pairs", "pairs_low",
        "pairs_high", "bytes", "partitions", "seconds",
    ]  # fmt: skip
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
    assert first["query_rows"].tolist() == pytest.approx(report.plan.chunks.rows[first["query_chunk"]])


def test_the_interval_of_a_sample():
    x = np.random.default_rng(1).uniform(size=(60_000, 2))
    ddf = dd.from_pandas(frame_of(x), npartitions=3)
    report = ddf.simjoin.plan(0.005)
    found = ddf.simjoin.count_pairs(0.005).compute()
    assert report.plan.estimate.sampled < 60_000
    assert 0 < report.pairs_low < report.pairs < report.pairs_high
    assert report.pairs_low < found < report.pairs_high
    assert f"about {report.pairs:,.0f}" in str(report)
    assert f"{report.pairs_low:,.0f} to {report.pairs_high:,.0f}" in str(report)


def test_many_partitions_of_sorted_rows_are_estimated_without_bias():
    """A few rows are drawn of each: two of one partition less often than two of different ones."""
    factors, held = [], 0
    spec = SelfJoin(eps=0.0005, on="x").spec(pd.DataFrame({"x": [0.0]}))
    for seed in range(6):
        x = np.sort(np.random.default_rng(seed).uniform(size=60_000))
        found = int((np.searchsorted(x, x + 0.0005) - np.arange(len(x)) - 1).sum())
        parts = [pd.DataFrame({"x": part}) for part in np.split(x, 200)]
        summaries = [summarise(part, k, spec, False, len(parts)) for k, part in enumerate(parts)]
        told = make_plan(join_statistics([summaries], spec)).estimate
        assert told.sampled == 200 * 32
        factors.append(told.total / found)
        held += told.total_low <= found <= told.total_high
    assert np.mean(factors) == pytest.approx(1, abs=0.01)
    assert held == 6


def test_a_pandas_frame_is_one_chunk_that_is_estimated(frame):
    whole = frame[:200]  # so few rows are their own sample
    with dask.config.set({"simjoin.output-size": 100}):
        report = whole.simjoin.plan(EPS, return_distance=True, partitioning="spatial", blocksize=1000)
    assert (report.chunks, report.block_pairs, report.partitions) == (1, 1, 1)
    assert report.pairs == len(whole.simjoin.self_join(EPS))
    assert report.result_bytes == 24 * report.pairs
    assert "4.69 kiB a chunk (the whole frame, as it is in memory)" in str(report)
    report = frame.simjoin.plan(EPS)
    assert report.pairs_low < len(frame.simjoin.self_join(EPS)) < report.pairs_high


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
    assert f"{size} to {size}" in str(report)
    assert report.result_bytes == 16 * size
    ElementTree.fromstring(report._repr_html_())


# --- text and pictures -----------------------------------------------------------------------------


def line(report, name):
    """The text of one line of a report."""
    (found,) = [text for text in str(report).splitlines() if text.startswith(f"  {name}  ")]
    return found.removeprefix(f"  {name}").strip()


def test_the_text_names_the_numbers(ddf):
    report = ddf.simjoin.plan(EPS, **KINDS["entity"])
    assert repr(report) == str(report)
    assert 12 <= len(str(report).splitlines()) <= 21
    assert max(map(len, str(report).splitlines())) <= 100
    assert line(report, "rows") == "900"
    assert line(report, "dimensions") == "2: 'c0', 'c1', all numeric columns"
    grid = report.plan.layout.grid
    assert line(report, "engine") == f"sweep along 'c{grid.sweep}' in cells of 'c{grid.dims[0]}'"
    assert line(report, "partitioning").startswith("entity")
    assert line(report, "chunks") == "10 (21.09 kiB)"
    assert line(report, "largest chunk") == "90 rows, 2.11 kiB"
    assert line(report, "block pairs") == "55 of 55 possible"
    assert line(report, "skipped").startswith("0, ")
    assert line(report, "sampled").startswith("900 rows")
    assert "16 bytes a pair" in line(report, "result")
    assert line(report, "partitions").startswith(f"{report.partitions:,}, ")
    assert line(report, "memory").startswith("10.55 kiB")
    assert line(report, "budget") == "2.34 kiB a chunk (blocksize='2.34 kiB')"
    assert f"{format_bytes(report.plan.budget.result)} the result" in str(report)


def test_the_text_of_spatial_chunks_and_tiles(ddf):
    report = ddf.simjoin.plan(EPS, method="tiles", **KINDS["spatial"])
    chunks = report.plan.chunks
    halo = 100 * chunks.halo_rows.sum() / chunks.own_rows.sum()
    assert f"spatial: {len(chunks.regions)} regions, {halo:.3g} %" in line(report, "partitioning")
    assert line(report, "engine").startswith("tiles, in order of 'c")
    possible = report.chunks * (report.chunks + 1) // 2
    assert line(report, "block pairs") == f"{report.block_pairs} of {possible:,} possible"
    assert line(report, "skipped").startswith(f"{possible - report.block_pairs:,}, ")


def test_many_columns_are_cut_short():
    report = frame_of(np.zeros((3, 200))).simjoin.plan(1.0)
    assert (
        line(report, "dimensions")
        == "200: 'c0', 'c1', 'c2', 'c3', 'c4', 'c5' and 194 more, all numeric columns"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["tasks", "disk"])
def test_the_number_of_tasks_is_about_that_of_the_graph(ddf, kind, method):
    with dask.config.set({"dataframe.shuffle.method": method}):
        told = int(
            line(ddf.simjoin.plan(EPS, **KINDS[kind]), "tasks").removeprefix("about ").replace(",", "")
        )
        graph = dict(ddf.simjoin.self_join(EPS, **KINDS[kind]).optimize().__dask_graph__())
    assert told / 2 <= len(graph) <= 2 * told + 3 * ddf.npartitions  # reading is not counted


def test_a_notebook_shows_a_table_and_a_picture():
    name = '<b> & "x"'
    ddf = dd.from_pandas(pd.DataFrame({name: [0.0, 1.0]}), npartitions=2)
    report = ddf.simjoin.plan(1.0, partitioning="entity", blocksize=16)
    root = ElementTree.fromstring(report._repr_html_())
    cells = ["".join(cell.itertext()) for cell in root.iter("td")]
    assert f"1: {name!r}, all numeric columns" in cells
    assert len(cells) == len(str(report).splitlines()) - 1
    assert root.find("{http://www.w3.org/2000/svg}svg") is not None


@pytest.mark.parametrize(("kind", "rows"), [("entity", 3), ("spatial", 4)])
def test_the_picture_of_many_chunks_is_small(ddf, kind, rows):
    report = ddf.simjoin.plan(EPS, partitioning=kind, blocksize=rows * ROW)
    assert report.chunks > 100
    if kind == "entity":
        assert report.chunks >= 300
        assert report.block_pairs > 10_000
    picture = report.svg()
    assert len(picture) < 100_000
    assert len(report._repr_html_()) < 200_000
    root = ElementTree.fromstring(picture)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    together = -(-report.chunks // CELLS)
    assert "".join(root.itertext()).count(f"({together} to a cell)") == 2


def drawn(picture):
    """The cells of a picture: (row, column)."""
    paths = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}path")
    starts = [cell.split("h")[0] for path in paths for cell in path.get("d").split("M")[1:]]
    return sorted((int(y), int(x)) for x, y in (start.split() for start in starts))


def test_the_picture_shows_which_chunks_meet(ddf, chosen):
    report = ddf.simjoin.plan(EPS, **chosen)
    assert report.chunks <= CELLS
    assert drawn(report.svg()) == sorted(map(tuple, report.plan.blocks.tolist()))


def test_more_pairs_are_darker():
    frame = pd.DataFrame({"x": [0.0, 10.0, 20.0, 20.0, 20.0, 20.0, 40.0, 40.0]})
    report = dd.from_pandas(frame, npartitions=4).simjoin.plan(1.0, partitioning="entity", blocksize=32)
    assert report.to_frame().groupby("query_chunk")["pairs"].sum().tolist() == [0, 5, 1, 1]
    svg = ElementTree.fromstring(report.svg())
    shades = {
        path.get("d"): sum(bytes.fromhex(path.get("fill")[1:]))
        for path in svg.iter("{http://www.w3.org/2000/svg}path")
    }
    assert len(shades) >= 3
    (none,) = [shade for cells, shade in shades.items() if cells.startswith("M0 0")]
    assert none == max(shades.values())
    assert "0.4 ... 4 (log scale)" in "".join(svg.itertext())


def test_no_picture_of_one_chunk(frame):
    report = frame.simjoin.plan(EPS)
    assert report.chunks == 1
    assert "<svg" not in report._repr_html_()
    assert drawn(report.svg()) == [(0, 0)]


def shades_of(report):
    """The shapes of both pictures' cells, and which are drawn."""
    ax = pytest.importorskip("matplotlib.figure").Figure().add_subplot()
    (image,) = report.plot(ax).images
    shown = np.ma.getdata(image.get_array())
    return shown.shape, np.argwhere(~np.ma.getmaskarray(image.get_array())).tolist(), image.get_extent()


@pytest.mark.parametrize("k", [None, 2])
def test_pictures_of_two_tables_have_a_side_for_each(k):
    x = np.sort(np.random.default_rng(0).uniform(size=3000))
    left = dd.from_pandas(pd.DataFrame({"x": x}), npartitions=60)
    right = dd.from_pandas(pd.DataFrame({"x": x[::10]}), npartitions=6)
    options = {"eps": 0.001} if k is None else {"k": k}
    report = left.simjoin.plan(other=right, partitioning="entity", blocksize=50 * 16, **options)
    blocks = report.to_frame()
    sides = blocks["query_chunk"].max() + 1, blocks["data_chunk"].max() + 1
    assert sides == ((60, 6) if k is None else (len(report.plan.chunks.left), 6))
    together = -(-sides[0] // CELLS)
    cells = {
        (int(q) // together, int(d)) for q, d in zip(blocks["query_chunk"], blocks["data_chunk"], strict=True)
    }
    assert drawn(report.svg()) == sorted(cells)
    shape, met, extent = shades_of(report)
    assert shape == (-(-sides[0] // together), 6)
    assert met == sorted(map(list, cells))
    assert tuple(extent[:2]) == (-0.5, 5.5)
    text = "".join(ElementTree.fromstring(report.svg()).itertext())
    assert "data chunk 0 ... 5" in text
    assert ("pairs of a cell" if k is None else "candidates of a cell") in text


def test_few_and_many_pairs_differ_in_colour():
    """Though all are many: a scale from 0 would give all of them one colour."""
    x = np.repeat(np.arange(4) * 100.0, [100, 200, 300, 400]) + np.random.default_rng(0).uniform(size=1000)
    report = dd.from_pandas(pd.DataFrame({"x": x}), npartitions=10).simjoin.plan(
        2.0, partitioning="entity", blocksize=100 * 16
    )
    paths = ElementTree.fromstring(report.svg()).iter("{http://www.w3.org/2000/svg}path")
    pairs = report.to_frame()["pairs"]
    assert pairs.min() > 1000
    assert pairs.max() / pairs.min() > 2
    assert len(list(paths)) >= 2


def test_plans_of_places_name_their_columns_and_the_unit(frame):
    places = 50 * frame.rename(columns={"c0": "lat", "c1": "lon"})
    report = dd.from_pandas(places, npartitions=2).simjoin.plan(
        500.0, on=["lat", "lon"], metric="haversine", partitioning="spatial"
    )
    assert line(report, "dimensions") == "2: 'lat', 'lon', as points 'x', 'y', 'z' of a sphere"
    assert "eps=500.0 m" in str(report).splitlines()[0]
    assert line(report, "partitioning").startswith("spatial: 1 region, ")
    assert " m" not in str(frame.simjoin.plan(EPS)).splitlines()[0]


def test_plans_of_lists_are_told_in_words():
    lists = pd.DataFrame({"embedding": list(np.random.default_rng(0).normal(size=(50, 40)))})
    report = lists.simjoin.plan(0.5, on="embedding", metric="cosine")
    assert line(report, "dimensions") == "40, the numbers of each list in 'embedding'"
    assert line(report, "engine") == "tiles, in order of the 16 numbers that vary most"


def test_many_tasks_are_told_with_a_remedy(ddf):
    assert describe_tasks(10_000, 1 << 20) == "about 10,000"
    assert describe_tasks(73_214, 200_000) == (
        "about 73,214: many, 146 s of Dask's own work; fewer with a larger blocksize= than 195.31 kiB, "
        "or larger partitions"
    )
    report = ddf.simjoin.plan(k=1, blocksize=8 * ROW)
    assert "larger blocksize= than 192 B" in line(report, "tasks")
    assert report.to_frame()["candidates"].sum() > report.pairs


def test_the_picture_by_matplotlib(ddf, chosen):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    report = ddf.simjoin.plan(EPS, **chosen)
    ax = report.plot()
    (image,) = ax.images
    assert not ax.lines
    assert image.get_array().count() == report.block_pairs
    assert ax.get_xlabel() == "data chunk"
    figure = matplotlib.figure.Figure()
    mine = figure.add_subplot()
    assert report.plot(mine) is mine
    assert len(mine.images) == 1
    matplotlib.pyplot.close(ax.figure)


WITHOUT = """
import sys
sys.modules["matplotlib"] = None
import pandas as pd
import dask_simjoin
report = pd.DataFrame({"x": [0.0]}).simjoin.plan(1.0)
report._repr_html_()
try:
    report.plot()
except ImportError as error:
    print(error)
"""


def test_without_matplotlib_the_remedy_is_named():
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert "pip install matplotlib" in done.stdout, done.stderr


# --- when it computes, and what it refuses ---------------------------------------------------------


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
    assert len(read) == 9
    assert report.pairs_low < found < report.pairs_high


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
    with pytest.raises(CoordinateError, match="'c0' has 1 infinite"):
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
    assert dask.utils.format_bytes(16 * least)[:2] in said  # the need,
    assert "the limit is 0.98 kiB" in said
    assert "smaller eps" in said and "count_pairs()" in said and "simjoin.result-limit" in said


def test_chunks_beyond_the_memory_of_a_worker_are_refused():
    frame = frame_of(np.random.default_rng(0).uniform(size=(50_000, 1)))
    spec = SelfJoin(eps=1e-6).spec(frame)
    summaries = [summarise(frame, 0, spec, True, 1)]
    with pytest.raises(BudgetError) as caught:
        make_plan(join_statistics([summaries], spec), resources=Resources(memory=10**6))
    said = str(caught.value)
    assert "50,000 rows of 16 bytes" in said
    assert "needs about 3.81 MiB" in said and "has 0.95 MiB" in said and "blocksize='81.38 kiB'" in said
    spec = SelfJoin(eps=1e-6, blocksize="81.38 kiB", partitioning="entity").spec(frame)
    report = PlanReport(
        make_plan(join_statistics([summaries], spec), resources=Resources(memory=10**6)), spec
    )
    assert report.chunks == 10


def test_it_is_a_function_of_the_package():
    report = dask_simjoin.plan(pd.DataFrame({"x": [0.0, 1.0]}), 1.0)
    assert (report.rows, report.pairs) == (2, 1)


def test_workers_too_small_to_shuffle_between():
    x = np.random.default_rng(0).uniform(size=(1000, 2))
    frame = pd.DataFrame(x, columns=["x", "y"])
    spec = SelfJoin(eps=0.01, partitioning="spatial", blocksize=200 * 24).spec(frame)
    summaries = [summarise(frame, 0, spec, True, 1)]
    small = Resources(2, 2**27, True, 500_000_000)
    with pytest.raises(BudgetError, match=r"between workers of 476.84 MiB, and at least 640.00 MiB .*entity"):
        make_plan(join_statistics([summaries], spec), PAIRS, small, "p2p")
    assert len(make_plan(join_statistics([summaries], spec), PAIRS, small, "tasks").chunks) > 1


def test_time_has_what_is_spilled_and_names_what_is_written():
    x = np.random.default_rng(0).uniform(size=(2000, 2))
    frame = pd.DataFrame(x, columns=["x", "y"])
    spec = SelfJoin(eps=0.01, partitioning="entity", blocksize=200 * 24).spec(frame)
    tables = join_statistics([[summarise(frame, 0, spec, True, 1)]], spec)
    few, many = (
        PlanReport(make_plan(tables, PAIRS, Resources(2, 2**20, True, limit, workers=2)), spec)
        for limit in (2**20, 2**40)
    )
    assert few.spilled_bytes == 0 < many.spilled_bytes
    assert many.seconds == pytest.approx(few.seconds + many.plan.disk.spilling)
    assert few.writing_seconds == many.writing_seconds > 0
    assert "spill" not in repr(few)
    slow = replace(many.plan, disk=replace(many.plan.disk, spilling=2.0, writing=3.0))
    told = repr(replace(many, plan=slow))
    assert " 2 s of it to spill " in told and " 3 s more to write the pairs as parquet" in told
