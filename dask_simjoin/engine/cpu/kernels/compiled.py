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
import logging
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

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
from dask_simjoin.engine.private_files import make_folder, read_private, write_private
from dask_simjoin.errors import OptionError

LOG = logging.getLogger(__name__)

FIRST, LAST = (0, 61), (0, 68)
"""Versions of Numba whose insides are known: see `pipeline`.  Any other compiles kernels as it does by
default, to the same results, in twice the time."""

if FIRST <= tuple(int(part) for part in numba.__version__.split(".")[:2]) <= LAST:
    from dask_simjoin.engine.cpu.kernels.pipeline import ApartCompiler, CalleeCompiler, KernelCompiler
else:
    ApartCompiler = CalleeCompiler = KernelCompiler = Compiler  # type: ignore[misc]

HERE = Path(__file__).parent
PACKAGE = resources.files("dask_simjoin")  # which may be in a zip file

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
"""How kernels are compiled: in most, arrays are neither made nor counted, which is much of the code else."""

CALLEE = OPTIONS | {"pipeline_class": CalleeCompiler, "no_cpython_wrapper": True}
"""How functions are compiled that only kernels call."""

DIGEST = hashlib.sha256().digest_size


def sources() -> list[Any]:
    """Return the texts that a kernel may be made of: theirs, of indexes and filters, of norms and sets."""
    folders = (
        "engine/cpu/kernels",
        "engine/index",
        "engine/filters",
        "metrics",
        "sets/algorithms/cpu/kernels",
    )
    found = [path for folder in folders for path in (PACKAGE / folder).iterdir()]
    texts = [path for path in found if path.name.endswith(".py")]
    return sorted([*texts, PACKAGE / "sets/kinds.py"], key=str)


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
        caches = (Path(os.environ.get("XDG_CACHE_HOME", "")), Path.home() / ".cache")
        # a relative one would be wherever the program runs
        found += [one / "dask_simjoin" for one in caches if one.is_absolute()][:1]
    return [folder / f"kernels-{stamp()}" for folder in found]


def _digest(folder: Path, name: str, text: bytes) -> bytes:
    """What a file begins with: nothing is found in it if it is damaged, or was given another name."""
    return hashlib.sha256(f"{folder.name}/{name} ".encode() + text).digest()


def read(name: str, rebuilt: Callable[[bytes], Any] = bytes) -> Any:
    """What `rebuilt` makes of what is kept under a name, wherever that works; else None."""
    for folder in folders():
        try:
            text = read_private(folder / name)
            if _digest(folder, name, text[DIGEST:]) == text[:DIGEST]:
                return rebuilt(text[DIGEST:])
            LOG.debug("The kernel %s is not loaded: it is damaged.", folder / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except Exception as error:  # whatever a pickle may raise
            LOG.debug("The kernel %s is not loaded: %r", folder / name, error)
    return None


def write(name: str, text: bytes) -> None:
    """Keep something under a name, at once or not at all; where nothing can be written it is not kept.

    Nor is it where a text has changed since: what was made may be of the old one or of the new one.
    """
    if stamp.__wrapped__() != stamp():
        return
    for folder in folders():
        with contextlib.suppress(OSError):
            if not folder.exists():
                make_folder(folder)
                if folder.parent.parent == HERE:
                    _forget_others(folder)
            write_private(folder / name, _digest(folder, name, text) + text)
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

        def rebuilt(text: bytes) -> Any:
            if self._allocates:
                rtsys.initialize(target_context)  # of all that Numba may load, what runs needs only this
            return CompileResult._rebuild(target_context, *pickle.loads(text))

        found = read(self._name(types, target_context.codegen().magic_tuple()), rebuilt)
        if found is not None:
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
    if config.DISABLE_JIT:
        return _switched_off
    compiled = njit(**OPTIONS | {"_nrt": allocates}, pipeline_class=KernelCompiler)(function)
    compiled._cache = KernelCache(function, allocates)
    return compiled


def _switched_off(*_: object) -> NoReturn:
    """Refuse to join where Numba compiles nothing: in Python there are none of a processor's vectors."""
    raise OptionError(
        "NUMBA_DISABLE_JIT=1 is set in the environment, and without Numba's compiler no join runs on a CPU; "
        "unset it, or set it to 0, and start Python anew."
    )


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
