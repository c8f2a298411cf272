"""Compile kernels in parallel, and cache them."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.gpu.sources import OPTIONS, source
from dask_simjoin.engine.process import make_folder, read_private, write_private

Program = tuple[str, str, dict[str, int]]
"""Name of a CUDA file, name of one of its functions, and the constants to compile the
file with.
"""

AT_ONCE = min(8, os.cpu_count() or 1)
"""Number of threads that compile programs. They run in parallel, because the compiler
releases the GIL.
"""

OF_ARCHITECTURE = {"tensor_hopper": "90a"}
"""CUDA file -> the only GPU architecture that has the instructions it uses."""

THREADS = 256
"""Threads per block, for kernels whose threads do not cooperate."""

NOWHERE = np.uint64(0)
"""Null pointer for unused arguments of kernels."""

_Key = tuple[str, int, tuple[tuple[str, int], ...]]

_lock = threading.Lock()
_pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="simjoin-compiler")
# a second pool, because rehearsals wait for programs that `_pool` compiles, and would
# block its threads
_rehearsing = ThreadPoolExecutor(4, thread_name_prefix="simjoin-rehearsal")
_modules: dict[_Key, Future[Any]] = {}


def _compile(
    function: str, name: str, device: int, constants: tuple[tuple[str, int], ...]
) -> Any:
    code = source(name, **dict(constants))
    with cupy.cuda.Device(device):
        if name in OF_ARCHITECTURE:
            return _compiled_for(OF_ARCHITECTURE[name], code, function)
        module = cupy.RawModule(code=code, options=OPTIONS)
        # CuPy compiles the whole program here, not in the line above
        module.get_function(function)
        return module


def has_warpgroups() -> bool:
    """Return whether the current device has the warpgroup instructions that
    `tensor_hopper.cu` uses.
    """
    return str(cupy.cuda.Device().compute_capability) == "90"


def _compiled_for(architecture: str, code: str, function: str) -> Any:
    """Compile for an architecture such as "90a", and cache the result in CuPy's folder.

    CuPy itself cannot compile for such an architecture.
    """
    options = (*OPTIONS, f"-arch=sm_{architecture}")
    said = repr((cupy.cuda.nvrtc.getVersion(), options, code))
    name = f"simjoin-{hashlib.sha256(said.encode()).hexdigest()}.cubin"
    folder = Path(
        os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache"
    )
    try:
        read_private(folder / name)
        return _loaded(folder / name, function)
    except OSError:
        found = _machine_code(code, options)
    try:
        make_folder(folder)
        write_private(folder / name, found)
        return _loaded(folder / name, function)
    except (
        OSError
    ):  # raised if the folder cannot be written, for example in a read-only home
        with tempfile.TemporaryDirectory() as own:
            (Path(own) / name).write_bytes(found)
            return _loaded(Path(own) / name, function)


def _machine_code(code: str, options: tuple[str, ...]) -> bytes:
    compiler = cupy.cuda.nvrtc
    program = compiler.createProgram(code, "join.cu", (), ())
    try:
        compiler.compileProgram(program, options)
        return bytes(compiler.getCUBIN(program))
    except compiler.NVRTCError as error:
        raise RuntimeError(compiler.getProgramLog(program)) from error
    finally:
        compiler.destroyProgram(program)


def _loaded(path: Path, function: str) -> Any:
    module = cupy.RawModule(path=str(path))
    module.get_function(function)  # CuPy reads the file here, while it exists
    return module


def _begun(
    name: str, function: str, constants: dict[str, int]
) -> tuple[Future[Any], _Key]:
    """Return the future of a compiled module, and the module's key. Start the
    compilation if it has not begun.
    """
    key = name, cupy.cuda.runtime.getDevice(), tuple(sorted(constants.items()))
    with _lock:
        if key not in _modules:
            _modules[key] = _pool.submit(_compile, function, *key)
        return _modules[key], key


def begin(*programs: Program) -> None:
    """Start to compile programs for the current device in the background."""
    for name, function, constants in programs:
        _begun(name, function, constants)


@functools.cache
def _rehearsed(work: Callable[[], object], device: int) -> Future[None]:
    def run() -> None:
        with cupy.cuda.Device(device):
            work()

    return _rehearsing.submit(run)


def rehearse(*steps: Callable[[], object]) -> None:
    """Run steps on other threads, to load CuPy's own kernels in these steps before they
    are needed.

    CuPy compiles and loads each of its kernels at the first call, in about a tenth of a
    second. A step must use little data, to be fast. It must create these data itself,
    to be thread-safe.
    """
    for step in steps:
        _rehearsed(step, cupy.cuda.runtime.getDevice())


@functools.cache
def _function(
    name: str, function: str, device: int, constants: tuple[tuple[str, int], ...]
) -> Any:
    module, _ = _begun(name, function, dict(constants))
    return module.result().get_function(function)


def kernel(name: str, function: str, **constants: int) -> Any:
    """Return a kernel for the current device. The kernel is compiled once, and cached
    on disk.
    """
    device = cupy.cuda.runtime.getDevice()
    return _function(name, function, device, tuple(sorted(constants.items())))


def shape_of(items: int) -> tuple[tuple[int], tuple[int]]:
    """Return blocks and threads for a kernel whose threads loop over `items` items."""
    return (min(-(-items // THREADS), 1 << 16),), (THREADS,)


@functools.cache
def _memory(device: int) -> int:
    with cupy.cuda.Device(device) as one:
        return int(one.mem_info[1])


def memory() -> int:
    """Return the size of the current device's memory in bytes.

    The driver takes long to answer, because it also counts the free memory.
    """
    return _memory(cupy.cuda.runtime.getDevice())


@functools.cache
def grid_size(function: Any, threads: int, shared: int = 0) -> int:
    """Return the number of blocks of a kernel that run on the current device at the
    same time.
    """
    driver = cupy.cuda.driver
    number = driver.occupancyMaxActiveBlocksPerMultiprocessor(
        function.kernel.ptr, threads, shared
    )
    processors = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())[
        "multiProcessorCount"
    ]
    return max(1, number) * processors
