"""Run kernels on a stream of their own, so that transfers do not wait for them; needs neither CuPy nor a GPU.

UCX ignores the order of CUDA streams.  So distributed-ucxx waits for the legacy default stream before it
sends or receives an array of a GPU.  It waits in the thread that serves all communication of a worker.  So
kernels on the default stream delay all transfers of the worker.  The same holds for streams that synchronize
with the default stream, such as the per-thread default stream.  Kernels on a non-blocking stream delay no
transfer.  Here such a stream is called "the own stream".  Its use has these consequences:

- Before kernels start, the own stream waits for the default stream.  There, cuDF makes columns, and copies
  from the host run.  Kernels there may also still read memory that the own stream now allocates again.
- After kernels end, the host waits for the own stream.  Results must be complete when they are returned,
  since cuDF, UCX and spilling only know the default stream.  If the default stream waited instead, UCX would
  wait, too.
- A caller's arrays are freed in the order of the default stream, and UCX may reuse their memory at once.  So
  this module keeps references to arguments until the host has waited.  Functions with callbacks, such as
  `Joiner.visit`, stay on the default stream, because a callback may free arguments.
- Arrays made on the own stream are freed in its order, and RMM's and CuPy's pools reuse their memory there at
  once.  So a thread must not free such an array after a read on the default stream, while another thread runs
  kernels on the own stream.  Therefore only one thread of a process uses the own stream; workers of dask-cuda
  have one thread.  When a second thread calls, all kernels run on the default stream from then on.

One delay remains.  RMM's pool may pass memory that the own stream freed to the default stream.  The default
stream then waits for earlier kernels of the own stream, and transfers wait with it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

VARIABLE = "SIMJOIN_GPU_STREAM"
"""Environment variable that selects the stream for kernels: "own" selects the own stream."""

Class = TypeVar("Class")


class Aside:
    """The own streams of this process, one per device.

    Parameters
    ----------
    cuda : module
        ``cupy.cuda``.
    asked : bool
        Whether to use the own stream.
    """

    def __init__(self, cuda: Any, asked: bool) -> None:
        self._cuda, self.asked = cuda, asked
        self._lock = threading.RLock()
        self._streams: dict[int, Any] = {}
        self._thread: int | None = None
        self._inside = False

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """Context manager that runs kernels on the own stream, and at its end waits for them."""
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
            finally:  # also after errors: launched kernels still read arrays that are freed next
                own.synchronize()
                self._inside = False

    def _own(self) -> Any:
        """Return the own stream of the current device; None if kernels must run on the caller's stream."""
        if not self.asked or self._inside:
            return None
        thread = threading.get_ident()
        if self._thread is None:
            self._thread = thread
        if thread != self._thread:  # the other thread's kernels have ended, because it released the lock
            self.asked = False
            return None
        device = self._cuda.runtime.getDevice()
        if device not in self._streams:
            self._streams[device] = self._cuda.Stream(non_blocking=True)
        return self._streams[device]

    def run(self, *names: str) -> Callable[[type[Class]], type[Class]]:
        """Return a class decorator that runs these methods on the own stream.

        The methods must not use cuDF or call callbacks.
        """

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
    """Return whether the environment variable selects the own stream for kernels."""
    return os.environ.get(VARIABLE, "") == "own"
