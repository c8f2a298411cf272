"""Tasks that give lists, and tasks that take items of them."""

import dask
import pytest

from dask_simjoin.graph.steps import LISTS, Steps


@pytest.mark.parametrize("threads", [1, 3])
def test_items_are_taken_before_many_lists_are_made(threads):
    """On a cluster of little memory lists would be written to disk, and read again for each item."""
    steps = Steps("test", "token")
    lists, items = 20, 5
    calls = [(n, list, (f"{n:05}",)) for n in range(lists)]
    found = steps.spread("list", "item", calls, range(items), threads)
    values, left, most = {}, dict.fromkeys(range(lists), 0), 0
    todo = dict(steps.layer)
    while todo:
        ready = [key for key, task in todo.items() if task.dependencies <= values.keys()]
        # whatever comes first, lists are made as soon as they may be
        key = min(ready, key=lambda key: ("list-" not in key[0], "items-" in key[0], str(key)))
        values[key] = todo.pop(key)(values)
        if "list-" in key[0]:
            left[key[1]] = items
        elif "item-" in key[0]:
            left[key[1][0]] -= 1
        most = max(most, sum(map(bool, left.values())))
    assert not any(left.values()) and most == LISTS * threads
    assert [[values[some[n].key] for n in range(items)] for some in found] == [
        list(f"{n:05}") for n in range(lists)
    ]


def test_without_a_cluster_items_are_taken_where_they_are_needed():
    steps = Steps("test", "token")
    found = steps.spread("list", "item", [(n, list, ("abc",)) for n in range(3)], [0, 2], None)
    assert len(steps.layer) == 3 and [sorted(some) for some in found] == [[0, 2]] * 3
    values = dask.get(steps.layer, list(steps.layer))
    made = dict(zip(steps.layer, values, strict=True))
    assert [some[2](made) for some in found] == ["c"] * 3
