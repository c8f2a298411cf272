"""Compile kernels with Numba, and keep what it made where all processes of a machine find it.

Numba's own cache would do but for four things.  Before it looks for a kernel it loads all that it could
compile with: .15 s in each process.  It counts a kernel as fresh as long as its module's text is, but in a
kernel is also what that module imports.  It numbers the files of a function, and two processes that write at
a time may give one number to two kernels, for other types or another processor.  And it reads only where it
can write: what was compiled when an image was built is not found by those who may not write there.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import shutil
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba import config, njit
from numba.core.caching import NullCache
from numba.core.compiler import Compiler, CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from dask_simjoin.engine.cpu.kernels.annotations import Signature, TargetContext

FIRST, LAST = (0, 61), (0, 68)
"""Versions of Numba whose insides are known: see `pipeline`.  Any other compiles kernels as it does by
default, to the same results, in twice the time."""

if FIRST <= tuple(int(part) for part in numba.__version__.split(".")[:2]) <= LAST:
    from dask_simjoin.engine.cpu.kernels.pipeline import ApartCompiler, CalleeCompiler, KernelCompiler
else:
    ApartCompiler = CalleeCompiler = KernelCompiler = Compiler  # type: ignore[misc]

HERE = Path(__file__).parent
ENGINE = HERE.parents[1]

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
"""How kernels are compiled: in most, arrays are neither made nor counted, which is much of the code else."""

CALLEE = OPTIONS | {"pipeline_class": CalleeCompiler, "no_cpython_wrapper": True}
"""How functions are compiled that only kernels call."""

DIGEST = hashlib.sha256().digest_size


def sources() -> list[Path]:
    """Return the texts that a kernel may be made of: theirs, of indexes and filters, of norms and sets."""
    sets = ENGINE.parent / "sets"
    folders = (
        HERE,
        ENGINE / "index",
        ENGINE / "filters",
        ENGINE.parent / "metrics",
        sets / "algorithms/cpu/kernels",
    )
    return sorted([*(path for folder in folders for path in folder.glob("*.py")), sets / "kinds.py"])


@functools.cache
def stamp() -> str:
    """What kernels of these texts, made by these versions, are told from others by."""
    text = hashlib.sha256(f"{sys.version} {numba.__version__} {llvmlite.__version__}".encode())
    for path in sources():
        text.update(f"{path.name} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return text.hexdigest()[:16]


stamp()  # of the texts as they are now, since kernels' modules are imported from here on


def folders() -> list[Path]:
    """Where kernels are looked for: the first that can be written to takes new ones."""
    found = [Path(config.CACHE_DIR) / "dask_simjoin"] if config.CACHE_DIR else []
    found.append(HERE / "__pycache__")
    with contextlib.suppress(RuntimeError):  # there is no home
        found.append(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dask_simjoin")
    return [folder / f"kernels-{stamp()}" for folder in found]


def read(name: str) -> bytes | None:
    """What is kept under a name, wherever that is; None where nothing is, or half of it."""
    for folder in folders():
        with contextlib.suppress(OSError):
            text = (folder / name).read_bytes()
            if hashlib.sha256(text[DIGEST:]).digest() == text[:DIGEST]:
                return text[DIGEST:]
    return None


def write(name: str, text: bytes) -> None:
    """Keep something under a name, at once or not at all; where nothing can be written it is not kept.

    Nor is it where a text has changed since: what was made may be of the old one or of the new one.
    """
    if stamp.__wrapped__() != stamp():
        return
    for folder in folders():
        part = folder / f"{uuid.uuid4().hex}.part"
        with contextlib.suppress(OSError):
            if not folder.exists():
                folder.mkdir(parents=True)
                if folder.parent.parent == HERE:
                    _forget_others(folder)
            try:
                part.write_bytes(hashlib.sha256(text).digest() + text)
                part.replace(folder / name)
            finally:  # of a full disk it would take the rest
                part.unlink(missing_ok=True)
            return


def _forget_others(folder: Path) -> None:
    """Remove kernels of older texts from where only this package's are."""
    for other in folder.parent.glob("kernels-*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)


class KernelCache(NullCache):
    """What Numba asks for the compiled forms of a function: a file each, named by all that it depends on."""

    def __init__(self, function: Callable[..., Any], allocates: bool) -> None:
        self._function, self._allocates = function, allocates

    @property
    def cache_path(self) -> str:
        """Where it looks first."""
        return str(folders()[0])

    def _name(self, types: tuple[Any, ...], machine: tuple[Any, ...]) -> str:
        name = f"{self._function.__module__.rpartition('.')[2]}.{self._function.__qualname__}"
        key = repr((self._function.__module__, self._function.__code__.co_firstlineno, types, machine))
        return f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.nbc"

    def load_overload(self, sig: Signature | tuple[Any, ...], target_context: TargetContext) -> Any:
        """Return what was compiled for these types and this processor, or None."""
        types, _ = normalize_signature(sig)
        text = read(self._name(types, target_context.codegen().magic_tuple()))
        if text is None:
            return None
        if self._allocates:
            rtsys.initialize(target_context)  # of all that Numba may load, what runs needs only this
        found = CompileResult._rebuild(target_context, *pickle.loads(text))
        found.library.called_by_kernels = False  # see `_names_of`
        return found

    def save_overload(self, sig: Signature | tuple[Any, ...], data: Any) -> None:
        """Keep what was compiled."""
        types, _ = normalize_signature(sig)
        if not data.library.has_dynamic_globals:  # addresses of this process
            (name, kind, (code, _)), *rest = data._reduce()
            text = dumps(((name, kind, (code, _names_of(data.library))), *rest))
            write(self._name(types, data.codegen.magic_tuple()), text)


def _names_of(library: Any) -> bytes:
    """What Numba reads of a kernel's code for LLVM, once it is compiled: the names of its functions.

    By default all of the code is read, as other functions might call it, for as long as all else takes.
    """
    nothing = ir.FunctionType(ir.VoidType(), ())
    module = ir.Module()
    module.triple = library._final_module.triple
    for function in library.get_defined_functions():
        ir.IRBuilder(ir.Function(module, nothing, function.name).append_basic_block()).ret_void()
    text: bytes = llvmlite.binding.parse_assembly(str(module)).as_bitcode()
    return text


def kernel(function: Callable[..., Any], allocates: bool = False) -> Any:
    """Compile a function when it is first called, without Python's lock, and keep what was compiled."""
    compiled = njit(**OPTIONS | {"_nrt": allocates}, pipeline_class=KernelCompiler)(function)
    if not config.DISABLE_JIT:
        compiled._cache = KernelCache(function, allocates)
    return compiled


def allocating(function: Callable[..., Any]) -> Any:
    """Compile a function that makes arrays: each is a tenth of a second of compiling, so most get theirs."""
    return kernel(function, allocates=True)


def callee(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call, as a part of each."""
    return njit(**CALLEE)(function)


def apart(function: Callable[..., Any]) -> Any:
    """Compile a function that kernels call seldom, once for each of them."""
    return njit(**CALLEE | {"pipeline_class": ApartCompiler})(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call, and put it where they do."""
    return njit(**CALLEE, forceinline=True)(function)
