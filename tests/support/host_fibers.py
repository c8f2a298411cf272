"""CUDA C++ with barriers without a GPU: a block's threads run on the host in turns,
each up to a barrier.

Exchanges of a warp go through all 32 lanes; where lanes go different ways, each counts
as the only one that is active.  A kernel that is given arguments of other sizes than it
takes, or too few, says so.
"""

import ctypes

import numpy as np

from dask_simjoin.engine.gpu.sources import source
from tests.support.host_gpu import ROOMS, as_cupy, build, library_of

HOST = r"""
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <ucontext.h>
struct Place { unsigned x; };
static Place threadIdx, blockIdx, blockDim, gridDim;
struct int2 { int x, y; };
static int2 make_int2(int x, int y) { return {x, y}; }
struct alignas(16) float4 { float x, y, z, w; };
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct alignas(16) double2 { double x, y; };
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
static const int STACK = 1 << 16;

struct Fiber { ucontext_t context; jmp_buf here; bool begun, ended; char* stack; };
struct Group { unsigned long long slots[32]; unsigned arrived, mask; };
struct Warp {
    unsigned long long slots[2][32], read[32][32];
    unsigned arrived, turn, moves, ready, active[32];
    void* calls[32];
    Group groups[32];  // of some lanes, by the first one
};
static Fiber fibers[1024];
static Warp warps[32];
static ucontext_t host;
static jmp_buf host_here;
static unsigned at_barrier, barrier_turn, current;
static void (*body)();

static void leave() { if (!_setjmp(fibers[current].here)) _longjmp(host_here, 1); }
static void entry() {
    for (;;) {  // once per block: a new context would take two system calls
        body();
        fibers[current].ended = true;
        leave();
        threadIdx.x = current;
    }
}
static void run_block() {
    unsigned left = blockDim.x;
    at_barrier = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w++) warps[w].arrived = 0;
    for (unsigned t = 0; t < blockDim.x; t++) fibers[t].ended = false;
    for (unsigned long long rounds = 0; left; rounds++)
        for (unsigned t = 0; t < blockDim.x; t++) {
            Fiber& fiber = fibers[t];
            if (fiber.ended) continue;
            current = threadIdx.x = t;
            if (!_setjmp(host_here)) {
                if (fiber.begun) _longjmp(fiber.here, 1);
                fiber.begun = true;
                getcontext(&fiber.context);
                fiber.context.uc_stack.ss_sp = fiber.stack;
                fiber.context.uc_stack.ss_size = STACK;
                makecontext(&fiber.context, entry, 0);
                setcontext(&fiber.context);
            }
            if (fibers[current].ended) left--;
        }
}
static void __syncthreads() {
    const unsigned turn = barrier_turn;
    if (++at_barrier == blockDim.x) { at_barrier = 0; barrier_turn++; }
    while (turn == barrier_turn) { leave(); threadIdx.x = current; }
}
static unsigned long long* exchange(unsigned mask, unsigned long long value) {
    const unsigned lane = current & 31;
    Warp& warp = warps[current >> 5];
    static unsigned long long alone[32];
    if (mask == 1u << lane) { alone[lane] = value; return alone; }
    warp.moves++;
    if (mask != ~0u) {
        Group& group = warp.groups[__builtin_ctz(mask)];
        if (!(mask >> lane & 1) || (group.arrived && group.mask != mask)) {
            fprintf(stderr, "lanes that exchange with different ones\n");
            abort();
        }
        group.mask = mask;
        group.slots[lane] = value;
        group.arrived |= 1u << lane;
        if (group.arrived == mask) {
            for (int k = 0; k < 32; k++)
                if (mask >> k & 1) memcpy(warp.read[k], group.slots, sizeof(group.slots));
            warp.ready |= mask;
            group.arrived = 0;
        }
        while (!(warp.ready >> lane & 1)) { leave(); threadIdx.x = current; }
        warp.ready &= ~(1u << lane);
        return warp.read[lane];
    }
    const unsigned turn = warp.turn;
    warp.slots[turn & 1][lane] = value;
    if (++warp.arrived == 32) { warp.arrived = 0; warp.turn++; }
    while (turn == warp.turn) { leave(); threadIdx.x = current; }
    return warp.slots[turn & 1];
}
static int any_held[2];
static int __syncthreads_or(int held) {
    const unsigned turn = barrier_turn & 1;
    if (held) any_held[turn] = 1;
    __syncthreads();
    const int found = any_held[turn];
    any_held[turn ^ 1] = 0;
    return found;
}
static void __syncwarp(unsigned mask = ~0u) { exchange(mask, 0); }
static unsigned __ballot_sync(unsigned mask, bool held) {
    unsigned long long* all = exchange(mask, held);
    unsigned found = 0;
    for (int k = 0; k < 32; k++) found |= (unsigned)(all[k] != 0) << k;
    return found & mask;
}
static bool __any_sync(unsigned mask, bool held) { return __ballot_sync(mask, held); }
template <class T> T lane_value(unsigned mask, T value, int lane) {
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof(T));
    memcpy(&value, exchange(mask, bits) + lane, sizeof(T));
    return value;
}
template <class T> T __shfl_sync(unsigned mask, T value, int lane) { return lane_value(mask, value, lane); }
template <class T> T __shfl_down_sync(unsigned mask, T value, int away) {
    const int from = (current & 31) + away;
    return lane_value(mask, value, from < 32 ? from : current & 31);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int other) {
    const int own = current & 31;
    return lane_value(mask, value, own ^ other);
}
static unsigned __match_any_sync(unsigned mask, int value) {
    unsigned long long* all = exchange(mask, (unsigned)value);
    unsigned found = 0;
    for (int k = 0; k < 32; k++) found |= (unsigned)(all[k] == (unsigned)value) << k;
    return found & mask;
}
__attribute__((noinline)) static unsigned __activemask() {
    const unsigned lane = current & 31;
    Warp& warp = warps[current >> 5];
    warp.calls[lane] = __builtin_return_address(0);
    warp.active[lane] = 0;
    warp.moves++;
    while (!warp.active[lane]) {
        const unsigned seen = warp.moves;
        leave();
        threadIdx.x = current;
        if (warp.active[lane] || seen != warp.moves) continue;
        unsigned all = 0;  // every lane had a turn, and none moved
        for (int k = 0; k < 32; k++) all |= (unsigned)(warp.calls[k] == warp.calls[lane]) << k;
        for (int k = 0; k < 32; k++)
            if (all >> k & 1) { warp.active[k] = all; warp.calls[k] = nullptr; }
    }
    return warp.active[lane];
}
template <class T> T min(T a, T b) { return a < b ? a : b; }
template <class T> T max(T a, T b) { return a > b ? a : b; }
static int __popc(unsigned a) { return __builtin_popcount(a); }
static int __ffs(int a) { return __builtin_ffs(a); }
template <class T> T atomicAdd(T* at, T more) { T old = *at; *at += more; return old; }
static int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
static int __ffsll(unsigned long long a) { return __builtin_ffsll(a); }
static double __longlong_as_double(long long a) { double b; memcpy(&b, &a, 8); return b; }
static long long __double_as_longlong(double a) { long long b; memcpy(&b, &a, 8); return b; }
static float __int_as_float(int a) { float b; memcpy(&b, &a, 4); return b; }
static unsigned __float_as_uint(float a) { unsigned b; memcpy(&b, &a, 4); return b; }
static float __double2float_ru(double a) { float b = (float)a; return b < a ? nextafterf(b, INFINITY) : b; }
static double flushed(double a) { return fabs(a) < 1.17549435e-38 ? copysign(0, a) : a; }
// rounds a + b down to float32, with the rounding error of their sum
static float sum_down(double a, double b) {
    const double sum = a + b, rest = sum - a, error = (a - (sum - rest)) + (b - rest);
    const float c = (float)sum;
    return flushed(c > sum || (c == sum && error < 0) ? nextafterf(c, -INFINITY) : c);
}
static float __double2float_rd(double a) { return sum_down(a, 0); }
static float __fadd_rd(float a, float b) { return sum_down(flushed(a), flushed(b)); }
static float __fsub_rd(float a, float b) { return sum_down(flushed(a), -flushed(b)); }
static float __fmul_rd(float a, float b) { return sum_down(flushed(a) * flushed(b), 0); }
static float __fmaf_rd(float a, float b, float c) { return sum_down(flushed(a) * flushed(b), flushed(c)); }
static double __dadd_rn(double a, double b) { return a + b; }
static double __dsub_rn(double a, double b) { return a - b; }
static double __dmul_rn(double a, double b) { return a * b; }
static double __ddiv_rn(double a, double b) { return a / b; }
template <class T> T atomicOr(T* at, T other) { T old = *at; *at |= other; return old; }
template <class T> T atomicMin(T* at, T other) { T old = *at; if (other < old) *at = other; return old; }
template <class T> T atomicCAS(T* at, T was, T now) { T old = *at; if (old == was) *at = now; return old; }
template <class T> T atomicXor(T* at, T other) { T old = *at; *at ^= other; return old; }

static void** given;
template <class... P, size_t... K>
static void call(void (*kernel)(P...), std::index_sequence<K...>) { kernel(*(P*)given[K]...); }
template <class... P>
static const char* check(void (*)(P...), const int* sizes, int number) {
    const int wanted[] = {(int)sizeof(P)...};
    if (number != (int)sizeof...(P)) return "a wrong number of arguments";
    for (int k = 0; k < number; k++) {
        static char said[99];
        snprintf(said, 99, "argument %d has %d bytes, not %d", k, sizes[k], wanted[k]);
        if (sizes[k] != wanted[k]) return said;
    }
    return nullptr;
}
template <class... P>
static void call_all(void (*kernel)(P...)) { call(kernel, std::index_sequence_for<P...>()); }
"""

