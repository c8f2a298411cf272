"""Tables and charts show the fastest other tool of each row, whatever its name."""

import copy
import json
import re

import pytest

from benchmarks.cpu import front as cpu_front
from benchmarks.gpu import front as gpu_front
from benchmarks.harness import front
from benchmarks.tables import MARKED as TABLE
from benchmarks.tables import PAGES, RESULTS, TABLES, charts, comparisons, written
from tests.support.paths import ROOT

NEW, FAST = "newtool", 1e-7

WITH_PEERS = {
    "overview",
    "headlines",
    "joins",
    "columns",
    "two-tables",
    "nearest",
    "places",
    "clusters",
    "hdbscan",
    "dense-clusters",
    "gpu-joins",
    "gpu-clusters",
}
"""Tables that compare with a peer."""

MARKED = [
    (match["name"], tuple(match["files"].split()))
    for page in PAGES
    for match in TABLE.finditer(page.read_text())
    if match["name"] in WITH_PEERS
]
CHARTS = [
    (name, tuple(files.split()))
    for page in PAGES
    for name, files in charts.MARKED.findall(page.read_text())
]


def read(name):
    """A result of a file."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def with_a_faster_tool(run):
    """The same result, with a tool that is faster than all others in each row."""
    run = copy.deepcopy(run)
    took = {"median": FAST, "seconds": [FAST], "cpu_seconds": FAST}
    if "sets" in run:
        for found in run["sets"].values():
            for one in found["thresholds"].values():
                one["seconds"][NEW] = FAST
    elif "jobs" in run:
        for found in run["jobs"].values():
            found[NEW] = took
    elif "batches" in run:
        for row in run["batches"]:
            row["anew"]["dask"]["cpu"] = FAST
    elif "one_gpu" in run:
        for found in run["one_gpu"]:
            found[NEW] = {"clock": took}
    elif "results" in run:
        for found in run["results"]:
            found[NEW] = took
    elif "runs" in run:
        run["options"]["peers"].append(NEW)
        for found in run["runs"]:
            found["seconds"][NEW] = {"seconds": [FAST]}
    else:
        rows = run["rows"].values() if isinstance(run["rows"], dict) else run["rows"]
        for found in rows:
            found["tools" if "tools" in found else "peers"][NEW] = dict(took)
    return run


@pytest.mark.parametrize(("name", "files"), MARKED, ids=lambda one: str(one)[:60])
def test_a_faster_tool_is_shown_in_each_row(name, files):
    runs = [read(file) for file in files]
    before, after = (
        TABLES[name](*some) for some in (runs, map(with_a_faster_tool, runs))
    )
    columns = [NEW in cell for cell in after[0]]
    for old, new in zip(before[1:], after[1:], strict=True):
        # rows without any peer have no ratio, and a new column shows the new tool
        assert any(NEW in cell for cell in new) or any(columns), (old, new)


@pytest.mark.parametrize(("name", "files"), CHARTS, ids=lambda one: str(one)[:60])
def test_charts_show_the_fastest_tool(name, files):
    runs = [read(file) for file in files]
    found = charts.CHARTS[name](*runs)
    assert found and all(one.theirs == min(one.peers.values()) for one in found)
    after = charts.CHARTS[name](*map(with_a_faster_tool, runs))
    assert all(one.theirs == FAST for one in after)


def test_no_tool_of_a_file_is_faster_than_the_one_of_the_overview():
    """Read from the files in another way than the tables do."""
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    [files] = re.findall(r"<!-- table: overview ([^>]*) -->", page)
    own = {"engine", "pandas", "dask", "ours", "ours-verb", "cuDF", "Dask", "kernels"}
    least = {}
    for run in map(read, files.split()):
        if not isinstance(run.get("rows"), dict) or "k" in run:
            continue
        for found in run["rows"].values():
            tools = found.get("tools", found.get("peers", {}))
            took = {
                tool: one["median"]
                for tool, one in tools.items()
                if tool not in own and "median" in one
            }
            size = found.get("n", found.get("left", found.get("data")))
            key = size, found.get("dims"), found.get("eps"), found.get("what")
            # a tool of two runs: the run that is named first, as ours
            least[key] = took | least.get(key, {})
    shown = {one.theirs for one in comparisons.merged(map(read, files.split()))}
    assert {min(took.values()) for took in least.values() if took} <= shown


def test_pages_show_their_results():
    for page in PAGES:
        text = page.read_text()
        assert written(text) == text, page


def test_a_peer_of_another_file_is_combined():
    run = {"environment": {}, "rows": {}}
    row = {"what": "self-join", "data": "x", "tools": {"pandas": {"median": 2.0}}}
    slow = {"a": {"median": 9.0}}
    fast = {"b": {"median": 1.0}, "pandas": {"median": 7.0}}
    runs = [
        run | {"rows": {"x": row | {"tools": row["tools"] | slow}}},
        run | {"rows": {"x": row | {"tools": fast}}},
    ]
    [one] = comparisons.merged(runs)
    assert (one.peer, one.theirs, one.own) == ("b", 1.0, {"frame": 2.0})
    assert one.ratio() == 0.5 and one.ratio("Dask") is None
    alone = run | {"rows": {"x": row}}
    [other] = comparisons.merged([alone, runs[1]])
    assert other.own == {"frame": 2.0} and comparisons.merged([alone]) == []
    [_, cells] = comparisons.overview(*runs)
    assert cells[-3:] == ["0.5x", "", ""]


@pytest.mark.slow
def test_the_front_measures_all_tools_in_turns():
    clock = iter(range(1000))
    calls = {
        "pandas": front.Call("verb", {"": lambda given: [given]}),
        "peer": front.Call(
            "peer", {"slow": lambda given: [1], "fast": lambda given: [1]}
        ),
        "broken": front.Call("peer", {"": lambda given: 1 / 0}),
        "too slow": front.Call("peer", {"": lambda given: [1]}, grows=1e9),
    }
    row = front.Row("self-join", "points", lambda part: calls, {"other": "minutes"})
    found = front.measure(row, 3, clock=lambda: next(clock))
    tools = found["tools"]
    assert len(tools["pandas"]["seconds"]) == 3 and tools["pandas"]["median"] == 1
    assert "ZeroDivisionError" in tools["broken"]["failed"]
    assert "more than" in tools["too slow"]["skipped"]
    assert tools["other"] == {"kind": "peer", "skipped": "minutes"}
    assert front.wrong("row", found) == []
    tools["peer"]["found"] = 5
    assert "numbers differ" in front.wrong("row", found)[0]


def test_rows_of_the_front_have_the_names_of_the_overview():
    """So that the overview and the start page show them."""
    names = {(row.data, row.what) for row in cpu_front.FRONT.values()}
    lib = gpu_front.Library("pandas", dask=False)
    names |= {(row(lib).data, row(lib).what) for row in gpu_front.FRONT.values()}
    # old results have other points
    old = {
        ("uniform 2-D, 1M rows, 10 neighbors", "DBSCAN"),
        ("234,908 places, within 1 km", "self-join, haversine"),
        ("88,162 baskets", "set join, Jaccard 0.5, counted"),
    }
    assert (comparisons.OVERVIEW | set(comparisons.HEADLINES)) - old <= names


@pytest.mark.slow
def test_the_front_runs(monkeypatch):
    """The programs of a few rows, on few points, with what is installed."""
    monkeypatch.setattr(cpu_front.joins, "installed", lambda names: [])
    found = front.measure(cpu_front.FRONT["self-join 2-D"], 1, part=1000)
    own = {name: one["found"] for name, one in found["tools"].items() if "found" in one}
    assert own.keys() == {"pandas", "Dask", "engine"} and len(set(own.values())) == 1
