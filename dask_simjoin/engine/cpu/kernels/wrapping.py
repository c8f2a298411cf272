"""How Python calls kernels: what reads their arguments, without the checks that Numba's has for each.

A kernel is called for the types of its arguments, so these are as expected.  Numba's code asks again, of each
array and of each part of each tuple, and undoes what it has done of those before: of short kernels that is
most of what LLVM is given.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.callwrapper import PyCallWrapper

from dask_simjoin.engine.cpu.kernels.annotations import Builder, NumbaType, Value


def is_plain(kind: NumbaType) -> bool:
    """Whether something is numbers, arrays of them or tuples of that."""
    parts = getattr(kind, "types", None)
    if parts is not None:
        return all(map(is_plain, parts))
    return isinstance(kind, types.Number | types.Boolean | types.Array)


class KernelWrapper(PyCallWrapper):
    """Writes the function that Python calls."""

    def build_wrapper(self, api: Any, builder: Builder, closure: Value, args: Value, kws: Value) -> None:
        """Read the arguments, call the kernel, and return what it returns."""
        given = self.fndesc.argtypes
        if self.context.enable_nrt or not self.release_gil or not all(map(is_plain, given)):
            super().build_wrapper(api, builder, closure, args, kws)
            return
        values = [
            self._value(api, builder, api.tuple_getitem(args, place), kind)
            for place, kind in enumerate(given)
        ]
        state = api.save_thread()
        status, found = self.context.call_conv.call_function(
            builder, self.func, self.fndesc.restype, given, values, attrs=("noinline",)
        )
        api.restore_thread(state)
        with builder.if_then(status.is_ok, likely=True):
            with builder.if_then(status.is_none):
                api.return_none()
            builder.ret(api.from_native_return(self.fndesc.restype, found, self.get_env(api, builder)))
        self.context.call_conv.raise_error(builder, api, status)
        builder.ret(api.get_null_object())

    def _value(self, api: Any, builder: Builder, given: Value, kind: NumbaType) -> Value:
        """What a kernel is given for an argument."""
        parts = getattr(kind, "types", None)
        if parts is not None:
            values = [
                self._value(api, builder, api.tuple_getitem(given, place), part)
                for place, part in enumerate(parts)
            ]
            return self.context.make_tuple(builder, kind, values)
        if isinstance(kind, types.Array):
            told = cgutils.alloca_once(builder, self.context.get_value_type(kind))
            api.numba_array_adaptor(given, builder.bitcast(told, api.voidptr))
            return builder.load(told)
        number = api.to_native_value(kind, given)
        with cgutils.if_unlikely(builder, number.is_error):  # it is too large
            builder.ret(api.get_null_object())
        return number.value


def write_wrapper(context: Any, library: Any, described: Any, env: Any, helper: Any, release: bool) -> None:
    """Add the function that Python calls to a kernel's code."""
    module = context.create_module("wrapper")
    kind = context.call_conv.get_function_type(described.restype, described.argtypes)
    called = ir.Function(module, kind, described.llvm_func_name)
    KernelWrapper(context, module, called, described, env, helper, release).build()
    library.add_ir_module(module)
