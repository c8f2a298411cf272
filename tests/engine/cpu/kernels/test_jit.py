"""Compiled kernels are found again, by all who should find them, and by nobody else."""

import ast
import errno
import functools
import logging
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import TypingError

from dask_simjoin.catalog import METHODS
from dask_simjoin.engine import process
from dask_simjoin.engine.cpu.kernels import jit
from dask_simjoin.engine.cpu.kernels.components import link, roots
from dask_simjoin.engine.cpu.kernels.scan import SCANS
from dask_simjoin.engine.cpu.kernels.tiles import _JOINS
from tests.support.gpu_programs import names

PACKAGE = jit.PACKAGE

OTHERS = {
    Path("errors"),
    Path("engine/base"),
    Path("engine/collecting"),
    Path("engine/process"),
    *(Path(*type(method).__module__.split(".")[1:]) for method in METHODS.values()),
}
"""What kernels' texts import besides each other, as options of methods: nothing is
compiled of it.
"""

COUNT = """
import sys
import numpy as np
from numba.core import event
compiled = event.RecordingListener()
event.register("numba:compile", compiled)
from pathlib import Path
from dask_simjoin.engine.cpu.kernels import jit
from dask_simjoin.engine.cpu.kernels.components import link
jit.folders = lambda: [Path(sys.argv[1])]  # others may have compiled it already
parent = np.arange(3, dtype=np.int32)
link(parent, np.array([0, 1]), np.array([1, 2]), parent.copy(), parent.copy())
print(parent.tolist(), sum(e.is_start for _, e in compiled.buffer), "numba.np.linalg" in sys.modules)
"""


DISABLED = """
import pandas as pd
import dask_simjoin
frame = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 0.0]})
try:
    frame.simjoin.count_pairs(2.0)
except dask_simjoin.errors.OptionError as error:
    print(error)
"""


def run(cache):
    command = [sys.executable, "-c", COUNT, str(cache)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.split("] ")


@pytest.mark.processes
def test_a_kernel_is_compiled_once_and_then_found_without_loading_the_compiler(
    tmp_path,
):
    assert run(tmp_path) == ["[0, 0, 0", "2 True\n"]  # with what it calls
    assert run(tmp_path) == ["[0, 0, 0", "0 False\n"]


@pytest.mark.slow
@pytest.mark.processes
def test_without_the_compiler_joins_are_refused():
    ran = subprocess.run(
        [sys.executable, "-c", DISABLED],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
    )
    assert "NUMBA_DISABLE_JIT=1 is set" in ran.stdout, ran.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.processes
def test_a_damaged_kernel_is_compiled_again(tmp_path):
    """A file that is cut off is not loaded, nor one that Numba cannot read."""
    run(tmp_path)
    for path in tmp_path.rglob("*.nbc"):
        path.write_bytes(path.read_bytes()[:-1])
    assert run(tmp_path) == ["[0, 0, 0", "2 True\n"]
    for path in tmp_path.rglob("*.nbc"):
        text = pickle.dumps((print, ("other",)))
        path.write_bytes(jit._digest(path.parent, path.name, text) + text)
    assert run(tmp_path)[-1] == "2 True\n"


@pytest.fixture
def places(tmp_path, monkeypatch):
    found = [tmp_path / "first", tmp_path / "second"]
    monkeypatch.setattr(jit, "folders", lambda: found)
    return found


def test_a_process_says_once_that_it_compiles(places, caplog):
    jit._announce.cache_clear()
    assert not jit.compiled_here()
    cache = jit.KernelCache(test_a_process_says_once_that_it_compiles)
    with caplog.at_level(logging.INFO, "dask_simjoin"):
        for signature in ("a", "b"):
            assert cache.load_overload(signature, None) is None
    assert [record.message for record in caplog.records] == [
        "compiling kernels, which takes some seconds, once per machine"
    ]
    assert jit.compiled_here()


def test_what_was_written_is_read(places):
    assert jit.read("a") is None
    jit.write("a", b"one")
    jit.write("b", b"two")
    jit.write("a", b"three")
    assert (jit.read("a"), jit.read("b")) == (b"three", b"two")
    assert sorted(path.name for path in places[0].iterdir()) == ["a", "b"]
    assert not places[1].exists()


def test_what_cannot_be_written_to_is_read(places):
    jit.write("a", b"one")
    kept = places[0].rename(places[0].with_name("kept"))
    # nothing can be written to a folder that is none, not even by root
    places[0].touch()
    jit.write("b", b"two")
    assert [path.name for path in places[1].iterdir()] == ["b"]
    places[0].unlink()
    kept.rename(places[0])
    assert (jit.read("a"), jit.read("b")) == (b"one", b"two")
    places[:] = [places[0] / "a"]
    jit.write("c", b"three")
    assert jit.read("c") is None


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], lambda b: b[:10], lambda b: b"", lambda b: b[:-1] + b"?"],
)
def test_half_a_file_is_none(places, damage):
    jit.write("a", b"some text")
    (places[0] / "a").write_bytes(damage((places[0] / "a").read_bytes()))
    assert jit.read("a") is None


