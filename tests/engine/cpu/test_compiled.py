"""Compiled kernels are found again, by all who should find them, and by nobody else."""

import ast
import errno
import functools
import gc
import operator
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import types
from numba.core.errors import TypingError
from numba.core.registry import cpu_target

from dask_simjoin.engine import private_files
from dask_simjoin.engine.collecting import not_collecting
from dask_simjoin.engine.cpu.kernels import compiled, resolved
from dask_simjoin.engine.cpu.kernels.components import find, link, roots
from dask_simjoin.engine.methods import METHODS

PACKAGE = compiled.PACKAGE

OTHERS = {
    Path("errors"),
    Path("engine/base"),
    Path("engine/collecting"),
    Path("engine/private_files"),
    Path("engine/threads"),
    *(Path(*type(method).__module__.split(".")[1:]) for method in METHODS.values()),
}
"""What kernels' texts import besides each other, as options of methods: nothing is compiled of it."""

COUNT = """
import sys
import numpy as np
from numba.core import event
compiled = event.RecordingListener()
event.register("numba:compile", compiled)
from pathlib import Path
from dask_simjoin.engine.cpu.kernels import compiled as kept
from dask_simjoin.engine.cpu.kernels.components import link
kept.folders = lambda: [Path(sys.argv[1])]  # others may have compiled it already
parent = np.arange(3, dtype=np.int32)
link(parent, np.array([0, 1]), np.array([1, 2]), parent.copy(), parent.copy())
print(parent.tolist(), sum(e.is_start for _, e in compiled.buffer), "numba.np.linalg" in sys.modules)
"""


ANOTHER = """
import numba
numba.__version__ = "99.1"
import numpy as np
import pandas as pd
import dask_simjoin
from dask_simjoin.engine.cpu.kernels import compiled
assert compiled.KernelCompiler is compiled.Compiler
x = np.random.default_rng(0).random((500, 2))
frame = pd.DataFrame(x, columns=["a", "b"])
near = ((x[:, None] - x) ** 2).sum(axis=2) <= 0.05**2
assert frame.simjoin.count_pairs(0.05) == np.triu(near, 1).sum() > 0
print((frame.simjoin.neighbor_counts(0.05).to_numpy() == near.sum(axis=1) - 1).all())
"""


INSIDES = pytest.mark.skipif(compiled.KernelCompiler is compiled.Compiler, reason="for a known Numba")


