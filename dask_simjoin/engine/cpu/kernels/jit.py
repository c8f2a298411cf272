"""Compile kernels with Numba, and cache the compiled code in files that all processes
of a machine share.

We do not use Numba's own cache, for four reasons. It loads the whole compiler before it
looks for a kernel, which makes the first call slow. It notices changes in a kernel's
module, but not in modules that the kernel's module imports. Two processes that write at
the same time may choose the same file name for different kernels. It reads only from
folders that it can write to, so a container image could not include compiled kernels.
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
# not a Path, because the package may be in a zip file
PACKAGE = resources.files("dask_simjoin")

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,
    "no_cfunc_wrapper": True,
}
"""Numba's options for kernels. Kernels allocate nothing, so `_nrt` turns reference
counting off.
"""

DEVICE = OPTIONS | {"no_cpython_wrapper": True}
"""Numba's options for functions that only kernels call."""

DIGEST = hashlib.sha256().digest_size


def kernel(function: Callable[..., Any], variant: str = "") -> Any:
    """Make a kernel: it is compiled at its first call, cached on disk, and runs without
    the GIL.

    `variant`: distinguishes kernels that are made from the same source code.
    """
    if config.DISABLE_JIT:
        return _refuse
    compiled = njit(**OPTIONS)(function)
    compiled._cache = KernelCache(function, variant)
    return compiled


def device_function(function: Callable[..., Any]) -> Any:
    """Make a function that only kernels call; LLVM decides whether to inline it."""
    return njit(**DEVICE)(function)


def inline_function(function: Callable[..., Any]) -> Any:
    """Make a function that only kernels call; LLVM always inlines it."""
    return njit(**DEVICE, forceinline=True)(function)


def inline_source(function: Callable[..., Any]) -> Any:
    """Make a short function that only kernels call; Numba inlines its source before it
    infers types.
    """
    return njit(**DEVICE, inline="always")(function)


def _refuse(*_: object) -> NoReturn:
    """Raise an error.

    This replaces each kernel if Numba is disabled, because intrinsics cannot run as
    Python.
    """
    raise OptionError(
        "NUMBA_DISABLE_JIT=1 is set in the environment, and joins on a CPU need "
        "Numba's compiler. "
        "Unset it, or set it to 0, and restart Python."
    )


KERNEL_FOLDERS = (
    "engine/cpu/kernels",
    "engine/index",
    "engine/filters",
    "metrics",
    "papers/cpu",
)

KERNEL_FILES = (
    "sizes.py",
    "papers/cluster_index.py",
    "sets/predicate.py",
    "sets/cpu/candidates.py",
    "sets/cpu/encoding.py",
    "sets/cpu/joins.py",
    "strings/distances.py",
    "strings/search.py",
)


def sources() -> list[Any]:
    """List the source files that kernels depend on. The files may be in a zip file."""
    found = [path for folder in KERNEL_FOLDERS for path in (PACKAGE / folder).iterdir()]
    texts = [path for path in found if path.name.endswith(".py")]
    return sorted([*texts, *(PACKAGE / file for file in KERNEL_FILES)], key=str)


@functools.cache
def stamp() -> str:
    """Return a digest of the kernels' source files, and of the versions of Python,
    Numba and llvmlite.
    """
    text = hashlib.sha256(
        f"{sys.version} {numba.__version__} {llvmlite.__version__}".encode()
    )
    for path in sources():
        text.update(
            f"{path.name} ".encode() + hashlib.sha256(path.read_bytes()).digest()
        )
    return text.hexdigest()[:16]


# cached here, before kernel modules are imported, because source files may change after
# that
stamp()


@functools.cache
def processor() -> str:
    """Return the name of the processor that kernels are compiled for.

    Numba's environment variables set it; by default it is the processor of this
    machine.
    """
    name = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = config.CPU_FEATURES
    if features is None:
        features = llvmlite.binding.get_host_cpu_features().flatten()
    return repr(
        (llvmlite.binding.get_process_triple(), name, features, config.ENABLE_AVX)
    )


def folders() -> list[Path]:
    """Return the folders of the cache.

    Kernels are read from all of them, and written to the first writable one.
    """
    found = [Path(config.CACHE_DIR) / "dask_simjoin"] if config.CACHE_DIR else []
    found.append(HERE / "__pycache__")
    with contextlib.suppress(RuntimeError):  # raised if there is no home folder
        caches = (Path(os.environ.get("XDG_CACHE_HOME", "")), Path.home() / ".cache")
        # skip a relative path, because it would depend on the working directory
        found += [one / "dask_simjoin" for one in caches if one.is_absolute()][:1]
    return [folder / f"kernels-{stamp()}" for folder in found]


def read(name: str, rebuilt: Callable[[bytes], Any] = bytes) -> Any:
    """Return `rebuilt(content)` for the cached file with this name; None if there is no
    intact file.

    Unpickling can run any code, so a file is loaded only if no other user can have
    written it: see `engine.process`.
    """
    for folder in folders():
        try:
            text = read_private(folder / name)
            if _digest(folder, name, text[DIGEST:]) == text[:DIGEST]:
                return rebuilt(text[DIGEST:])
            LOG.debug("The kernel %s is not loaded: it is damaged.", folder / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        # pickle and Numba may raise any exception for a file they do not understand
        except Exception as error:
            LOG.debug("The kernel %s is not loaded: %r", folder / name, error)
    return None


def write(name: str, text: bytes) -> None:
    """Write a file with this name, atomically, to the first writable folder of the
    cache.

    Nothing is written if a source file has changed since it was imported, because the
    code in memory may then be outdated.
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
    """Return the digest of a file's folder, name and content. A file begins with its
    digest.
    """
    return hashlib.sha256(f"{folder.name}/{name} ".encode() + text).digest()


def _forget_others(folder: Path) -> None:
    """Remove kernels of older versions of the source from the package's own folder."""
    for other in folder.parent.glob("kernels-*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)


@functools.cache
def _announce() -> None:
    """Log, once per process, why a call takes seconds."""
    LOG.info("compiling kernels, which takes some seconds, once per machine")


def compiled_here() -> bool:
    """Return whether this process has compiled kernels."""
    return _announce.cache_info().currsize > 0


class KernelCache:
    """Cache for one function, in place of Numba's. The cache has one file for each
    signature and processor.

    The file's name has a digest of everything that the compiled code depends on.
    """

    def __init__(self, function: Callable[..., Any], variant: str = "") -> None:
        self._function, self._variant = function, variant

    @property
    def cache_path(self) -> str:
        return str(folders()[0])

    def _name(self, signature: Any) -> str:
        function = self._function
        types = getattr(signature, "args", signature)
        key = repr(
            (
                function.__module__,
                function.__code__.co_firstlineno,
                self._variant,
                types,
                processor(),
            )
        )
        module = function.__module__.rpartition(".")[2]
        return f"{module}.{function.__name__}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.nbc"

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the cached code for these types of arguments; None: it is missing, so
        Numba compiles it.
        """

        def rebuilt(text: bytes) -> Any:
            rebuild, parts = pickle.loads(text)
            return rebuild(target_context, *parts)

        found = read(self._name(signature), rebuilt)
        if found is None:
            _announce()
        return found

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Write compiled code to the cache, unless it contains addresses of this
        process.
        """
        if getattr(compiled.library, "has_dynamic_globals", True):
            return
        # these methods are private: if a version of Numba lacks them, nothing is cached
        with contextlib.suppress(AttributeError, TypeError, pickle.PicklingError):
            text = pickle.dumps((type(compiled)._rebuild, compiled._reduce()))
            write(self._name(signature), text)
