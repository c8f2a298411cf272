"""Ctrl-C ends joins of long texts and of many sets of plain frames."""

import signal
import threading

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.sets.cpu import joiner
from tests.support.gates import PATIENCE, until

letters = np.random.default_rng(0).integers(97, 105, (40, 30)).astype(np.uint8)
FRAME = pd.DataFrame(
    {
        "text": [bytes(row).decode() for row in letters],
        "set": [np.unique(row) for row in letters],
    }
)
VERBS = {
    "edit_self_join": lambda: FRAME.simjoin.edit_self_join("text", k=25),
    "edit_neighbor_counts": lambda: FRAME.simjoin.edit_neighbor_counts("text", k=25),
    "set_self_join": lambda: FRAME.simjoin.set_self_join("set", threshold=0.5),
    "bitmap": lambda: FRAME.simjoin.count_set_pairs(
        "set", threshold=0.5, method="bitmap"
    ),
    "lists": lambda: FRAME.simjoin.set_neighbor_counts(
        "set", threshold=0.5, method="allpairs"
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_ctrl_c_stops_a_kernel_that_runs_long(verb, monkeypatch):
    expected = VERBS[verb]()
    monkeypatch.setattr(joiner, "QUICK", -1)
    assert str(VERBS[verb]()) == str(expected)

    ended, find, main = [], joiner.BlockSearch._stop, threading.main_thread().ident
    stopped = threading.Event()

    def stop(search):
        find(search)
        stopped.set()

    monkeypatch.setattr(joiner.BlockSearch, "_stop", stop)
    for kind in {type(search) for search in searches(verb, monkeypatch)}:
        real = kind._find

        def interrupted(search, out, real=real):
            signal.pthread_kill(main, signal.SIGINT)
            assert stopped.wait(PATIENCE)
            search.tally[:] = 0
            real(search, out)
            ended.append(int(search.tally.sum()))

        monkeypatch.setattr(kind, "_find", interrupted)
    with pytest.raises(KeyboardInterrupt):
        VERBS[verb]()
    until(lambda: ended, "the kernel still runs")
    assert ended == [0]


def searches(verb, monkeypatch):
    """The searches that a verb runs."""
    found, run = [], joiner.BlockSearch.run
    with monkeypatch.context() as patch:
        patch.setattr(
            joiner.BlockSearch,
            "run",
            lambda search, out: found.append(search) or run(search, out),
        )
        VERBS[verb]()
    return found