def run(cache):
    command = [sys.executable, "-c", COUNT, str(cache)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.split("] ")


@pytest.mark.processes
def test_a_kernel_is_compiled_once_and_then_found_without_loading_the_compiler(tmp_path):
    assert run(tmp_path) == ["[0, 0, 0", "2 True\n"]  # with what it calls
    assert run(tmp_path) == ["[0, 0, 0", "0 False\n"]


@pytest.mark.processes
def test_versions_of_numba_that_are_not_known_compile_as_they_do(tmp_path):
    """Kernels are compiled by parts of Numba that it does not document."""
    for _ in range(2):  # compiled, and kept
        ran = subprocess.run(
            [sys.executable, "-c", ANOTHER], capture_output=True, text=True, timeout=300,
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        )  # fmt: skip
        assert ran.stdout == "True\n", ran.stderr[-2000:]


@INSIDES
def test_what_only_kernels_call_is_refused_and_compiled_with_them():
    parent = np.array([0, 0, 1], np.int32)
    assert roots(parent) is None
    assert parent.tolist() == [0, 0, 0]
    with pytest.raises(TypeError, match="not callable"):
        find(parent, 2)


def test_the_collector_rests_while_a_kernel_is_compiled_and_goes_on():
    seen = []
    with not_collecting():
        with not_collecting():
            seen.append(gc.isenabled())
        seen.append(gc.isenabled())
    assert (seen, gc.isenabled()) == ([False, False], True)


@INSIDES
def test_what_an_operation_of_numbers_gives_is_found_once_and_only_while_kernels_are_compiled(monkeypatch):
    monkeypatch.setattr(resolved, "_FOUND", {})
    context, asked = cpu_target.typing_context, []
    add = context.resolve_value_type(operator.add)
    numba_own = type(context).resolve_function_type
    monkeypatch.setattr(
        type(context),
        "resolve_function_type",
        lambda self, *args: asked.append(args) or numba_own(self, *args),
    )
    numbers = [(types.int64, types.float64), (types.float64, types.boolean)]
    arrays = (types.float64[:],) * 2
    with resolved.remembering(context, cpu_target.target_context):
        for args in [*numbers, arrays] * 2:
            with resolved.remembering(context, cpu_target.target_context):
                assert context.resolve_function_type(add, args, {}) == numba_own(context, add, args, {})
    often = [asked.count((add, args, {})) for args in [*numbers, arrays]]
    assert often == [1, 1, 2]
    assert set(resolved._FOUND) >= {(add, args) for args in numbers}
    assert "resolve_function_type" not in vars(context)


@pytest.mark.slow
@pytest.mark.processes
def test_a_damaged_kernel_is_compiled_again(tmp_path):
    """By default its parts: half a file is none, and what is not there is compiled."""
    run(tmp_path)
    for path in tmp_path.rglob("*.nbc"):
        path.write_bytes(path.read_bytes()[:-1])
    assert run(tmp_path) == ["[0, 0, 0", "2 True\n"]


@pytest.fixture
def places(tmp_path, monkeypatch):
    found = [tmp_path / "first", tmp_path / "second"]
    monkeypatch.setattr(compiled, "folders", lambda: found)
    return found


def test_a_kernel_makes_no_arrays_unless_it_says_so(places):
    """Else nothing would free them; whether or not Numba has compiled before what makes them."""

    def make(size):
        return np.empty(size)[0]

    for _ in range(2):
        with pytest.raises((TypingError, TypeError), match=r"empty|make"):
            compiled.kernel(make)(3)
        assert isinstance(compiled.allocating(make)(3), float)
        shutil.rmtree(places[0])


@INSIDES
def test_a_kernel_calls_no_kernel(places):
    """Of one that was kept there is no code that another could be made with."""

    def more(x):
        return x + 1

    for _ in range(2):  # it is compiled, and then found
        one = compiled.kernel(more)
        assert one(2) == 3
        with pytest.raises(Exception, match=r"more.* is a kernel, and called by one"):
            compiled.kernel(lambda function, x: function(x))(one, 2)
    called = compiled.callee(more)
    assert compiled.kernel(lambda x: called(x))(2) == 3


def test_what_was_written_is_read(places):
    assert compiled.read("a") is None
    compiled.write("a", b"one")
    compiled.write("b", b"two")
    compiled.write("a", b"three")
    assert (compiled.read("a"), compiled.read("b")) == (b"three", b"two")
    assert sorted(path.name for path in places[0].iterdir()) == ["a", "b"]
    assert not places[1].exists()


def test_what_cannot_be_written_to_is_read(places):
    compiled.write("a", b"one")
    kept = places[0].rename(places[0].with_name("kept"))
    places[0].touch()  # nothing can be written to a folder that is none, not even by root
    compiled.write("b", b"two")
    assert [path.name for path in places[1].iterdir()] == ["b"]
    places[0].unlink()
    kept.rename(places[0])
    assert (compiled.read("a"), compiled.read("b")) == (b"one", b"two")
    places[:] = [places[0] / "a"]
    compiled.write("c", b"three")
    assert compiled.read("c") is None


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b[:10], lambda b: b"", lambda b: b[:-1] + b"?"]
)
def test_half_a_file_is_none(places, damage):
    compiled.write("a", b"some text")
    (places[0] / "a").write_bytes(damage((places[0] / "a").read_bytes()))
    assert compiled.read("a") is None


def test_a_file_under_another_name_is_none(places):
    """Whoever may rename files of this user's could else put an old kernel in the place of a new one."""
    compiled.write("a", b"one")
    (places[0] / "a").rename(places[0] / "b")
    assert compiled.read("b") is None
    places[0].rename(places[0].with_name("newer"))
    places[0] = places[0].with_name("newer")
    assert compiled.read("a") is None


def test_what_others_can_write_is_not_unpickled(places):
    compiled.write("a", b"one")
    (places[0] / "a").chmod(0o666)
    assert compiled.read("a") is None
    compiled.write("a", b"two")
    assert compiled.read("a") == b"two"
    places[0].chmod(0o777)
    assert compiled.read("a") is None
    compiled.write("a", b"three")  # to the next folder
    assert compiled.read("a") == b"three" and places[1].exists()


@pytest.mark.parametrize(
    "other", [b"no pickle", pickle.dumps(3), pickle.dumps((1, 2, 3))], ids=["text", "number", "tuple"]
)
def test_a_kernel_of_other_content_is_compiled_again(places, other):
    def more(x):
        return x + 1

    compiled.kernel(more)(2)
    (path,) = places[0].iterdir()
    compiled.write(path.name, other)
    assert compiled.kernel(more)(2) == 3
    assert len(path.read_bytes()) > 1000


def test_folders_that_are_relative_are_not_looked_in(monkeypatch):
    """As the specification of XDG's folders says: they would be where the program happens to run."""
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert compiled.folders()[-1].parent == Path("/home/somebody/.cache/dask_simjoin")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert compiled.folders()[-1].parent == Path("/cache/dask_simjoin")
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", "home")
    assert all(folder.is_absolute() for folder in compiled.folders())


