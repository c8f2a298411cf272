"""How many rows planning looks at."""

import pytest

from dask_simjoin.planning.statistics.sample import CEILING, FLOOR, MAX_BYTES, sample_size


@pytest.mark.parametrize(
    ("rows", "partitions", "all_of_them"),
    [(100, 3, 300), (1_000_000, 1, FLOOR), (10_000_000, 1, 100_000), (10_000_000, 16, CEILING)],
)
def test_samples_of_tables(rows, partitions, all_of_them):
    assert sample_size(rows, 2, partitions) * partitions == all_of_them


@pytest.mark.parametrize("dims", [2, 64, 2048])
@pytest.mark.parametrize("partitions", [1, 16, 5000])
def test_samples_have_an_end(partitions, dims):
    """Planning takes no longer however many rows there are, but each partition is looked at."""
    each = sample_size(10**9, dims, partitions)
    assert each >= 2 and each * partitions * dims * 8 <= MAX_BYTES
    assert each * partitions <= CEILING + 32 * partitions
