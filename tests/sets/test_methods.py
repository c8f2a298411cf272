"""Options of the methods of set joins, and refused values."""

import pytest

from dask_simjoin.errors import OptionError
from dask_simjoin.sets.methods import METHODS, Bitmap, PPJoin


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"verify": "a"}, r"PPJoin\(verify='a'\) is not allowed; use one of 'auto', .*'C'\."),
        ({"block": 48}, r"PPJoin\(block=48\) is not allowed; use one of 32, 64, "),
        ({"block": 64.0}, r"PPJoin\(block=64.0\) is not"),
        ({"words": 3}, r"PPJoin\(words=3\) is not allowed; use one of None, 1, 2, "),
        ({"chunk_bytes": 0}, r"PPJoin\(chunk_bytes=0\) is not allowed; use a whole number above 0, or None"),
        ({"chunk_bytes": True}, r"PPJoin\(chunk_bytes=True\) is not"),
        ({"filter": "host"}, r"PPJoin\(filter='host'\) is not allowed; use one of 'gpu', 'cpu'\."),
    ],
)
def test_values_that_are_not_allowed(options, allowed):
    with pytest.raises(OptionError, match=allowed):
        PPJoin(**options)


def test_names_stand_for_default_options():
    assert METHODS["bitmap"] == Bitmap() != Bitmap(words=4)
    assert METHODS["ppjoin"] == PPJoin(filter="gpu", chunk_bytes=None)
