"""Run kernels on a stream that transfers do not wait for; needs neither CuPy nor a GPU.

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
from typing import Any, TypeVar

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
    """Return whether the environment asks for a stream of its own."""
    return os.environ.get(VARIABLE, "") == "own"
