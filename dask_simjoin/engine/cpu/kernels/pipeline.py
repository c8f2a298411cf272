"""How Numba compiles kernels: to the same code as by default, with half of the work.

By default each function that a kernel calls is optimised, made into machine code and wrapped for Python by
itself, and then once more within each kernel; a kernel is optimised function by function, then as a whole by
little, and then by all that LLVM knows.  And Python's collector goes through all that the compiler has
made, again and again.  Each function goes through passes for what no kernel has, closures, `with` blocks,
whole arrays in one expression: see `passes`; its code says much that nobody asks: see `lowering`.  What an
operation of two numbers gives is found anew each time: see `resolved`.
"""

from __future__ import annotations

import ctypes
from typing import Any

from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager
from numba.core.registry import cpu_target

from dask_simjoin.engine.base import host_kernels
from dask_simjoin.engine.collecting import not_collecting
from dask_simjoin.engine.cpu.kernels.resolved import loading_once, remembering

NOT_CALLABLE = ctypes.cast(ctypes.pythonapi.PyObject_Call, ctypes.c_void_p).value
"""What Python finds in place of what only kernels call: it tells that this cannot be called."""

MAKES_ARRAYS = "NRT_MemInfo"
"""How the functions of Numba's runtime that make arrays begin."""


class KernelLibrary(JITCodeLibrary):
    """The code of a kernel: it is optimised once, with all that it calls."""

    called_by_kernels = False
    counts = False
    """Whether it may make arrays."""

    def add_linking_library(self, library: Any) -> None:
        """Take in what it calls; refuse kernels, of whose code nothing is kept but what Python calls."""
        if not getattr(library, "called_by_kernels", True):
            raise TypeError(f"{library.name} is a kernel, and called by one: it must be a callee")
        super().add_linking_library(library)

    def serialize_using_object_code(self) -> Any:
        """Return its machine code; Numba adds LLVM's, of which nothing is kept."""
        self._ensure_finalized()
        return self.name, "object", (self._get_compiled_object(), b"")

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        found = self._codegen._module_pass_manager()
        manager, *builder = found if isinstance(found, tuple) else (found,)  # before Numba 0.62
        manager.run(self._final_module, *builder)
        made = [f.name for f in self._final_module.functions if f.name.startswith(MAKES_ARRAYS)]
        if made and not self.counts:
            raise TypeError(f"{self.name} makes arrays, which nothing would free: it must say so")


class CalleeLibrary(KernelLibrary):
    """The code of what only kernels call: it is linked to theirs, and optimised and compiled with it."""

    called_by_kernels = True

    def finalize(self) -> None:
        """Link what it calls; nothing else."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


class ApartLibrary(CalleeLibrary):
    """The code of what kernels call seldom: it stays a function of its own, of which there is one."""

    def add_ir_module(self, ir_module: Any) -> None:
        """Take in functions, and mark them."""
        for function in ir_module.functions:
            if not function.is_declaration:
                function.attributes.add("noinline")
        super().add_ir_module(ir_module)


class KernelCompiler(Compiler):
    """Compiles functions that Python calls."""

    library_class = KernelLibrary

    def __init__(self, *args: Any, **options: Any) -> None:
        """Load what Numba compiles with, if this is the first one."""
        with not_collecting(), loading_once(cpu_target.target_context):
            # what is kept is found without all that this loads; Numba takes in what it brings as it begins
            self._passes = host_kernels("passes").kernel_passes
            super().__init__(*args, **options)

    def define_pipelines(self) -> list[PassManager]:
        """Say what is done to a function."""
        return [self._passes()]

    def compile_extra(self, func: Any) -> Any:
        """Compile a function, and what it calls."""
        state = self.state
        state.library = self.library_class(state.targetctx.codegen(), func.__qualname__)
        state.library.counts = state.flags.nrt
        state.library.enable_object_caching()
        with not_collecting(), remembering(state.typingctx, cpu_target.target_context):
            return super().compile_extra(func)


class CalleeCompiler(KernelCompiler):
    """Compiles functions that only kernels call."""

    library_class = CalleeLibrary

    def compile_extra(self, func: Any) -> Any:
        """Compile a function, and what it calls, to what can be linked."""
        state = self.state
        state.flags.no_compile = True
        found = super().compile_extra(func)
        own = found.fndesc
        entry = _dynfunc.make_function(
            own.lookup_module(), own.qualname, "", NOT_CALLABLE, found.environment, (found.library,)
        )
        state.targetctx.insert_user_function(entry, own, [found.library])
        return found._replace(entry_point=entry)


class ApartCompiler(CalleeCompiler):
    """Compiles functions that kernels call seldom."""

    library_class = ApartLibrary
