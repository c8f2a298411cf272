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


class Slow(dask_private.FromPandas):
    """A frame whose divisions wait for those of another one, found by another thread."""

    done = threading.Event()

    def _divisions(self):
        other = dd.from_pandas(pd.DataFrame({"x": range(6)}), npartitions=2).expr
        threading.Thread(target=lambda: (other.divisions, self.done.set()), daemon=True).start()
        assert self.done.wait(10)
        return super()._divisions()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there is no such lock since Python 3.12")
def test_divisions_that_compute_hold_up_no_others():
    plain = dd.from_pandas(pd.DataFrame({"x": range(3)}), npartitions=1).expr
    assert Slow(*plain.operands).divisions == plain.divisions
