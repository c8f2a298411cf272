"""The checksum of files is the sum that its text says, of bytes wherever they lie."""

import pyarrow as pa
import pytest

from dask_simjoin.engine.cpu.kernels.checksum import checksum

GOLDEN = 0x9E3779B97F4A7C15
DATA = bytes((37 * n * n + n) % 251 for n in range(300))


def by_text(data):
    """The same in whole numbers of Python."""
    words = [(data[8 * n : 8 * n + 8], n) for n in range(len(data) // 8)]
    total = 0
    for word, n in [*words, (data[-8:], len(data))]:
        keyed = (int.from_bytes(word, "little") + n * GOLDEN) % 2**64
        total += keyed + (keyed % 2**32) * (keyed >> 32)
    return total % 2**64


def summed(data, start=0):
    """The checksum of bytes from one on."""
    buffer = pa.py_buffer(data)
    return checksum(buffer.address + start, buffer.size - start)


@pytest.mark.parametrize("size", [8, 9, 15, 16, 17, 64, 255, 300])
def test_it_is_that_of_the_text(size):
    assert summed(DATA[:size]) == by_text(DATA[:size])
    assert summed(b"abc" + DATA[:size], 3) == by_text(DATA[:size])


def test_each_bit_counts():
    plain = summed(DATA)
    for place in range(len(DATA)):
        for bit in range(8):
            other = bytearray(DATA)
            other[place] ^= 1 << bit
            assert summed(bytes(other)) != plain


def test_so_does_the_order_of_words():
    words = [DATA[8 * n : 8 * n + 8] for n in range(16)]
    plain = summed(b"".join(words))
    for n in range(15):
        turned = [*words[:n], words[n + 1], words[n], *words[n + 2 :]]
        assert summed(b"".join(turned)) != plain