@pytest.mark.parametrize("what", ["file", "folder", "folder above"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_can_write_is_not_loaded(places, what, mode):
    """A pickle runs code: it would be theirs."""
    jit.write("a", b"one")
    path = {
        "file": places[0] / "a",
        "folder": places[0],
        "folder above": places[0].parent,
    }[what]
    path.chmod(path.stat().st_mode | mode)
    assert jit.read("a") is None
    path.chmod(path.stat().st_mode & ~mode)
    assert jit.read("a") == b"one"


def test_nothing_is_written_where_others_can_write(places):
    places[0].mkdir(parents=True)
    places[0].chmod(0o777)
    jit.write("a", b"one")
    assert [list(place.iterdir()) for place in places] == [[], [places[1] / "a"]]


@pytest.mark.parametrize("umask", [0, 0o077])
def test_modes_do_not_depend_on_the_umask(places, umask):
    before = os.umask(umask)
    try:
        jit.write("a", b"one")
    finally:
        os.umask(before)
    assert jit.read("a") == b"one"


def test_a_file_under_another_name_is_none(places):
    """Whoever may rename files of this user's could else put an old kernel in the place
    of a new one.
    """
    jit.write("a", b"one")
    (places[0] / "a").rename(places[0] / "b")
    assert jit.read("b") is None
    places[0].rename(places[0].with_name("newer"))
    places[0] = places[0].with_name("newer")
    assert jit.read("a") is None


@pytest.mark.parametrize(
    "other",
    [b"no pickle", pickle.dumps(3), pickle.dumps((1, 2, 3))],
    ids=["text", "number", "tuple"],
)
def test_a_kernel_of_other_content_is_compiled_again(places, other):
    def more(x):
        return x + 1

    jit.kernel(more)(2)
    (path,) = places[0].iterdir()
    jit.write(path.name, other)
    assert jit.kernel(more)(2) == 3
    assert len(path.read_bytes()) > 1000


def test_folders_that_are_relative_are_not_looked_in(monkeypatch):
    """As the specification of XDG's folders says: they would be where the program
    happens to run.
    """
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert jit.folders()[-1].parent == Path("/home/somebody/.cache/dask_simjoin")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert jit.folders()[-1].parent == Path("/cache/dask_simjoin")
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", "home")
    assert all(folder.is_absolute() for folder in jit.folders())


ZIPPED = """
import sys
sys.path.insert(0, sys.argv[1])
import pandas as pd
import dask_simjoin
from dask_simjoin.engine.cpu.kernels.jit import sources
from dask_simjoin.engine.gpu.sources import source
assert ".zip/" in dask_simjoin.__file__
assert len(sources()) > 20
assert all(len(source(name)) > 1000 for name in sys.argv[2:])
print(pd.DataFrame({"x": [0.0, 1.0, 3.0]}).simjoin.count_pairs(1.0, on="x"))
"""


@pytest.mark.slow
@pytest.mark.processes
def test_a_zipped_package_finds_what_is_no_module(tmp_path):
    packed = shutil.make_archive(
        str(tmp_path / "packed"), "zip", PACKAGE.parent, PACKAGE.name
    )
    programs = [*names(), *names("papers"), *names("sets")]
    ran = subprocess.run(
        [sys.executable, "-c", ZIPPED, packed, *programs],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env=os.environ
        | {
            "NUMBA_CACHE_DIR": str(tmp_path),
            "XDG_CACHE_HOME": str(tmp_path / "no kernels"),
        },
    )
    assert ran.stdout == "1\n", ran.stderr[-2000:]
    assert any(tmp_path.rglob("*.nbc"))


def test_a_kernel_allocates_nothing(places):
    """References to arrays are not counted, so nothing would free them."""
    with pytest.raises(TypingError):
        jit.kernel(lambda size: np.empty(size)[0])(3)


def test_kernels_of_other_texts_are_others(tmp_path, monkeypatch):
    text = tmp_path / "text.py"
    text.write_text("one")
    monkeypatch.setattr(jit, "sources", lambda: [text])
    one = jit.stamp.__wrapped__()
    assert jit.stamp.__wrapped__() == one
    text.write_text("two")
    assert jit.stamp.__wrapped__() != one


def test_what_was_made_while_texts_changed_is_not_kept(places, tmp_path, monkeypatch):
    """It may be of the old text, which this process has imported, and be found by those
    of the new one.
    """
    text = tmp_path / "text.py"
    text.write_text("one")
    monkeypatch.setattr(jit, "sources", lambda: [text])
    monkeypatch.setattr(jit, "stamp", functools.cache(jit.stamp.__wrapped__))
    jit.write("a", b"one")
    text.write_text("two")
    jit.write("b", b"one")
    assert [path.name for path in places[0].iterdir()] == ["a"] and not places[
        1
    ].exists()


@pytest.mark.slow
@pytest.mark.processes
def test_texts_are_told_apart_as_they_are_imported():
    code = "from dask_simjoin.engine.cpu.kernels import jit; print(jit.stamp.cache_info().currsize)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300
    )
    assert ran.stdout == "1\n", ran.stderr


def test_nothing_is_left_where_there_is_no_room(places, monkeypatch):
    def full(path, *_, **__):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(process, "open", full, raising=False)
    jit.write("a", b"one")
    assert [list(place.iterdir()) for place in places] == [[], []] and jit.read(
        "a"
    ) is None


def test_other_types_other_processors_and_other_functions_are_other_kernels(
    monkeypatch,
):
    names = set()
    for processor in ("znver5 +avx2", "generic"):
        monkeypatch.setattr(jit, "processor", lambda found=processor: found)
        names |= {
            some._cache._name(types)
            for some in (link, roots)
            for types in (("int32",), ("int64",))
        }
        names |= {
            some._cache._name(("int32",)) for two in _JOINS.values() for some in two
        }
    assert len(names) == 2 * (4 + 2 * len(SCANS))
    assert all("/" not in name and "<" not in name for name in names)


def names_in_kernels(tree):
    """The names in the compiled functions of a module."""
    compiled = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    ]
    return {
        node.id
        for function in compiled
        for node in ast.walk(function)
        if isinstance(node, ast.Name)
    }


