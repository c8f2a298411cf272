"""CUDA C++ without a GPU, compiled for the host.

Threads run one after the other, or at once where there are barriers.  Each takes itself
to be the only active one of its warp, and what a group's first lane hands on is there.
"""

import ctypes
import functools
import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import types
from contextlib import contextmanager

import numpy as np

from dask_simjoin.engine import base
from dask_simjoin.engine.gpu.sources import source

HOST = """
#include <cmath>
#include <cstring>
#include <pthread.h>
#include <thread>
#include <vector>
struct Place { unsigned x; };
static thread_local Place threadIdx, blockIdx;
static pthread_barrier_t host_barrier;
static void __syncthreads() { pthread_barrier_wait(&host_barrier); }
struct int2 { int x, y; };
static int2 make_int2(int x, int y) { return {x, y}; }
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __restrict__ __restrict
#define __shared__ static
static double __dadd_rn(double a, double b) { return a + b; }
static double __dsub_rn(double a, double b) { return a - b; }
static double __ddiv_rn(double a, double b) { return a / b; }
static double __dmul_rn(double a, double b) { return a * b; }
template <class T> T min(T a, T b) { return a < b ? a : b; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
static unsigned __match_any_sync(unsigned active, int) { return active; }
static int __popc(unsigned a) { return __builtin_popcount(a); }
static int __ffs(int a) { return __builtin_ffs(a); }
static unsigned __activemask() { return 1u << (threadIdx.x & 31); }
template <class T> T atomicAdd(T* at, T more) { return __atomic_fetch_add(at, more, __ATOMIC_SEQ_CST); }
template <class T> T atomicCAS(T* at, T was, T now) {
    __atomic_compare_exchange_n(at, &was, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return was;
}
template <class T> T atomicMin(T* at, T other) {
    T old = *at;
    while (other < old) {
        const T was = atomicCAS(at, old, other);
        if (was == old) break;
        old = was;
    }
    return old;
}
template <class T> T __shfl_sync(unsigned, T value, int lane) {
    static thread_local T kept[32];
    kept[threadIdx.x & 31] = value;
    return kept[lane];
}
using std::fabs;
"""


OPTIONS = (
    "-std=c++14",
    "-O0",
    "-ffp-contract=off",
    "-w",
    "-pthread",
    "-shared",
    "-fPIC",
)
"""Of C++14, since with C++17 <cmath> has many more functions, and each compilation
takes a quarter longer.
"""


def build(head, text, path, options):
    """Compile a text after a head, which is precompiled once for all texts of a folder."""
    header = (
        path.parent.parent
        / f"host-{hashlib.sha256(head.encode()).hexdigest()[:16]}.hpp"
    )
    ready = header.with_name(f"{header.name}.gch")
    if not ready.exists():
        header.write_text(head)
        made = header.with_name(f"{header.name}.{os.getpid()}")
        # compile without linking: an option of the linker would make g++ leave a
        # library there, and read none
        subprocess.run(
            ["g++", *options, "-c", "-x", "c++-header", header, "-o", made], check=True
        )
        made.replace(ready)
    path.write_text(f'#include "{header}"\n{text}')
    subprocess.run(["g++", *options, path, "-o", path.with_suffix(".so")], check=True)


def available():
    """Return whether there is a compiler."""
    return shutil.which("g++") is not None


def library_of(name, function, text, folder, constants):
    """Return the kernels of a source that share one library, and the library's path.

    A kernel whose name comes from a macro, or that depends on a condition, has a
    library of its own.
    """
    kernels, depth, before = [], 0, ""
    for line in text.splitlines():
        depth += line.startswith("#if") - line.startswith("#endif")
        if (
            not depth
            and before.startswith('extern "C" __global__ void')
            and (found := re.match(r"\w+\(", line))
        ):
            kernels.append(found[0][:-1])
        before = line
    if function not in kernels:
        name, kernels = f"{name}-{function}", [function]
    label = "-".join(f"{key}{int(value)}" for key, value in sorted(constants.items()))
    return kernels, folder / f"{name.replace('/', '-')}-{label}.cpp"


