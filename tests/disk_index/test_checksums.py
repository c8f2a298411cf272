"""Files with checksums are Parquet, and no byte of them is another one unnoticed."""

import contextlib
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dask_simjoin.disk_index import checksums
from dask_simjoin.disk_index.files import (
    parquet,
    read_anew,
    read_groups,
    write_named,
    write_table,
)
from dask_simjoin.errors import IndexFormatError, VersionGoneError
from tests.support.profiles import everything

TABLE = pa.table(
    {
        "number": np.arange(40),
        "text": [f"t{n % 7}" for n in range(40)],
        "list": [[n / 3, -n] for n in range(40)],
        "some": [None if n % 5 == 0 else n for n in range(40)],
    }
)

FIRST = "0123456789abcdef-01234567"
"""What the names of these files begin with."""


@pytest.fixture
def path(tmp_path):
    """A file of four row groups."""
    name, size = write_named(tmp_path, lambda file: write_table(TABLE, file, 10), FIRST)
    assert (tmp_path / name).stat().st_size == size
    return tmp_path / name


def verified(path):
    """Read all bytes."""
    with contextlib.closing(checksums.VerifiedFile(path)) as file:
        file.verify()


def reads(path):
    """What the methods that read give, each of which must give it whole."""
    with parquet(path) as file:
        groups = [
            read_groups(file, [group], [name])
            for group in range(4)
            for name in TABLE.column_names
        ]
    assert pa.concat_tables(groups[1::4]).equals(TABLE.select(["text"]))
    return read_anew(path)


def test_others_read_them(path):
    assert pq.read_table(path).equals(TABLE)
    assert reads(path).equals(TABLE)


def test_checksums_are_of_all_bytes_before_them(path):
    about = pq.read_metadata(path)
    chunks = [
        about.row_group(g).column(k) for g in range(4) for k in range(about.num_columns)
    ]
    ends = {0}
    for one in chunks:
        first = one.dictionary_page_offset or one.data_page_offset
        ends |= {first, first + one.total_compressed_size}
    with contextlib.closing(checksums.VerifiedFile(path)) as file:
        # what the file begins with is part of the first run
        assert ends - {4} <= set(file._found)
        file.verify()


@pytest.mark.parametrize("at_once", [1, 1 << 24])
def test_no_bit_is_another_one_unnoticed(path, at_once, monkeypatch):
    """`check` reads all bytes, also those that no reader looks at."""
    monkeypatch.setattr(checksums, "READ_BYTES", at_once)
    plain = path.read_bytes()
    for place in range(
        0, len(plain), (1 if everything() else 5) if at_once > 1 else 29
    ):
        own = bytearray(plain)
        own[place] ^= 1 << place % 8
        path.write_bytes(own)
        with pytest.raises(IndexFormatError, match=path.stem):
            verified(path)


def test_what_is_read_is_as_it_was_written_or_refused(path):
    """Whichever bit is flipped in the header of a page, which Parquet's checksums leave
    out.
    """
    plain, refused = path.read_bytes(), 0
    with contextlib.closing(checksums.VerifiedFile(path)) as file:
        runs = list(zip(file._found, file._found[1:], strict=False))
    for start, stop in runs[1:12]:
        for place in range(start, min(stop, start + 24)):
            own = bytearray(plain)
            own[place] ^= 1 << place % 8
            path.write_bytes(own)
            try:
                found = reads(path)
            except IndexFormatError as error:
                found, message = None, str(error)
            if found is None:
                assert "is damaged: its content changed after it was written" in message
                refused += 1
            else:  # some versions of PyArrow do not read some of these runs
                assert found.equals(TABLE)
    assert refused > 100


def test_a_file_that_is_another_one_is_refused(path):
    other, _ = write_named(
        path.parent, lambda file: write_table(TABLE.slice(0, 39), file, 10), FIRST
    )
    path.write_bytes((path.parent / other).read_bytes())
    with pytest.raises(IndexFormatError, match=path.stem):
        read_anew(path)


@pytest.mark.parametrize("content", [b"", b"x", b"PAR1", b"PAR1" * 30, bytes(100)])
def test_what_is_no_parquet_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(IndexFormatError, match=path.stem):
        read_anew(path)
    # as files without checksums are called
    old = path.with_name(f"{uuid.uuid4().hex}.parquet")
    path.rename(old)
    with pytest.raises(IndexFormatError, match=old.stem):
        read_anew(old)


def test_folders_and_files_that_are_not_there(path):
    path.unlink()
    with pytest.raises(VersionGoneError, match="does not exist"):
        read_anew(path)
    path.mkdir()
    with pytest.raises(IndexFormatError, match="is damaged: it cannot be read"):
        read_anew(path)
