"""Which rows of a segment count, and which points lie in a box: against NumPy."""

import numpy as np

from dask_simjoin.disk_index.segments import (
    SegmentChoice,
    included_rows,
    segment_bytes,
    within,
)
from tests.support.profiles import pairwise

VERSION = np.array([1, 2, 2, 3, 5, 5])


def segment(version=VERSION):
    return {
        "version": version,
        "seq": np.arange(len(version)),
        "ages": (int(version.min()), int(version.max())),
    }


@pairwise(
    versions=[(0, 5), (1, 5), (0, 3), (2, 3), (5, 9)],
    places=[[], [0], [2, 5]],
    named=[True, False],
)
def test_rows_that_count(versions, places, named):
    found = included_rows(
        segment(), SegmentChoice(np.array(places, np.int64), named, versions)
    )
    listed = np.isin(np.arange(len(VERSION)), places)
    want = (versions[0] < VERSION) & (versions[1] >= VERSION) & (listed == named)
    if found is None:
        found = np.ones(len(VERSION), bool)
    assert found.tolist() == want.tolist()


def test_nothing_is_looked_at_where_all_rows_count():
    assert (
        included_rows(segment(), SegmentChoice(np.zeros(0, np.int64), False, (0, 5)))
        is None
    )


def test_points_in_a_box_include_its_faces():
    x = np.array([[0.0, 0.0], [1.0, 2.0], [1.0, 2.1], [-0.1, 1.0], [0.5, 0.5]])
    assert within(x, (np.array([0.0, 0.0]), np.array([1.0, 2.0]))).tolist() == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_bytes_are_those_of_all_arrays():
    own = segment()
    assert segment_bytes(own) == VERSION.nbytes + own["seq"].nbytes