RUN = r"""
extern "C" const char* run_NAME(unsigned host_blocks, unsigned host_threads, void** arguments,
                                const int* sizes, int number) {
    const char* wrong = check(NAME, sizes, number);
    if (wrong) return wrong;
    if (host_threads % 32 || host_threads > 1024) return "threads that make no warps";
    given = arguments;
    body = [] { call_all(NAME); };
    gridDim.x = host_blocks;
    blockDim.x = host_threads;
    for (unsigned t = 0; t < host_threads; t++)
        if (!fibers[t].stack) fibers[t].stack = (char*)malloc(STACK);
    for (blockIdx.x = 0; blockIdx.x < host_blocks; blockIdx.x++) run_block();
    return nullptr;
}
"""

LONG = ("spanning", "spanning_rows", "nearest_rows")
"""Sources whose kernels run longer in tests than they take to optimize."""


def compiled(name, function, folder, **constants):
    """Compile a kernel for the host; return a function that is called like CuPy's
    kernels.
    """
    text = source(name, **constants).replace(
        "extern __shared__ int shared[]", "static int shared[12288]"
    )
    kernels, path = library_of(f"fibers-{name}", function, text, folder, constants)
    library = path.with_suffix(".so")
    if not library.exists():
        level = "-O1" if name in LONG else "-O0"
        options = [
            "-std=c++14",
            level,
            "-w",
            "-shared",
            "-fPIC",
            "-Wl,-Bsymbolic",
            "-U_FORTIFY_SOURCE",
        ]
        build(
            HOST,
            text + "".join(RUN.replace("NAME", kernel) for kernel in kernels),
            path,
            options,
        )
    run = getattr(ctypes.CDLL(str(library)), f"run_{function}")
    run.restype = ctypes.c_char_p

    def launch(blocks, threads, arguments, *, shared_mem=0):
        assert 0 < blocks[0] < 1 << 31 and 0 <= shared_mem <= 48 << 10
        held = [_held(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(held))(*(one.ctypes.data for one in held))
        sizes = (ctypes.c_int * len(held))(*(one.itemsize for one in held))
        wrong = run(
            ctypes.c_uint(blocks[0]),
            ctypes.c_uint(threads[0]),
            pointers,
            sizes,
            len(held),
        )
        assert wrong is None, f"{function}: {wrong.decode()}"

    return launch


def _held(value):
    """Return an argument in a form that C++ can read: for an array its address."""
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        value = np.uint64(value.ctypes.data)
    assert isinstance(value, np.generic), f"{value!r} has no type of NumPy"
    return np.array([value])


def fibers_like_cupy(folder, memory=1 << 34):
    """Provide a module `cupy` on top of NumPy whose kernels run this way: see
    `host_gpu.as_cupy`.
    """
    return as_cupy(folder, compiled, (*ROOMS, "dask_simjoin.sets.gpu"), memory)
