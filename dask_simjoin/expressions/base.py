"""What the expressions of this package have in common: names that read well on a dashboard."""

from __future__ import annotations

import functools
from typing import Any

from dask_simjoin.expressions.dask_private import Expr


class LabelledExpr(Expr):
    """An expression whose keys begin with its label; its example, if it has one, is the operand `meta`."""

    _label: str

    @functools.cached_property
    def _name(self) -> str:
        return f"{self._label}-{self.deterministic_token}"

    @property
    def _meta(self) -> Any:
        return self.operand("meta") if "meta" in self._parameters else None
