"""The compiler of CUDA C++, which needs no GPU."""

import ctypes
import sys
from pathlib import Path

import pytest

from tests.support import profiles

HASTE = [] if profiles.everything() else ["--Ofast-compile=max"]
"""Options that check and assemble programs without optimizing them, in a quarter of the
time.
"""


def loaded():
    """Return the library, or skip the test if there is none."""
    found = sorted(
        p
        for base in sys.path
        for p in Path(base or ".").glob("nvidia/*/lib/libnvrtc.so.1*")
    )
    if not found:
        pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc")
    library = ctypes.CDLL(str(found[-1]))
    library.nvrtcCreateProgram.argtypes = [
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    library.nvrtcCompileProgram.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_char_p),
    ]
    library.nvrtcGetProgramLog.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.nvrtcGetProgramLogSize.argtypes = [
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_size_t),
    ]
    library.nvrtcDestroyProgram.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
    return library


def complaints(nvrtc, text, arguments):
    """Return the compiler's messages on a program, which are empty without errors."""
    program = ctypes.c_void_p()
    assert (
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), text.encode(), b"k.cu", 0, None, None
        )
        == 0
    )
    given = (ctypes.c_char_p * len(arguments))(*(a.encode() for a in arguments))
    failed = nvrtc.nvrtcCompileProgram(program, len(arguments), given)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return f"{failed}: {log.value.decode()}" if failed or log.value.strip() else ""