SWITCHED_OFF = """
import pandas as pd
import dask_simjoin
frame = pd.DataFrame({"x": [0.0, 1.0], "words": [["a"], ["a"]], "n": [0, 1]})
for call in (
    lambda: frame.simjoin.self_join(1.0, on="x"),
    lambda: frame.simjoin.plan(1.0, on="x"),
    lambda: frame.simjoin.dbscan(1.0, on="x"),
    lambda: frame.simjoin.set_self_join("words", 0.5),
    lambda: dask_simjoin.connected_components(frame.rename(columns={"x": "left", "n": "right"})),
):
    try:
        print("done", call())
    except dask_simjoin.errors.SimJoinError as error:
        print(type(error).__name__, str(error)[:22])
"""


@pytest.mark.processes
def test_without_numbas_compiler_the_remedy_is_told():
    ran = subprocess.run(
        [sys.executable, "-c", SWITCHED_OFF], capture_output=True, text=True, timeout=300,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    told = ran.stdout.splitlines()
    assert told and set(told) == {"OptionError NUMBA_DISABLE_JIT=1 is"}, ran.stdout + ran.stderr[-2000:]
    assert len(told) == 5


ZIPPED = """
import sys
sys.path.insert(0, sys.argv[1])
import pandas as pd
import dask_simjoin
from dask_simjoin.engine.gpu.kernels.sources import NAMES, source
assert ".zip/" in dask_simjoin.__file__ and all(len(source(name)) > 1000 for name in NAMES)
print(pd.DataFrame({"x": [0.0, 1.0, 3.0]}).simjoin.count_pairs(1.0, on="x"))
"""


@pytest.mark.processes
def test_a_zipped_package_finds_what_is_no_module(tmp_path):
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", PACKAGE.parent, PACKAGE.name)
    ran = subprocess.run(
        [sys.executable, "-c", ZIPPED, packed], capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert ran.stdout == "1\n", ran.stderr[-2000:]
    assert any(tmp_path.rglob("*.nbc"))


def test_kernels_of_other_texts_are_others(tmp_path, monkeypatch):
    text = tmp_path / "text.py"
    text.write_text("one")
    monkeypatch.setattr(compiled, "sources", lambda: [text])
    one = compiled.stamp.__wrapped__()
    assert compiled.stamp.__wrapped__() == one
    text.write_text("two")
    assert compiled.stamp.__wrapped__() != one


def test_what_was_made_while_texts_changed_is_not_kept(places, tmp_path, monkeypatch):
    """It may be of the old text, which this process has imported, and be found by those of the new one."""
    text = tmp_path / "text.py"
    text.write_text("one")
    monkeypatch.setattr(compiled, "sources", lambda: [text])
    monkeypatch.setattr(compiled, "stamp", functools.cache(compiled.stamp.__wrapped__))
    compiled.write("a", b"one")
    text.write_text("two")
    compiled.write("b", b"one")
    assert [path.name for path in places[0].iterdir()] == ["a"] and not places[1].exists()


@pytest.mark.processes
def test_texts_are_told_apart_as_they_are_imported():
    code = "from dask_simjoin.engine.cpu.kernels import compiled as c; print(c.stamp.cache_info().currsize)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ran.stdout == "1\n", ran.stderr


def test_nothing_is_left_where_there_is_no_room(places, monkeypatch):
    def full(path, *_, **__):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(private_files, "open", full, raising=False)
    compiled.write("a", b"one")
    assert [list(place.iterdir()) for place in places] == [[], []] and compiled.read("a") is None


def test_other_types_other_machines_and_other_functions_are_other_kernels():
    calls = [
        (some, types, machine)
        for some in (link, roots)
        for types in (("int32",), ("int64",))
        for machine in (("x86", "znver5", "+avx2"), ("x86", "generic", ""))
    ]
    names = {some._cache._name(types, machine) for some, types, machine in calls}
    assert len(names) == len(calls)
    assert all("/" not in name and "<" not in name for name in names)


def test_a_stamp_is_of_all_that_kernels_import():
    texts = {path.relative_to(PACKAGE).with_suffix("") for path in compiled.sources()}
    for path in compiled.sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dask_simjoin"):
                module = Path(*node.module.split(".")[1:])
                named = {module, *(module / alias.name for alias in node.names)}
                assert named & texts or module in OTHERS, f"{path} imports {node.module}"


def test_older_kernels_are_removed_where_only_ours_are(tmp_path, monkeypatch):
    texts = compiled.sources()
    monkeypatch.setattr(compiled, "sources", lambda: texts)
    monkeypatch.setattr(compiled, "HERE", tmp_path)
    new, old, other = (tmp_path / "__pycache__" / name for name in ("kernels-2", "kernels-1", "other"))
    for folder in (old, other):
        folder.mkdir(parents=True)
    monkeypatch.setattr(compiled, "folders", lambda: [new])
    compiled.write("a", b"one")
    assert sorted(new.parent.iterdir()) == [new, other]
