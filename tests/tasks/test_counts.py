"""Forests of edges between numbers, with a node for each number and without."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.base import host_joiner
from dask_simjoin.tasks import counts
from dask_simjoin.tasks.counts import CHUNK, spanning_forest
from tests.support.profiles import examples

NUMBER = st.tuples(st.integers(0, 3), st.integers(0, 12)).map(
    lambda one: one[0] * CHUNK + one[1]
)


def forest_of(edges):
    """From each number but the smallest of its component, an edge to that, by the
    definition.
    """
    groups = []
    for edge in edges:
        touched = [group for group in groups if group & set(edge)]
        groups = [group for group in groups if group not in touched] + [
            set(edge).union(*touched)
        ]
    return sorted(
        (number, min(group))
        for group in groups
        for number in group
        if number != min(group)
    )


@settings(max_examples=examples(100))
@given(
    st.lists(st.lists(st.tuples(NUMBER, NUMBER), max_size=20), min_size=1, max_size=3)
)
def test_forests_are_the_same_with_and_without_a_node_for_each_number(parts):
    sides = [tuple(np.array(part, np.int64).reshape(-1, 2).T) for part in parts]
    want = forest_of([edge for part in parts for edge in part])
    for nodes in (0, counts.FEW, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(counts, "FEW", nodes)
            found = spanning_forest(sides, host_joiner())
        assert list(zip(*(side.tolist() for side in found), strict=True)) == want
        assert all(side.dtype == np.int64 for side in found)


def test_few_numbers_far_apart_need_no_node_for_each():
    far = np.array([5, CHUNK * 1000 + 7, CHUNK * 1000 + 2**31])
    found = spanning_forest([(far[1:], far[:-1])], host_joiner())
    assert found[0].tolist() == far[1:].tolist() and found[1].tolist() == [5, 5]


def nodes_of(edges, monkeypatch):
    """How many nodes there were, and what was found."""
    nodes, plain = [], counts.component_roots

    def roots(number, *more):
        nodes.append(number)
        return plain(number, *more)

    monkeypatch.setattr(counts, "component_roots", roots)
    found = spanning_forest([tuple(np.array(edges, np.int64).T)], host_joiner())
    monkeypatch.undo()
    return nodes, list(zip(*(side.tolist() for side in found), strict=True))


def test_numbers_that_lie_close_are_not_sorted(monkeypatch):
    """Each number up to the last one of its chunk is a node; only where that is too
    many are they sorted.
    """
    close = [(0, 2), (2, 5), (CHUNK + 1, CHUNK + 3)]
    assert nodes_of(close, monkeypatch) == ([6 + 4], forest_of(close))
    far = [(0, 1000), (CHUNK + 1, CHUNK + 3)]
    assert nodes_of(far, monkeypatch) == ([4], forest_of(far))
    assert nodes_of([(-3, 1), (1, 2)], monkeypatch) == ([3], [(1, -3), (2, -3)])


@pytest.mark.parametrize("categories", [[3, 10, 200], [200, 3, 10]])
def test_components_of_categories_are_numbered_by_values(categories):
    """Partitions with other categories are combined in the order of the partitions."""
    dtype = pd.CategoricalDtype(categories)
    pairs = pd.DataFrame({"left": [200, 10], "right": [200, 3]}, dtype=dtype)
    found = counts.components_of_ids(pairs)
    assert found["id"].tolist() == [3, 10, 200]
    assert found["component"].tolist() == [0, 0, 1]
    assert found["id"].dtype == "category"
    ordered = pairs.astype(pd.CategoricalDtype(categories, ordered=True))
    assert counts.components_of_ids(ordered)["id"].tolist() == categories
