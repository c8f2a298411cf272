"""Programs are compiled once, several at a time, whichever function and thread asks
first; needs no GPU.
"""

import importlib.util
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from dask_simjoin.engine import gpu as FOLDER
from dask_simjoin.engine.gpu.sources import source
from tests.support.gpu_programs import (
    ALWAYS,
    SINKS,
    USES,
    join_programs,
    search_programs,
)
from tests.support.paths import ROOT

FILE = ROOT / "dask_simjoin" / "engine" / "gpu" / "load.py"
KERNELS = ROOT / "tests" / "support" / "gpu_kernels.py"


class Device:
    def __init__(self, number):
        self.number = number

    def __enter__(self):
        here.device = self.number

    def __exit__(self, *error):
        here.device = None


here = threading.local()
compiled = []


class RawModule:
    """A stand-in for CuPy's: compiles when a function is asked for."""

    def __init__(self, code, options):
        self.code, self.told = code, None

    def get_function(self, name):
        if "#define DIMS 13\n" in self.code:
            raise ValueError("13 dimensions")
        if self.told is None:
            self.told = here.device
            compiled.append((self.code, here.device))
        return name, self.code, self.told


@pytest.fixture
def load(monkeypatch):
    runtime = SimpleNamespace(getDevice=lambda: 0)
    cupy = SimpleNamespace(
        RawModule=RawModule, cuda=SimpleNamespace(Device=Device, runtime=runtime)
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    spec = importlib.util.spec_from_file_location("load_for_a_test", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    compiled.clear()
    return module


def test_a_program_is_compiled_once(load):
    load.begin(("finish", "name_pairs", {"DIMS": 2, "EXACT": True}))
    asked = [("name_pairs", 2), ("measure_pairs", 2), ("name_pairs", 3)] * 5
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(
                lambda one: load.kernel("finish", one[0], EXACT=True, DIMS=one[1]),
                asked,
            )
        )
    assert len(compiled) == 2 and {device for _, device in compiled} == {0}
    for (function, dims), (name, code, _) in zip(asked, found, strict=True):
        assert (
            name == function
            and f"#define DIMS {dims}\n" in code
            and "#define EXACT 1\n" in code
        )


def test_what_tests_run_is_compiled_ahead_of_them(load, monkeypatch):
    monkeypatch.setitem(sys.modules, f"{FOLDER.__name__}.load", load)
    monkeypatch.setattr(FOLDER, "load", load, raising=False)
    spec = importlib.util.spec_from_file_location("kernels_for_a_test", KERNELS)
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    wanted = kernels.programs_of(
        [SimpleNamespace(programs=lambda: join_programs(range(1, 9))), load]
    )
    told = kernels.Compiled()
    with kernels.ahead(wanted, told):
        # in another order, and with one that was not foreseen
        for name, function, constants in [
            *reversed(wanted),
            ("regions", "own_regions", {"DIMS": 99}),
        ]:
            assert load.kernel(name, function, **constants)[0] == function
        # what is asked for may be faster than what is compiled ahead of it
        end = time.monotonic() + 60
        while len(told.foreseen) < len(wanted) and time.monotonic() < end:
            time.sleep(0.01)
    assert (
        len(compiled) == len(told.programs) == len(told.foreseen) + 1 == len(wanted) + 1
    )
    assert "('regions', (('DIMS', 99),))" in told.in_words() and told.seconds > 0
    assert (
        load.kernel.__name__ == "kernel"
        and "asked" not in load.kernel.__code__.co_freevars
    )


def test_what_is_compiled_ahead_is_there():
    """A file has the function, and asks for the constants."""
    dims, engines = [3, 200], ["float16", "float32", "float64"]
    wanted = [
        *ALWAYS,
        *join_programs(dims, engines, [*USES, *SINKS], 1),
        *search_programs(dims, engines, 1),
    ]
    for name, function, constants in wanted:
        text = source(name)
        assert re.search(rf"\b{function}\(", text)
        assert not [key for key in constants if not re.search(rf"\b{key}\b", text)]


def test_what_does_not_compile_is_told_to_all_who_ask(load):
    # not here: nobody asked for it yet
    load.begin(("tiles", "join_tiles", {"DIMS": 13}))
    for _ in range(2):
        with pytest.raises(ValueError, match="13 dimensions"):
            load.kernel("tiles", "join_tiles", DIMS=13)
