"""Pictures of reports."""

import os
import subprocess
import sys
from xml.etree import ElementTree

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.reports.svg import CELLS
from tests.support.paths import ROOT
from tests.support.plans import EPS, ROW


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
    assert "".join(root.itertext()).count(f"({together} per cell)") == 2


def drawn(picture):
    """The cells of a picture: (row, column)."""
    paths = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}path")
    starts = [
        cell.split("h")[0] for path in paths for cell in path.get("d").split("M")[1:]
    ]
    return sorted((int(y), int(x)) for x, y in (start.split() for start in starts))


def test_the_picture_shows_which_chunks_meet(ddf, chosen):
    report = ddf.simjoin.plan(EPS, **chosen)
    assert report.chunks <= CELLS
    assert drawn(report.svg()) == sorted(map(tuple, report.plan.work.blocks.tolist()))


def test_more_pairs_are_darker():
    frame = pd.DataFrame({"x": [0.0, 10.0, 20.0, 20.0, 20.0, 20.0, 40.0, 40.0]})
    report = dd.from_pandas(frame, npartitions=4).simjoin.plan(
        1.0, partitioning="entity", blocksize=32
    )
    assert report.to_frame().groupby("query_chunk")["pairs"].sum().tolist() == [
        0,
        5,
        1,
        1,
    ]
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
    return (
        shown.shape,
        np.argwhere(~np.ma.getmaskarray(image.get_array())).tolist(),
        image.get_extent(),
    )


@pytest.mark.parametrize("k", [None, 2])
def test_pictures_of_two_tables_have_a_side_for_each(k):
    x = np.sort(np.random.default_rng(0).uniform(size=3000))
    left = dd.from_pandas(pd.DataFrame({"x": x}), npartitions=60)
    right = dd.from_pandas(pd.DataFrame({"x": x[::10]}), npartitions=6)
    options = {"eps": 0.001} if k is None else {"k": k}
    report = left.simjoin.plan(
        other=right, partitioning="entity", blocksize=50 * 16, **options
    )
    blocks = report.to_frame()
    sides = blocks["query_chunk"].max() + 1, blocks["data_chunk"].max() + 1
    assert sides == ((60, 6) if k is None else (len(report.plan.chunks.left), 6))
    together = -(-sides[0] // CELLS)
    cells = {
        (int(q) // together, int(d))
        for q, d in zip(blocks["query_chunk"], blocks["data_chunk"], strict=True)
    }
    assert drawn(report.svg()) == sorted(cells)
    shape, met, extent = shades_of(report)
    assert shape == (-(-sides[0] // together), 6)
    assert met == sorted(map(list, cells))
    assert tuple(extent[:2]) == (-0.5, 5.5)
    text = "".join(ElementTree.fromstring(report.svg()).itertext())
    assert "data chunk 0 ... 5" in text
    assert ("pairs per cell" if k is None else "candidates per cell") in text


def test_few_and_many_pairs_differ_in_colour():
    """Though all are many: a scale from 0 would give all of them one colour."""
    x = np.repeat(np.arange(4) * 100.0, [100, 200, 300, 400]) + np.random.default_rng(
        0
    ).uniform(size=1000)
    report = dd.from_pandas(pd.DataFrame({"x": x}), npartitions=10).simjoin.plan(
        2.0, partitioning="entity", blocksize=100 * 16
    )
    paths = ElementTree.fromstring(report.svg()).iter(
        "{http://www.w3.org/2000/svg}path"
    )
    pairs = report.to_frame()["pairs"]
    assert pairs.min() > 1000
    assert pairs.max() / pairs.min() > 2
    assert len(list(paths)) >= 2


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


@pytest.mark.slow
def test_without_matplotlib_the_remedy_is_named():
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert "pip install matplotlib" in done.stdout, done.stderr
