"""What was told of two indexes is told again as long as they are those."""

import gc
import threading

import numpy as np

from dask_simjoin.engine.cpu.spanning import WeakPairCache
from tests.support.gates import PATIENCE
from tests.support.threads import started


def index():
    return {"order": np.arange(3)}


def test_it_is_asked_once_for_the_same_of_the_same():
    told, asked, q, d = WeakPairCache(), [], index(), index()

    def find(a, b, what):
        return told.find(a, b, what, lambda: asked.append(what) or len(asked))

    assert [
        find(q, d, "x"),
        find(q, d, "x"),
        find(d, q, "x"),
        find(q, d, "y"),
        find(q, d, "x"),
    ] == [
        1,
        1,
        2,
        3,
        1,
    ]
    assert asked == ["x", "x", "y"]


def test_nothing_is_kept_of_what_is_gone():
    told, q = WeakPairCache(), index()
    # memory of arrays that are gone is taken again, and numbers of objects with it
    for number in range(5):
        d = index()
        assert told.find(q, d, "x", lambda number=number: number) == number
    assert told.find(q, d, "x", lambda: "new") == 4
    del q, d
    gc.collect()
    assert not told._entries


def test_who_asks_meanwhile_waits():
    told, q = WeakPairCache(), index()
    begun, go_on = threading.Event(), threading.Event()

    def slowly():
        begun.set()
        go_on.wait(PATIENCE)
        return "first"

    calls = [started(told.find, q, q, "x", slowly)]
    assert begun.wait(PATIENCE)
    calls.append(started(told.find, q, q, "x", lambda: "second"))
    assert told.find(q, q, "y", lambda: "other") == "other", (
        "nobody waits for what is of no use to it"
    )
    go_on.set()
    assert [call.result(PATIENCE) for call in calls] == ["first", "first"]
