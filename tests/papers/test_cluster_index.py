"""Lists of rows are cut into parts of one list each."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.papers.cluster_index import cut


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=12),
    st.integers(0, 9),
    st.integers(1, 8),
)
def test_parts_are_all_of_each_list(sizes, start, side):
    starts = start + np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    parts = cut(starts, side)
    assert (
        parts.first.tolist()
        == np.concatenate([[0], np.cumsum(-(-np.array(sizes) // side))]).tolist()
    )
    for number, (begin, end) in enumerate(
        zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    ):
        mine = np.flatnonzero(parts.lists == number)
        assert mine.tolist() == list(range(*parts.first[number : number + 2].tolist()))
        rows = [row for k in mine for row in range(parts.begins[k], parts.ends[k])]
        assert rows == list(range(begin, end))
    assert (
        (parts.ends - parts.begins >= 1) & (parts.ends - parts.begins <= side)
    ).all()
