"""What Dask does not document is there, and divisions hold no lock that others wait for."""

import sys
import threading

import dask.dataframe as dd
import pandas as pd
import pytest

from dask_simjoin.graph import dask_private


def test_all_that_is_used_is_there():
    assert sorted(dask_private.__all__) == sorted(set(dask_private.__all__))
    for module in dask_private.MOVES_FILTERS:
        assert callable(module.is_filter_pushdown_available)
    for kind in dask_private.TAKES_ENDS:
        assert issubclass(kind, dask_private.Expr) and "_simplify_down" in vars(kind)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there is no such lock since Python 3.12")
def test_divisions_that_compute_hold_up_no_others(monkeypatch):
    """One frame's divisions are asked for by another thread while those of this one are found."""
    other = dd.from_pandas(pd.DataFrame({"x": range(6)}), npartitions=2).expr
    done = threading.Event()

    class Slow(type(other)):
        def _divisions(self):
            thread = threading.Thread(target=lambda: (other.divisions, done.set()))
            thread.start()
            assert done.wait(10)
            thread.join()
            return super()._divisions()

    slow = dd.from_pandas(pd.DataFrame({"x": range(3)}), npartitions=1).expr
    own = Slow(*slow.operands)
    assert own.divisions == slow.divisions
