"""Filters stay above values of rows, and tasks take single items of lists."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import PlanningError
from dask_simjoin.graph import base
from dask_simjoin.graph.base import Steps
from dask_simjoin.graph.dask_private import (
    CHOICE_HOOK,
    END_CLASSES,
    FILTER_HOOK,
    FILTER_MODULES,
)
from dask_simjoin.sizes import HELD_PER_THREAD
from tests.support.profiles import every_nth

RIGHT = pd.DataFrame({"k": [0, 1], "z": [1.0, 2.0]})
PLAIN = {
    "two filters": lambda frame: frame[frame.x > 1][frame.k < 3],
    "of a filtered frame": lambda frame: (lambda some: some[some.x > some.x.mean()])(
        frame[frame.k > 0]
    ),
    "merge": lambda frame: (lambda both: both[(both.x > 1) & (both.z < 2)])(
        frame.merge(dd.from_pandas(RIGHT, npartitions=2), on="k")
    ),
    "shuffle": lambda frame: (lambda moved: moved[moved.x > 1][["x"]])(
        frame.shuffle("k")
    ),
    "set_index": lambda frame: (lambda moved: moved[moved.x > 1])(frame.set_index("k")),
    "sort_values": lambda frame: (lambda moved: moved[moved.x > 1].x)(
        frame.sort_values("k")
    ),
    "assign": lambda frame: (lambda more: more[more.y > 1])(
        frame.assign(y=frame.x + 1)
    ),
    "head": lambda frame: frame.sort_values("k").assign(y=1).head(3, compute=False),
    "head of an index": lambda frame: (frame.set_index("k") + 1).head(3, compute=False),
    "tail": lambda frame: (frame.set_index("k") + 1)[["x"]].tail(3, compute=False),
    "cumsum": lambda frame: frame[frame.x.cumsum() > 1][frame.k < 3],
}


@pytest.mark.parametrize("use", every_nth(4, PLAIN))
def test_plain_filters_move_as_without_this_package(use, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"x": rng.normal(size=40), "k": rng.integers(0, 4, 40)})
    dd.from_pandas(made, npartitions=4).to_parquet(tmp_path)

    def names():
        made = PLAIN[use](dd.read_parquet(tmp_path))
        simple = made.expr.simplify()
        return simple.tree_repr(), simple._name, made.optimize().expr._name

    guarded = names()
    for module in FILTER_MODULES:
        monkeypatch.setattr(
            module, FILTER_HOOK, getattr(module, FILTER_HOOK).__wrapped__
        )
    for kind in END_CLASSES:
        monkeypatch.setattr(kind, CHOICE_HOOK, getattr(kind, CHOICE_HOOK).__wrapped__)
    assert names() == guarded


def test_values_are_refused_where_no_guard_can_be(monkeypatch):
    monkeypatch.setattr(base, "GUARDED", False)
    lazy = dd.from_pandas(
        pd.DataFrame({"x": [0.0, 1.0]}), npartitions=1
    ).simjoin.neighbor_counts(1.0)
    with pytest.raises(PlanningError, match="older version of Dask"):
        lazy.compute()


@pytest.mark.parametrize("threads", [1, 3])
def test_items_are_taken_before_many_lists_are_made(threads):
    """On a cluster of little memory lists would be written to disk, and read again for
    each item.
    """
    steps = Steps("test", "token")
    lists, items = 20, 5
    calls = [(n, list, (f"{n:05}",)) for n in range(lists)]
    found = steps.spread("list", "item", calls, range(items), threads)
    values, left, most = {}, dict.fromkeys(range(lists), 0), 0
    todo = dict(steps.layer)
    while todo:
        ready = [
            key for key, task in todo.items() if task.dependencies <= values.keys()
        ]
        # whatever comes first, lists are made as soon as they may be
        key = min(
            ready, key=lambda key: ("list-" not in key[0], "items-" in key[0], str(key))
        )
        values[key] = todo.pop(key)(values)
        if "list-" in key[0]:
            left[key[1]] = items
        elif "item-" in key[0]:
            left[key[1][0]] -= 1
        most = max(most, sum(map(bool, left.values())))
    assert not any(left.values()) and most == HELD_PER_THREAD * threads
    assert [[values[some[n].key] for n in range(items)] for some in found] == [
        list(f"{n:05}") for n in range(lists)
    ]


def test_without_a_cluster_items_are_taken_where_they_are_needed():
    steps = Steps("test", "token")
    found = steps.spread(
        "list", "item", [(n, list, ("abc",)) for n in range(3)], [0, 2], None
    )
    assert len(steps.layer) == 3 and [sorted(some) for some in found] == [[0, 2]] * 3
    values = dask.get(steps.layer, list(steps.layer))
    made = dict(zip(steps.layer, values, strict=True))
    assert [some[2](made) for some in found] == ["c"] * 3


@pytest.mark.parametrize("fan_in", [2, 3, 16])
@pytest.mark.parametrize("number", [1, 2, 3, 16, 17, 40, 300])
def test_values_are_merged_once(number, fan_in):
    steps = Steps("test", "token")
    trees = [
        steps.merged(
            "sum",
            lambda *some: sum(some),
            [steps.add("one", (tree, n), int, n + tree) for n in range(number)],
            fan_in=fan_in,
            place=(tree,),
        )
        for tree in range(2)
    ]
    assert all(len(task.args) <= fan_in for task in steps.layer.values())
    found = dask.get(steps.layer, [tree.key for tree in trees])
    assert list(found) == [sum(range(number)), sum(range(number)) + number]
