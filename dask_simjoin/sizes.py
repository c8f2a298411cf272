"""Sizes and shares that many rooms use, so that each of them is decided once.

How much a job changes if one of them is halved or doubled: docs/explanation/numbers.md.
"""

from __future__ import annotations

PARTITION = 1 << 20
"""Files of an index, and partitions of results, have about this many rows."""

BATCH = 1 << 18
"""Rows, pairs or keys that are handled at a time, to limit the memory of temporary
arrays. Fewer are not worth reading or packing by another thread.
"""

MIN_PART = 1 << 15
"""Fewer rows or tokens than this are not worth a task of their own."""

SAMPLED = 1 << 11
"""Number of rows that represent a table where a rough estimate suffices."""

SPARE_BYTES = 1 << 26
"""Memory that every process can spare."""

PARTS_PER_THREAD = 4
"""Work is cut into this many parts per thread, because parts take unequal times."""

CACHE_SHARE = 16
"""Each cache or buffer may take 1 / CACHE_SHARE of the memory of its process."""

TRIES = 10
"""Something that others may change meanwhile is tried, or looked at, at most this many
times.
"""

KEPT = 32
"""Number of results that a cache of small results keeps."""

MARGIN = 1.25
"""Factor between a size that was estimated, or is just sufficient, and one that is
sufficient for certain.
"""

NUMBER_BYTES = 8
"""Bytes of an int64 or a float64."""

ENTRY_BYTES = 16
"""Bytes of an entry of two numbers, such as an id and a distance, or a row's number and
its chunk.
"""

ROW_BYTES = 64
"""Bytes that a row takes in addition to its values, while rows are sorted, grouped or
merged. Pairs that are matched take as many: two copies of both row numbers, the total
and the order.
"""

RUN = 1 << 9
"""The stability of a cluster is summed over runs of so many of its rows, in their
order, and then over the runs. So all devices round alike.
"""

NANO = 1e-9
"""Seconds of a nanosecond."""

IN_CACHE = 1 << 13
"""Numbers that are handled at a time, so that temporary arrays stay in a core's cache.
"""

PAIRS_AT_ONCE = 1 << 22
"""Pairs that are listed or sorted at a time. They take 16 bytes each."""

READ_BYTES = 1 << 24
"""Bytes of a file that are read at a time."""

PARSED_BYTES = 1 << 20
"""Bytes that are parsed or converted at a time."""

FEW = 8
"""At most this many files, groups or columns are few, and so are less than one in this
many rows.
"""

PROBED = 64
"""Number of rows of a sample whose neighbors are searched, to know them for all rows.
"""

HELD_PER_THREAD = 2
"""Results that a thread holds at a time: while it makes one, another is taken apart."""

HELD_SHARE = 0.5
"""Rows that are kept may take this share of the memory."""

BUFFER_SHARE = 32
"""A buffer of results may take 1 / BUFFER_SHARE of the memory of a GPU or a thread."""

MOMENT = 0.5
"""Seconds between two looks at what a computation does, and at whether a user stops it.
"""
