"""Sizes that many rooms use."""

from dask_simjoin import sizes


def test_sizes_grow_from_samples_to_partitions():
    assert (
        sizes.SAMPLED
        < sizes.IN_CACHE
        < sizes.MIN_PART
        < sizes.BATCH
        < sizes.PARTITION
        < sizes.PAIRS_AT_ONCE
    )


def test_bytes_of_what_is_handled_at_a_time_fit_the_memory_that_can_be_spared():
    assert sizes.PAIRS_AT_ONCE * sizes.ENTRY_BYTES <= sizes.SPARE_BYTES
    assert sizes.PARSED_BYTES < sizes.READ_BYTES < sizes.SPARE_BYTES
