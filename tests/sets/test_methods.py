"""Options of the methods of set joins, and refused values."""

import pytest

from dask_simjoin.errors import OptionError
from dask_simjoin.sets.methods import METHODS, AllPairs, Bitmap, GroupJoin, PPJoin


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        (
            {"verify": "a"},
            r"PPJoin\(verify='a'\) is not allowed; use one of 'auto', .*'C'\.",
        ),
        ({"block": 48}, r"PPJoin\(block=48\) is not allowed; use one of 32, 64, "),
        ({"block": 64.0}, r"PPJoin\(block=64.0\) is not"),
        ({"words": 3}, r"PPJoin\(words=3\) is not allowed; use one of None, 0, 1, 2, "),
        ({"words": False}, r"PPJoin\(words=False\) is not"),
        (
            {"chunk_bytes": 0},
            r"PPJoin\(chunk_bytes=0\) is not allowed; use a whole number above 0, or None",
        ),
        ({"chunk_bytes": True}, r"PPJoin\(chunk_bytes=True\) is not"),
        (
            {"filter": "host"},
            r"PPJoin\(filter='host'\) is not allowed; use one of 'gpu', 'cpu'\.",
        ),
    ],
)
def test_values_that_are_not_allowed(options, allowed):
    with pytest.raises(OptionError, match=allowed):
        PPJoin(**options)


def test_bitmaps_can_be_left_out_where_there_is_an_index():
    for method in (PPJoin, AllPairs, GroupJoin):
        assert method(words=0).words == 0 and method().words is None
    with pytest.raises(
        OptionError, match=r"Bitmap\(words=0\) is not allowed; use one of None, 1, 2, "
    ):
        Bitmap(words=0)


def test_names_stand_for_default_options():
    assert METHODS["bitmap"] == Bitmap() != Bitmap(words=4)
    assert METHODS["ppjoin"] == PPJoin(filter="gpu", chunk_bytes=None)
