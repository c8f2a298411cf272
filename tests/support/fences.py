"""Arrays that end where memory ends: a read beyond them crashes."""

import contextlib
import ctypes
import mmap

import numpy as np


@contextlib.contextmanager
def fenced(array):
    """Copy an array to memory whose next page cannot be read."""
    pages = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    guard = ctypes.c_void_p(begin + pages), ctypes.c_size_t(mmap.PAGESIZE)
    assert protect(*guard, 0) == 0
    copy = np.frombuffer(memory, np.uint8)[pages - array.nbytes : pages]
    copy = copy.view(array.dtype).reshape(array.shape)
    copy[...] = array
    try:
        yield copy
    finally:
        protect(*guard, mmap.PROT_READ | mmap.PROT_WRITE)