def test_a_stamp_is_of_all_that_kernels_import():
    texts = {path.relative_to(PACKAGE).with_suffix("") for path in jit.sources()}
    for path in jit.sources():
        tree = ast.parse(path.read_text())
        # modules of papers have kernels beside other functions, whose imports do not
        # matter
        of_papers = path.relative_to(PACKAGE).parts[0] == "papers"
        used = names_in_kernels(tree) if of_papers else None
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "dask_simjoin"
            ):
                names = [
                    alias.name
                    for alias in node.names
                    if used is None or alias.name in used
                ]
                module = Path(*node.module.split(".")[1:])
                named = {module, *(module / name for name in names)}
                assert not names or named & texts or module in OTHERS, (
                    f"{path} imports {node.module}"
                )


def test_older_kernels_are_removed_where_only_ours_are(tmp_path, monkeypatch):
    texts = jit.sources()
    monkeypatch.setattr(jit, "sources", lambda: texts)
    monkeypatch.setattr(jit, "HERE", tmp_path)
    new, old, other = (
        tmp_path / "__pycache__" / name for name in ("kernels-2", "kernels-1", "other")
    )
    for folder in (old, other):
        folder.mkdir(parents=True)
    monkeypatch.setattr(jit, "folders", lambda: [new])
    jit.write("a", b"one")
    assert sorted(new.parent.iterdir()) == [new, other]
