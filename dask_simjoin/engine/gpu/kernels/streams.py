"""Run kernels on a stream that transfers do not wait for; needs neither CuPy nor a GPU.

UCX does not use stream order.  So distributed-ucxx waits for the legacy default stream before it sends or
receives an array of a GPU.  It waits in the thread that serves a worker's communication.  So kernels on the
default stream delay all transfers of the worker.  Kernels on any stream that blocks with the default stream,
such as the per-thread default stream, delay them too.  A non-blocking stream, here "the own stream", delays
no transfer.  The consequences are:

- Before kernels start, the own stream waits for the default stream, where cuDF made the columns, and where
  copies from the host ran.  Memory that the own stream allocates again may still be read there.
- After kernels end, the host waits for the own stream.  Arrays must be complete when they leave, since cuDF,
  UCX and spilling know the default stream only.  If the default stream waited instead, UCX would wait, too.
- A caller's arrays are freed in the order of the default stream, and UCX may reuse their memory at once.  So
  arguments are held until the host has waited.  Functions with callbacks, such as `Joiner.visit`, stay on the
  default stream: the callback may free arguments meanwhile.
- Arrays made on the own stream are freed in its order, and RMM's and CuPy's pools reuse their memory there at
  once.  So no thread may read such an array on the default stream and free it while another thread runs
  kernels on the own stream.  Therefore only one thread of a process uses the own stream; workers of dask-cuda
  have one thread.  Once a second thread calls, all kernels run on the default stream.

RMM's pool may give memory that the own stream freed to the default stream, which then waits for earlier
kernels.  Transfers still wait for these kernels.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

VARIABLE = "SIMJOIN_GPU_STREAM"
"""Environment variable; the value "own" makes kernels run on the own stream."""

Class = TypeVar("Class")


class Aside:
    """A stream for the kernels of this process, for the current device.

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
        """Run the kernels of a with block on the own stream, and wait for their end."""
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
        """Return the current device's own stream; None: kernels run on the caller's stream."""
        if not self.asked or self._inside:
            return None
        thread = threading.get_ident()
        if self._thread is None:
            self._thread = thread
        if thread != self._thread:  # this thread holds the lock, so the other thread's kernels have ended
            self.asked = False
            return None
        device = self._cuda.runtime.getDevice()
        if device not in self._streams:
            self._streams[device] = self._cuda.Stream(non_blocking=True)
        return self._streams[device]

    def run(self, *names: str) -> Callable[[type[Class]], type[Class]]:
        """Make these methods of a class, which use no cuDF and have no callbacks, run on the own stream."""

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
