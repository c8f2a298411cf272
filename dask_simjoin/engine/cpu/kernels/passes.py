"""What is done to the functions of kernels: Numba's own passes, without what these have nothing for.

Numba looks for what variables live after each of them; here it is asked once, before LLVM's code is written.
"""

from __future__ import annotations

import builtins
import types
from typing import Any

from numba.core import ir, typed_passes, untyped_passes
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import AnalysisPass, FunctionPass, PassManager, register_pass
from numba.core.ir_utils import build_definitions
from numba.core.postproc import VariableLifetime
from numba.core.rewrites import rewrite_registry
from numba.core.ssa import reconstruct_ssa
from numba.core.transforms import canonicalize_cfg
from numba.core.typed_passes import IRLegalization, PreLowerStripPhis

from dask_simjoin.engine.cpu.kernels.extremes import larger, smaller
from dask_simjoin.engine.cpu.kernels.lowering import KernelLowering

OWN = {builtins.min: smaller, builtins.max: larger}


class Rewriting(FunctionPass):
    """Rewrites a function; that of Numba has no `__init__` that can be called."""

    def __init__(self) -> None:
        super().__init__()


@register_pass(mutates_CFG=False, analysis_only=False)
class OwnExtremes(Rewriting):
    """Puts own functions in place of `min` and `max`."""

    _name = "own_extremes"

    def run_pass(self, state: Any) -> bool:
        """Replace what a function refers to."""
        for block in state.func_ir.blocks.values():
            for assigned in block.find_insts(ir.Assign):
                named = assigned.value
                if isinstance(named, ir.Global) and isinstance(named.value, types.BuiltinFunctionType):
                    assigned.value = ir.Global(named.name, OWN.get(named.value, named.value), named.loc)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelRewrites(Rewriting):
    """Rewrites what Numba does before it finds out types: constant places of tuples, above all."""

    _name = "kernel_rewrites"

    def run_pass(self, state: Any) -> bool:
        """Rewrite all blocks until nothing changes."""
        blocks = state.func_ir.blocks
        for kind in rewrite_registry.rewrites["before-inference"]:
            rewrite = kind(state)
            left = list(blocks.items())
            while left:
                label, block = left.pop()
                if rewrite.match(state.func_ir, block, state.typemap, state.calltypes):
                    blocks[label] = rewrite.apply()
                    left.append((label, blocks[label]))
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelSSA(Rewriting):
    """Names variables anew where they are assigned."""

    _name = "kernel_ssa"

    def run_pass(self, state: Any) -> bool:
        """Rewrite the function."""
        state.func_ir = reconstruct_ssa(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelPhis(PreLowerStripPhis):
    """Assigns such a variable where blocks that lead to one end."""

    _name = "kernel_phis"

    def run_pass(self, state: Any) -> bool:
        """Rewrite the function."""
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelBlocks(Rewriting):
    """Gives each loop one way back, and looks where variables are read only when it is asked."""

    _name = "kernel_blocks"

    def run_pass(self, state: Any) -> bool:
        """Rewrite the function."""
        blocks = state.func_ir.blocks = canonicalize_cfg(state.func_ir.blocks)
        state.func_ir.variable_lifetime = VariableLifetime(blocks)
        state.func_ir.generator_info = None
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelEnds(IRLegalization):
    """Writes where variables end, if references to arrays are counted."""

    _name = "kernel_ends"

    def run_pass(self, state: Any) -> bool:
        """Rewrite the function."""
        if state.flags.nrt:
            return bool(super().run_pass(state))
        return bool(KernelBlocks().run_pass(state))


@register_pass(mutates_CFG=False, analysis_only=True)
class NoAnnotations(AnalysisPass):
    """Stands for the types of all that a function does, which Numba would write down and keep."""

    _name = "no_annotations"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Write nothing."""
        state.type_annotation = ""
        return False


PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    KernelBlocks,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.DeadBranchPrune,
    KernelRewrites,
    untyped_passes.InlineInlinables,
    OwnExtremes,
    untyped_passes.DeadBranchPrune,
    KernelSSA,
    untyped_passes.DeadBranchPrune,
    untyped_passes.LiteralPropagationSubPipelinePass,
    typed_passes.NopythonTypeInference,
    KernelPhis,
    typed_passes.InlineOverloads,
    KernelEnds,
    NoAnnotations,
    KernelLowering,
    typed_passes.NoPythonBackend,
)
"""In Numba's order."""


class KernelPasses(PassManager):
    """Runs them, and tells nobody."""

    @global_compiler_lock
    def _runPass(self, index: int, pss: Any, internal_state: Any) -> None:
        pss.analysis = self._analysis
        pss.run_pass(internal_state)


def kernel_passes() -> PassManager:
    """Return what runs them, one after the other."""
    manager = KernelPasses("nopython")
    for each in PASSES:
        manager.add_pass(each, each.__name__)
    manager.finalize()
    return manager
