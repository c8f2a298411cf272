"""Register the accessor with pandas, and with Dask, cuDF and polars as soon as they are
imported.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pandas as pd

from dask_simjoin.api.accessor import SimJoinAccessor


class _ThenCall(Loader):
    """Loader that loads a module by the module's own loader, and then runs the action
    of a `_Finder`.
    """

    def __init__(self, loader: Loader, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._finder.done()


class _Finder(MetaPathFinder):
    """Finder that waits for the import of one module, and then runs an action.

    It lets other finders find the module.
    """

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name, self._action, self._searching = name, action, False

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name != self._name or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenCall(spec.loader, self)
        return spec

    def done(self) -> None:
        """Run the action after the import."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._action()


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call `action` after the first import of a module, or now if it is already
    imported.

    Examples
    --------
    >>> when_imported("sys", lambda: print("it is there"))
    it is there
    """
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Finder(name, action))


def register() -> None:
    """Add ``.simjoin`` to pandas DataFrames now, and to frames of Dask, cuDF and polars
    when these are imported."""
    pd.api.extensions.register_dataframe_accessor("simjoin")(SimJoinAccessor)
    when_imported("dask.dataframe", _register_with_dask)
    when_imported("cudf", _register_with_cudf)
    when_imported("polars", _register_with_polars)


def _register_with_dask() -> None:
    from dask.dataframe.extensions import register_dataframe_accessor

    register_dataframe_accessor("simjoin")(SimJoinAccessor)


def _register_with_cudf() -> None:
    sys.modules["cudf"].api.extensions.register_dataframe_accessor("simjoin")(
        SimJoinAccessor
    )


def _register_with_polars() -> None:
    api = sys.modules["polars"].api
    api.register_dataframe_namespace("simjoin")(SimJoinAccessor)
    # for a LazyFrame, verbs raise an error that recommends collect()
    api.register_lazyframe_namespace("simjoin")(SimJoinAccessor)
