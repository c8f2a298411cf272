"""Compile kernels with Numba, and keep the compiled code in files that all processes of a machine share.

Numba's own cache is not used, for four reasons.  It loads the whole compiler before it looks a kernel up,
which takes longer than a whole first call should.  It notices changes in the kernel's module, but not in
modules that are imported there.  Two processes that write at the same time may give one file name to two
kernels.  It reads only from folders that it can write to, so an image could not include compiled kernels.
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
from numba import config, njit

from dask_simjoin.engine.process import make_folder, read_private, write_private
from dask_simjoin.errors import OptionError

LOG = logging.getLogger(__name__)

HERE = Path(__file__).parent
PACKAGE = resources.files("dask_simjoin")  # which may be in a zip file

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
"""Kernels allocate nothing, so references to arrays need not be counted (`_nrt`)."""

DEVICE = OPTIONS | {"no_cpython_wrapper": True}
"""For functions that only kernels call."""

DIGEST = hashlib.sha256().digest_size


def kernel(function: Callable[..., Any], variant: str = "") -> Any:
    """Compile a function at its first call, to run without the GIL, and cache the code on disk.

    `variant` distinguishes kernels that share one source text.
    """
    if config.DISABLE_JIT:
        return _refuse
    compiled = njit(**OPTIONS)(function)
    compiled._cache = KernelCache(function, variant)
    return compiled


def device_function(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call; LLVM decides whether it is inlined."""
    return njit(**DEVICE)(function)


def inline_function(function: Callable[..., Any]) -> Any:
    """Compile a function that LLVM inlines into kernels."""
    return njit(**DEVICE, forceinline=True)(function)


def inline_source(function: Callable[..., Any]) -> Any:
    """Inline the source of a short function into kernels, before types are inferred."""
    return njit(**DEVICE, inline="always")(function)


def _refuse(*_: object) -> NoReturn:
    """Refuse to join without a compiler: intrinsics have no Python form."""
    raise OptionError(
        "NUMBA_DISABLE_JIT=1 is set in the environment, and joins on a CPU need Numba's compiler. "
        "Unset it, or set it to 0, and start Python anew."
    )


def sources() -> list[Any]:
    """List the modules whose text decides what a kernel does; they may be in a zip file."""
    folders = (
        "engine/cpu/kernels",
        "engine/index",
        "engine/filters",
        "metrics",
        "sets/cpu/kernels",
        "strings/cpu/kernels",
        "papers/cpu",
    )
    found = [path for folder in folders for path in (PACKAGE / folder).iterdir()]
    texts = [path for path in found if path.name.endswith(".py")]
    return sorted([*texts, PACKAGE / "sets/predicate.py"], key=str)


@functools.cache
def stamp() -> str:
    """Return a digest of the texts of kernels and of the versions that compile them."""
    text = hashlib.sha256(f"{sys.version} {numba.__version__} {llvmlite.__version__}".encode())
    for path in sources():
        text.update(f"{path.name} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return text.hexdigest()[:16]


stamp()  # before any kernel module is imported: source files may change later


@functools.cache
def processor() -> str:
    """Return the processor that code is compiled for: from Numba's environment variables, or this machine."""
    name = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = config.CPU_FEATURES
    if features is None:
        features = llvmlite.binding.get_host_cpu_features().flatten()
    return repr((llvmlite.binding.get_process_triple(), name, features, config.ENABLE_AVX))


def folders() -> list[Path]:
    """Return the folders where kernels are looked up; new kernels go to the first writable folder."""
    found = [Path(config.CACHE_DIR) / "dask_simjoin"] if config.CACHE_DIR else []
    found.append(HERE / "__pycache__")
    with contextlib.suppress(RuntimeError):  # there is no home folder
        caches = (Path(os.environ.get("XDG_CACHE_HOME", "")), Path.home() / ".cache")
        # a relative path would depend on the working directory
        found += [one / "dask_simjoin" for one in caches if one.is_absolute()][:1]
    return [folder / f"kernels-{stamp()}" for folder in found]


def read(name: str, rebuilt: Callable[[bytes], Any] = bytes) -> Any:
    """Return `rebuilt(content)` for the file of this name, or None if that fails.

    A pickle runs code, so files are loaded only if this user or root wrote them: see `engine.process`.
    """
    for folder in folders():
        try:
            text = read_private(folder / name)
            if _digest(folder, name, text[DIGEST:]) == text[:DIGEST]:
                return rebuilt(text[DIGEST:])
            LOG.debug("The kernel %s is not loaded: it is damaged.", folder / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except Exception as error:  # pickle and Numba may raise anything
            LOG.debug("The kernel %s is not loaded: %r", folder / name, error)
    return None


def write(name: str, text: bytes) -> None:
    """Write content to a file of this name, atomically, in the first writable folder.

    Nothing is written if a source file changed after its import: the code may come from either version.
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


def _digest(folder: Path, name: str, text: bytes) -> bytes:
    """Return the digest of a file's content and name, which stands at the start of the file."""
    return hashlib.sha256(f"{folder.name}/{name} ".encode() + text).digest()


def _forget_others(folder: Path) -> None:
    """Remove kernels of older sources from the package's own folder."""
    for other in folder.parent.glob("kernels-*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)


class KernelCache:
    """The cache of Numba's dispatcher: one file per kernel, named after everything it depends on."""

    def __init__(self, function: Callable[..., Any], variant: str = "") -> None:
        self._function, self._variant = function, variant

    @property
    def cache_path(self) -> str:
        """The first folder."""
        return str(folders()[0])

    def _name(self, signature: Any) -> str:
        function = self._function
        types = getattr(signature, "args", signature)
        key = repr((function.__module__, function.__code__.co_firstlineno, self._variant, types, processor()))
        module = function.__module__.rpartition(".")[2]
        return f"{module}.{function.__name__}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.nbc"

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the cached code for these types, or None: then Numba compiles it."""

        def rebuilt(text: bytes) -> Any:
            rebuild, parts = pickle.loads(text)
            return rebuild(target_context, *parts)

        return read(self._name(signature), rebuilt)

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Cache compiled code, unless it has addresses of this process."""
        if getattr(compiled.library, "has_dynamic_globals", True):
            return
        # other versions of Numba may lack these methods; nothing is cached then
        with contextlib.suppress(AttributeError, TypeError, pickle.PicklingError):
            text = pickle.dumps((type(compiled)._rebuild, compiled._reduce()))
            write(self._name(signature), text)
