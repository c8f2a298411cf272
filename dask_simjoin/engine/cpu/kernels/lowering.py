"""How Numba writes LLVM's code of kernels: it does the same, with half of the text.

By default an element of an array is reached through a copy of all that is told of the array; each variable
lies in memory, is read before it is written, for a count of references that most kernels have not, and is
overwritten where it ends.  LLVM finds out that this is for nothing, which takes as long as all else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from numba.core import cgutils, errors, ir, types
from numba.core.compiler_machinery import register_pass
from numba.core.datamodel import default_manager
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering
from numba.np.arrayobj import fix_integer_index, load_item, store_item

from dask_simjoin.engine.cpu.kernels.annotations import NumbaType, Signature, Value
from dask_simjoin.engine.cpu.kernels.wrapping import write_wrapper

FIELD = default_manager[types.Array(types.float64, 1, "C")].get_field_position
"""Where something is among all that is told of an array."""

TOLD = {"size": "nitems", "itemsize": "itemsize", "shape": "shape", "strides": "strides"}
"""Attributes of arrays that are numbers, and what they are called there."""


class KernelLower(Lower):
    """Writes the code of one function."""

    def init(self) -> None:
        """Find the variables that are values: those assigned once, before all that reads them."""
        if self.context.enable_nrt:  # references are counted in variables
            super().init()
            return
        lifetime = self.func_ir.variable_lifetime
        assigned: Counter[str] = Counter()
        place = {}
        for label, block in self.func_ir.blocks.items():
            for inst in block.find_insts(ir.Assign):
                assigned[inst.target.name] += 1
                place[inst.target.name] = label
        once = {name for name, times in assigned.items() if times == 1}
        before = lifetime.cfg.dominators()
        for label, names in lifetime.usedefs.usemap.items():
            once -= {
                name for name in names if place.get(name) == label or place.get(name) not in before[label]
            }
        self._singly_assigned_vars = once
        self._blk_local_varmap: dict[str, Value] = {}
        self._in_order = lifetime.cfg.topo_order()  # what is read is written before

    def lower_function_body(self) -> Any:
        """Write all blocks; return the first."""
        if self.context.enable_nrt:
            return super().lower_function_body()
        for label in self.blocks:
            self.blkmap[label] = self.function.append_basic_block(f"B{label}")
        self.pre_lower()
        first = self.builder.basic_block
        for label in self._in_order:
            self.builder.position_at_end(self.blkmap[label])
            self.lower_block(self.blocks[label])
        for label in self.blocks.keys() - set(self._in_order):  # nothing leads there
            self.builder.position_at_end(self.blkmap[label])
            self.builder.unreachable()
        self.post_lower()
        return first

    def lower_block(self, block: Any) -> None:
        """Write a block."""
        if self.context.enable_nrt:
            super().lower_block(block)
            return
        with errors.new_error_context("lowering {lower.loc}", lower=self):  # type: ignore[attr-defined]
            for inst in block.body:
                self.loc = inst.loc
                if type(inst) is ir.Assign:
                    name = inst.target.name
                    self.storevar(self.lower_assign(self.typeof(name), inst), name)
                elif type(inst) is not ir.Del:
                    self.lower_inst(inst)

    def storevar(self, value: Value, name: str, argidx: int | None = None) -> None:
        """Assign a variable."""
        if self.context.enable_nrt:
            super().storevar(value, name, argidx)
        elif name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, self.getvar(name))

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Value:
        """Make room for a variable."""
        return cgutils.alloca_once(self.builder, lltype, name=name)

    def lower_expr(self, resty: NumbaType, expr: Any) -> Value:
        """Write what an expression gives."""
        if expr.op == "getattr" and expr.attr in TOLD:
            if isinstance(self.typeof(expr.value.name), types.Array):
                return self.builder.extract_value(self.loadvar(expr.value.name), FIELD(TOLD[expr.attr]))
        elif expr.op in ("getitem", "static_getitem"):
            array, signature = self.typeof(expr.value.name), self.fndesc.calltypes.get(expr)
            index = expr.index if expr.op == "getitem" else expr.index_var
            if index is not None and self._is_element(array, signature):
                pointer = self._pointer(expr.value, index, signature)
                found = load_item(self.context, self.builder, array, pointer)
                return self.context.cast(self.builder, found, signature.return_type, resty)
        return super().lower_expr(resty, expr)

    def lower_call(self, resty: NumbaType, expr: Any) -> Value:
        """Write a call."""
        function, signature = self.typeof(expr.func.name), self.fndesc.calltypes[expr]
        if expr.target is not None or not isinstance(function, types.Function | types.Dispatcher):
            return super().lower_call(resty, expr)
        given = self.fold_call_args(function, signature, expr.args, expr.vararg, expr.kws)
        found = self.context.get_function(function, signature)(self.builder, given, self.loc)
        if found is None:
            return self.context.get_dummy_value()
        return self.context.cast(self.builder, found, signature.return_type, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Signature) -> Any:
        """Write an element, or whatever else."""
        array = self.typeof(target_var.name)
        if not self._is_element(array, signature) or not isinstance(
            signature.args[2], types.Number | types.Boolean
        ):
            return super().lower_setitem(target_var, index_var, value_var, signature)
        value, kind = self.loadvar(value_var.name), self.typeof(value_var.name)
        for wanted in (signature.args[2], array.dtype):
            value, kind = self.context.cast(self.builder, value, kind, wanted), wanted
        store_item(self.context, self.builder, array, value, self._pointer(target_var, index_var, signature))
        return None

    def lower_binop(self, resty: NumbaType, expr: Any, op: Any) -> Value:
        """Write an operation of two numbers, or whatever else."""
        signature = self.fndesc.calltypes[expr]
        numbers = all(isinstance(kind, types.Number | types.Boolean) for kind in signature.args)
        if not numbers or expr.static_lhs is not ir.UNDEFINED or expr.static_rhs is not ir.UNDEFINED:
            return super().lower_binop(resty, expr, op)
        function = self.context.typing_context.resolve_value_type(op)
        known = self.context.typing_context.resolve_function_type(function, signature.args, {})
        sides = [
            self.context.cast(self.builder, self.loadvar(side.name), self.typeof(side.name), wanted)
            for side, wanted in zip((expr.lhs, expr.rhs), signature.args, strict=True)
        ]
        found = self.context.get_function(function, known)(self.builder, sides)
        return self.context.cast(self.builder, found, signature.return_type, resty)

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        """Write what Python calls."""
        write_wrapper(self.context, self.library, self.fndesc, self.env, self.call_helper, release_gil)

    def _is_element(self, array: NumbaType, signature: Signature | None) -> bool:
        """Whether something is an array of numbers, and an index of one element that need not be checked."""
        if self.context.enable_boundscheck or signature is None or not isinstance(array, types.Array):
            return False
        places = _parts(signature.args[1])
        whole = len(places) == array.ndim and all(isinstance(kind, types.Integer) for kind in places)
        return whole and isinstance(array.dtype, types.Number | types.Boolean)

    def _pointer(self, array: Any, index: Any, signature: Signature) -> Value:
        """Where an element lies; indices below 0 are from the end."""
        kind, told = self.typeof(array.name), self.loadvar(array.name)
        builder, given, number = self.builder, self.typeof(index.name), self.loadvar(index.name)
        places = [number] if isinstance(given, types.Integer) else cgutils.unpack_tuple(builder, number)
        shape = [builder.extract_value(told, (FIELD("shape"), axis)) for axis in range(kind.ndim)]
        strides = []
        if kind.layout == "A":
            strides = [builder.extract_value(told, (FIELD("strides"), axis)) for axis in range(kind.ndim)]
        fixed = []
        for place, own, wanted, size in zip(
            places, _parts(given), _parts(signature.args[1]), shape, strict=True
        ):
            place = self.context.cast(builder, place, own, wanted)
            fixed.append(fix_integer_index(self.context, builder, wanted, place, size))
        data = builder.extract_value(told, FIELD("data"))
        return cgutils.get_item_pointer2(self.context, builder, data, shape, strides, kind.layout, fixed)


def _parts(kind: NumbaType) -> Sequence[NumbaType]:
    """List the types of a tuple, or of what is none."""
    together: tuple[NumbaType, ...] | None = getattr(kind, "types", None)
    return [kind] if together is None else together


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(NativeLowering):
    """Writes the code of all that is compiled with a kernel."""

    _name = "kernel_lowering"

    @property
    def lowering_class(self) -> type[KernelLower]:
        """What does it."""
        return KernelLower
