"""What parts of a search found, put together."""

import numpy as np
import pytest

from dask_simjoin.tasks.nearest import State, join_states


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("rows", "k"), [(50, 5), (50, 1), (7, 0), (0, 3)])
def test_parts_are_put_together_by_their_rows(rows, k, threads):
    rng = np.random.default_rng(rows + k)
    totals, numbers = rng.uniform(size=(rows, k)), rng.integers(-1, rows + 1, (rows, k))
    of_parts = np.array_split(rng.permutation(rows).astype(np.int32), 4)  # some are empty
    parts = [State(totals=totals[some], row_numbers=numbers[some], rows=some) for some in of_parts]
    for part in parts:  # as those of another process are
        part["totals"].flags.writeable = part["row_numbers"].flags.writeable = False
    found = join_states(threads, *parts)
    assert np.array_equal(found["totals"], totals) and found["totals"].dtype == np.float64
    assert np.array_equal(found["row_numbers"], numbers) and found["row_numbers"].dtype == np.int64
