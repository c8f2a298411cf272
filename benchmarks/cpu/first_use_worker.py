"""Times the first calls of a verb in this process: `python -m
benchmarks.cpu.first_use_worker VERB DIMS BACKEND PACKAGE [record]`.

Verbs of sets, which have no columns, are called on texts.  With "record" the CPU
seconds of each kernel that is compiled are added.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from functools import partial
from typing import Any


def now() -> tuple[float, float]:
    """Return the seconds of the clock and of the processor."""
    return time.perf_counter(), time.process_time()


def since(begin: tuple[float, float]) -> tuple[float, float]:
    """Return the seconds of the clock and of the processor since a time."""
    wall, cpu = now()
    return round(wall - begin[0], 3), round(cpu - begin[1], 3)


def compile_times() -> dict[str, float]:
    """Return a dict that will hold the CPU seconds of each kernel, with the functions
    that it calls.
    """
    event = importlib.import_module("numba.core.event")
    seconds: dict[str, float] = {}
    open_since: list[float] = []

    class Listener(event.Listener):  # type: ignore[name-defined,misc]
        def on_start(self, event: Any) -> None:
            open_since.append(time.process_time())

        def on_end(self, event: Any) -> None:
            took = time.process_time() - open_since.pop()
            if not open_since:
                function = event.data["dispatcher"].py_func
                name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
                seconds[name] = round(seconds.get(name, 0.0) + took, 3)

    event.register("numba:compile", Listener())
    return seconds


def main() -> None:
    """Print the seconds of the import and of two calls as JSON."""
    verb, dims, backend, package, *record = sys.argv[1:]
    begin = now()
    found = importlib.import_module("dask_simjoin")
    imported = since(begin)
    assert str(found.__path__[0]) == package, "another copy of the package was loaded"
    points = importlib.import_module("dask_simjoin.api.compile_kernels")
    sets = importlib.import_module("dask_simjoin.api.compile_kernels")
    if backend == "cudf":
        importlib.import_module("cudf")
        cupy = importlib.import_module("cupy")
        cupy.zeros(1).get()  # loads the driver, which is not measured
    if verb in sets.SET_VERBS:
        call = partial(sets.run_on_texts, verb, sets.texts(backend))
    else:
        call = partial(points.run, verb, *points.points(int(dims), backend))
    calls = []
    compiled: dict[str, float] = {}
    for _ in range(2):
        begin = now()
        if record and not calls:
            compiled = compile_times()  # loads Numba, as the call itself would
        call()
        calls.append(since(begin))
    (wall, cpu), (again, _) = calls
    seconds: dict[str, Any] = {"wall": wall, "cpu": cpu, "second call": again}
    seconds |= {"import wall": imported[0], "import cpu": imported[1]}
    if compiled:
        seconds["compiled"] = dict(sorted(compiled.items(), key=lambda one: -one[1]))
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
