"""Compile kernels, several at a time, and run them on a stream that transfers do not wait for.

UCX is not ordered by streams, so distributed-ucxx waits for the legacy default stream, in the thread that
serves a worker's communication, before it sends an array of a GPU and before it receives one.  Kernels on
that stream, or on any that blocks with it, as the per-thread default stream does, make all transfers of the
worker wait until they are done.  A stream that does not block makes none wait.  What follows from that:

- Where kernels begin, the own stream waits for what the default stream was asked for: cuDF made the columns
  there, arrays came by it from the host, and memory that this stream gives out again may still be read there.
- Where they end, the host waits for the own stream.  cuDF, UCX and spilling know the default stream only, so
  arrays must be whole when they leave.  Were the default stream to wait instead, UCX would wait, too.
- What a caller made on the default stream is freed in its order, and may then be given to UCX at once.  So
  arguments are held until the host has waited, and what calls back, as `Joiner.visit` does, stays where it
  is: what is called may free such arrays meanwhile.
- What is made here is freed in the order of this stream, and given out here again at once, by RMM's pool as
  by CuPy's.  So one thread must not read it on the default stream and free it while another runs kernels
  here: one thread of a process does, as workers of dask-cuda have one.  Once another comes, all run on the
  default stream.

RMM's pool may give memory that this stream freed to the default stream, which then waits for kernels that
were launched before: transfers wait for fewer kernels so, and not always for none.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import cupy

from dask_simjoin.engine.gpu.kernels.sources import OPTIONS, Source, source

VARIABLE = "SIMJOIN_GPU_STREAM"
"""Of the environment: "own" asks for a stream of its own."""

Class = TypeVar("Class")


class Aside:
    """A stream for the kernels of this process, for the current device.

    Parameters
    ----------
    cuda : module
        ``cupy.cuda``.
    asked : bool
        Whether there is to be one.
    """

    def __init__(self, cuda: Any, asked: bool) -> None:
        self._cuda, self.asked = cuda, asked
        self._lock = threading.RLock()
        self._streams: dict[int, Any] = {}
        self._thread: int | None = None
        self._inside = False

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """Run what is launched within on the own stream, and wait for it in the end."""
        with self._lock if self.asked else contextlib.nullcontext():
            own = self._own()
            if own is None:
                yield
                return
            self._inside = True
            try:
                own.wait_event(self._cuda.Stream.null.record())
                with own:
                    yield
            finally:  # also if it fails: what is launched reads arrays that are about to be freed
                own.synchronize()
                self._inside = False

    def _own(self) -> Any:
        """Return the current device's; None: kernels run on the stream that they are called on."""
        if not self.asked or self._inside:
            return None
        thread = threading.get_ident()
        if self._thread is None:
            self._thread = thread
        if thread != self._thread:  # the lock says that the other's kernels are done
            self.asked = False
            return None
        device = self._cuda.runtime.getDevice()
        if device not in self._streams:
            self._streams[device] = self._cuda.Stream(non_blocking=True)
        return self._streams[device]

    def run(self, *names: str) -> Callable[[type[Class]], type[Class]]:
        """Make these methods of a class run on the own stream: they know no cuDF, and call nobody back."""

        def changed(cls: type[Class]) -> type[Class]:
            for name in names if self.asked else ():
                method = vars(cls)[name]
                plain = isinstance(method, staticmethod)
                moved = self._moved(method.__func__ if plain else method)
                setattr(cls, name, staticmethod(moved) if plain else moved)
            return cls

        return changed

    def _moved(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def moved(*args: Any, **options: Any) -> Any:
            with self.stream():
                return function(*args, **options)

        return moved


def asked() -> bool:
    """Tell whether the environment asks for a stream of its own."""
    return os.environ.get(VARIABLE, "") == "own"


Program = tuple[str | Source, str, dict[str, int]]
"""A file, one of its functions, and the constants that it is compiled with."""

AT_ONCE = min(8, os.cpu_count() or 1)
"""Programs that are compiled at a time: the compiler lets other threads run."""

THREADS = 256
"""Of a block, where each takes items of its own."""

ASIDE = Aside(cupy.cuda, asked())
"""The stream that kernels run on, where they have one of their own."""

_Key = tuple[str | Source, int, tuple[tuple[str, int], ...]]

_lock = threading.Lock()
_pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="simjoin-compiler")
# not of `_pool`, as they wait for what that compiles
_rehearsing = ThreadPoolExecutor(4, thread_name_prefix="simjoin-rehearsal")
_modules: dict[_Key, Future[Any]] = {}


def _compile(function: str, name: str | Source, device: int, constants: tuple[tuple[str, int], ...]) -> Any:
    with cupy.cuda.Device(device):
        module = cupy.RawModule(code=source(name, **dict(constants)), options=OPTIONS)
        module.get_function(function)  # which compiles all of it
        return module


def _begun(name: str | Source, function: str, constants: dict[str, int]) -> tuple[Future[Any], _Key]:
    """The module that has a function, or is being compiled."""
    key = name, cupy.cuda.runtime.getDevice(), tuple(sorted(constants.items()))
    with _lock:
        if key not in _modules:
            _modules[key] = _pool.submit(_compile, function, *key)
        return _modules[key], key


def begin(*programs: Program) -> None:
    """Begin to compile what the current device is going to run: work goes on meanwhile."""
    for name, function, constants in programs:
        _begun(name, function, constants)


@functools.cache
def _rehearsed(work: Callable[[], object], device: int) -> Future[None]:
    def run() -> None:
        with cupy.cuda.Device(device):
            work()

    return _rehearsing.submit(run)


def rehearse(*steps: Callable[[], object]) -> None:
    """Begin to do what will be done later, of next to nothing: what CuPy compiles for it is there then.

    It compiles its own kernels as they are called, one after the other, each a tenth of a second; and loads
    them so.  Steps must be safe beside others: they make all that they touch.
    """
    for step in steps:
        _rehearsed(step, cupy.cuda.runtime.getDevice())


@functools.cache
def _function(name: str, function: str, device: int, constants: tuple[tuple[str, int], ...]) -> Any:
    module, _ = _begun(name, function, dict(constants))
    return module.result().get_function(function)


def kernel(name: str | Source, function: str, **constants: int) -> Any:
    """A kernel for the current device; compiled once, and kept on disk by CuPy."""
    device = cupy.cuda.runtime.getDevice()
    return _function(name, function, device, tuple(sorted(constants.items())))


def shape_of(items: int) -> tuple[tuple[int], tuple[int]]:
    """Blocks and threads for so many items, each of which a thread takes in a loop."""
    return (min(-(-items // THREADS), 1 << 16),), (THREADS,)


@functools.cache
def grid_size(function: Any, threads: int, shared: int = 0) -> int:
    """Blocks that fill the current device."""
    driver = cupy.cuda.driver
    number = driver.occupancyMaxActiveBlocksPerMultiprocessor(function.kernel.ptr, threads, shared)
    processors = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["multiProcessorCount"]
    return max(1, number) * processors
