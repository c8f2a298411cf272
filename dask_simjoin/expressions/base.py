"""Name expressions so that they read well on a dashboard."""

from __future__ import annotations

import functools
from typing import Any

from dask_simjoin.expressions.dask_private import Expr


class LabelledExpr(Expr):
    """Begin keys with a label; the example, if there is one, is the operand `meta`."""

    _label: str

    @functools.cached_property
    def _name(self) -> str:
        return f"{self._label}-{self.deterministic_token}"

    @property
    def _meta(self) -> Any:
        return self.operand("meta") if "meta" in self._parameters else None