def _run_of(function, text):
    """Return a function in C++ that runs a kernel's threads."""
    signature = re.search(rf"\n{function}\(([^{{]*)\) {{", text).group(1)
    names = ", ".join(re.findall(r"(\w+)(?:,|$)", signature.replace("\n", " ")))
    each = f"""
        for (blockIdx.x = 0; blockIdx.x < host_blocks; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < host_threads; threadIdx.x++) {function}({names});
    """
    together = f"""
        pthread_barrier_init(&host_barrier, nullptr, host_threads);
        std::vector<std::thread> threads;
        for (unsigned n = 0; n < host_threads; n++)
            threads.emplace_back([=] {{
                threadIdx.x = n;
                for (blockIdx.x = 0; blockIdx.x < host_blocks; blockIdx.x++) {{
                    {function}({names});
                    __syncthreads();
                }}
            }});
        for (auto& thread : threads) thread.join();
        pthread_barrier_destroy(&host_barrier);
    """
    return f"""
    extern "C" void run_{function}(unsigned host_blocks, unsigned host_threads, {signature}) {{
        {together if "__syncthreads" in text else each}
    }}
    """


def compiled(name, function, folder, **constants):
    """Compile a kernel for the host; return a function of blocks, threads and the
    kernel's arguments.
    """
    text = source(name)
    kernels, path = library_of(f"threads-{name}", function, text, folder, constants)
    library = path.with_suffix(".so")
    if not library.exists():
        defined = "".join(
            f"#define {key} {int(value)}\n" for key, value in constants.items()
        )
        build(
            HOST,
            defined + text + "".join(_run_of(kernel, text) for kernel in kernels),
            path,
            OPTIONS,
        )
    run = getattr(ctypes.CDLL(str(library)), f"run_{function}")

    def launch(blocks, threads, arguments):
        run(
            ctypes.c_uint(blocks[0]),
            ctypes.c_uint(threads[0]),
            *map(_argument, arguments),
        )

    return launch


def _argument(value):
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        return ctypes.c_void_p(value.ctypes.data)
    return np.ctypeslib.as_ctypes_type(value.dtype)(value.item())


class Array(np.ndarray):
    """A NumPy array with the attributes of CuPy's arrays."""

    def set(self, values):
        self[...] = values

    def get(self, stream=None, out=None, blocking=True):
        if out is None:
            return np.array(self)
        out[...] = self
        return out

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)


class Event:
    """An event that has already happened."""

    def synchronize(self):
        pass


class Stream:
    """A stream whose work is done at once."""

    def __init__(self, non_blocking=False):
        assert non_blocking

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def synchronize(self):
        pass

    def wait_event(self, event):
        assert isinstance(event, Event)

    def record(self):
        return Event()


def _made(function):
    """Wrap a NumPy function so that its arrays have the attributes of CuPy's."""

    def made(*given, **named):
        found = function(*given, **named)
        return found.view(Array) if isinstance(found, np.ndarray) else found

    return made


ROOMS = "dask_simjoin.engine.gpu", "dask_simjoin.papers.gpu"
"""Packages whose modules import CuPy."""

PLAIN = "sources", "gpu", "kernels"
"""Modules whose names end so do not import CuPy, and stay unchanged."""


@contextmanager
def as_cupy(folder, compiled, rooms, memory=1 << 34):
    """Let some rooms import a module `cupy` on top of NumPy, whose kernels `compiled`
    makes.
    """
    fake = types.ModuleType("cupy")
    for name in dir(np):
        own = getattr(np, name)
        if not name.startswith("__"):
            plain = isinstance(own, type) or not callable(own)
            setattr(fake, name, own if plain else _made(own))
    fake.cuda = types.SimpleNamespace(
        Stream=Stream,
        get_current_stream=lambda: Stream(non_blocking=True),
        alloc_pinned_memory=bytearray,
        Device=lambda: types.SimpleNamespace(mem_info=(memory, memory)),
    )

    def taken():
        loaded = [name for name in sys.modules if name.startswith((*rooms, "cupy"))]
        return {
            name: sys.modules.pop(name) for name in loaded if not name.endswith(PLAIN)
        }

    kept = taken()
    sys.modules["cupy"] = fake
    try:
        # not `from ... import load`, which takes the module that was loaded before
        load = importlib.import_module("dask_simjoin.engine.gpu.load")
        load.kernel = functools.cache(functools.partial(compiled, folder=folder))
        load.begin = lambda *programs: None
        base.method_module.cache_clear()
        yield fake
        base.method_module.cache_clear()
    finally:
        taken()
        sys.modules |= kept


@contextmanager
def like_cupy(folder, memory=1 << 34):
    """Provide that module, and whatever joins grids with it; kernels run thread by
    thread.
    """
    with as_cupy(folder, compiled, ROOMS, memory) as fake:
        from dask_simjoin.papers.gpu import grid

        yield fake, grid
