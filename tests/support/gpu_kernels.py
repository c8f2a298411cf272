"""Kernels of the GPU: compiled side by side, and layouts of points; needs CuPy."""

import itertools
import threading
import time
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager

import numpy as np

from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.index.gpu import make_device_layout
from tests.support.gpu_programs import ALWAYS


class Compiled:
    """Programs that were compiled for tests, and how long tests waited for them.

    Attributes
    ----------
    programs : set
        Programs that tests needed.
    foreseen : set
        Programs that were compiled in advance.
    seconds : float
        That tests waited.
    """

    def __init__(self):
        self.programs, self.foreseen, self.seconds = set(), set(), 0.0

    def in_words(self):
        """Summarize in a line, and name the programs that were not listed in advance."""
        late = sorted(self.programs - self.foreseen, key=str)
        rest = f"; compiled once they were needed: {late}" if late else ""
        return (
            f"{len(self.programs)} programs for GPUs were run, {len(self.foreseen)} "
            "compiled ahead; "
            f"tests waited {self.seconds:.1f} s for them{rest}"
        )


def _key(name, constants):
    return name, tuple(sorted((key, int(value)) for key, value in constants.items()))


@contextmanager
def ahead(wanted, told):
    """Compile programs in this order, a few at a time, so that a program needed
    meanwhile waits for few.
    """
    asked, stop = load.kernel, threading.Event()

    def feed():
        running = set()
        for name, function, constants in wanted:
            if len(running) >= load.AT_ONCE:
                running = wait(running, return_when=FIRST_COMPLETED).not_done
            if stop.is_set():
                return
            told.foreseen.add(_key(name, constants))
            running.add(load._begun(name, function, constants)[0])

    def kernel(name, function, **constants):
        begin = time.perf_counter()
        try:
            return asked(name, function, **constants)
        finally:
            told.programs.add(_key(name, constants))
            told.seconds += time.perf_counter() - begin

    feeder = threading.Thread(target=feed, name="compile-ahead")
    load.kernel = kernel
    feeder.start()
    try:
        yield
    finally:
        load.kernel = asked
        stop.set()
        feeder.join()


def programs_of(modules):
    """Return the programs that test modules list, in their order, after those that all
    tests need.
    """
    return list(
        itertools.chain(
            ALWAYS,
            *(module.programs() for module in modules if hasattr(module, "programs")),
        )
    )


def layout_for(x, eps, engine="auto"):
    x = x.astype(np.float64)
    if not len(x):
        moments = (np.zeros(x.shape[1]),) * 4
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            moments = x.min(0), x.max(0), x.mean(0), x.var(0)
    if not all(np.isfinite(m).all() for m in moments[2:]):
        moments = (*moments[:2], np.zeros(x.shape[1]), np.full(x.shape[1], np.inf))
    return make_device_layout(*moments, eps * eps, engine)
