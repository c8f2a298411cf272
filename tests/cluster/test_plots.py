"""Plots of clusterings."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cluster import condensed_tree, plots
from dask_simjoin.cluster.plots import (
    plot_condensed_tree,
    plot_k_distances,
    plot_reachability,
)
from dask_simjoin.errors import ColumnError
from tests.support.points import frame_of

matplotlib = pytest.importorskip("matplotlib")
pyplot = pytest.importorskip("matplotlib.pyplot")
matplotlib.use("Agg")


@pytest.fixture
def ax():
    return pyplot.Figure().add_subplot()


def test_k_distances(ax):
    distances = pd.Series([0.5, 3.0, np.inf, 1.0, 2.0], name="k_distance")
    for one in (distances, dd.from_pandas(distances, npartitions=2)):
        ax.clear()
        assert plot_k_distances(one, ax) is ax
        (line,) = ax.lines
        assert line.get_ydata().tolist() == [3.0, 2.0, 1.0, 0.5]
        assert line.get_xdata()[[0, -1]].tolist() == [0, 100]
        assert ax.get_ylabel() == "k_distance"


def test_reachability(ax):
    rng = np.random.default_rng(0)
    frame = frame_of(
        np.concatenate(
            [rng.normal(5 * k, 0.3, (60, 2)) for k in range(3)] + [[[20.0, 20.0]]]
        )
    )
    order = frame.simjoin.optics(6.0, 5)
    for one in (order, dd.from_pandas(order, npartitions=3)):
        ax.clear()
        plot_reachability(one, eps=1.0, ax=ax)
        bars = {
            tuple(c.get_colors()[0][:3]): len(c.get_segments()) for c in ax.collections
        }
        finite = np.isfinite(order.reachability)
        assert len(bars) == 3 and sum(bars.values()) == finite.sum() == len(frame) - 2
        heights = [s[1][1] for c in ax.collections for s in c.get_segments()]
        assert max(heights) == order.reachability[finite].max()
        assert ax.lines[0].get_ydata()[0] == 1.0
    assert len(plot_reachability(order, ax=ax).get_title()) > 0
    with pytest.raises(ColumnError, match="no column 'ordering'"):
        plot_reachability(frame)


def test_a_new_figure():
    ax = plot_k_distances(pd.Series([1.0, 2.0]))
    assert ax.get_ylabel() == "distance"
    pyplot.close(ax.figure)


def test_no_peak_is_lost(ax, monkeypatch):
    monkeypatch.setattr(plots, "BATCH", 20)
    rng = np.random.default_rng(0)
    frame = frame_of(
        np.concatenate([rng.normal(5 * k, 0.3, (300, 2)) for k in range(3)])
    )
    order = frame.simjoin.optics(10.0, 5)
    plot_reachability(order, eps=1.0, ax=ax)
    heights = [s[1][1] for c in ax.collections for s in c.get_segments()]
    assert (
        len(heights) <= 21
        and max(heights) == order.reachability[np.isfinite(order.reachability)].max()
    )


@pytest.mark.parametrize("log_size", [False, True])
def test_condensed_tree(ax, log_size):
    """Bars have each cluster's rows, and no two of one height touch; what is chosen is
    marked.
    """
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(5 * k, 0.3, (60, 2)) for k in range(3)])
    # the densest rows leave at no distance
    frame = frame_of(np.concatenate([x, x[:9]]))
    tree = condensed_tree(frame.simjoin.spanning_tree(min_samples=2), 20)
    for one in (tree, dd.from_pandas(tree, npartitions=3)):
        ax.clear()
        assert plot_condensed_tree(one, ax, log_size=log_size) is ax
        boxes = [bar.get_bbox() for bar in ax.containers[0]]
        widest = max(box.width for box in boxes)
        assert widest == pytest.approx(np.log(190) if log_size else 189)
        for n, a in enumerate(boxes):
            for b in boxes[:n]:
                apart = min(a.x1, b.x1) <= max(a.x0, b.x0) + 1e-9
                assert apart or min(a.y1, b.y1) <= max(a.y0, b.y0) + 1e-9
        labels = frame.simjoin.hdbscan(20, min_samples=2)["label"]
        assert len(ax.patches) - len(boxes) == labels.max() + 1 == 3
    ax.clear()
    plot_condensed_tree(tree, ax, select_clusters=False)
    assert len(ax.patches) == len(ax.containers[0])
    with pytest.raises(ColumnError, match="not a complete condensed tree"):
        plot_condensed_tree(tree.iloc[3:], ax)
