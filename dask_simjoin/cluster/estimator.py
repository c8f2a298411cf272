"""What all estimators have in common: parameters by name, and frames of arrays."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, Protocol, TypeVar

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd

from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.errors import OptionError
from dask_simjoin.metrics.types import Frame, Series
from dask_simjoin.options.frames import example_of
from dask_simjoin.options.groups import Coordinates
from dask_simjoin.options.optional import optional
from dask_simjoin.options.spec import JoinSpec

Self = TypeVar("Self", bound="Estimator")

Points = Any
"""An array (n, d) of NumPy or Dask, or a data frame: lazy, or a plain one."""

Labels = Any
"""An array (n,) of NumPy or Dask, or a Series, as the points are."""


class Asked(Protocol):
    """What a verb is asked for."""

    def spec(self, meta: Frame) -> JoinSpec:
        """Resolve it for frames like `meta`."""


class Estimator:
    """Parameters by name, and frames of arrays."""

    labels_: Labels

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; `deep` changes nothing."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self: Self, **parameters: Any) -> Self:
        """Set parameters by name; unknown ones are an error."""
        names = self._names()
        for name in parameters:
            if name not in names:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}; its parameters are {', '.join(names)}."
                )
        vars(self).update(parameters)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({given})"

    def __sklearn_tags__(self) -> Any:
        utils = optional("sklearn.utils", "scikit-learn", "Tags of scikit-learn")
        return utils.Tags(estimator_type="clusterer", target_tags=utils.TargetTags(required=False))

    def _options(self, request: type[Coordinates]) -> dict[str, Any]:
        """The parameters that are options of a verb."""
        names = [option.name for option in fields(request)]
        return {name: value for name, value in self.get_params().items() if name in names}

    def _frame(self, X: Points, asked: Asked) -> Frame:
        """Make a frame of what was given."""
        if hasattr(X, "columns"):
            frame = X
        elif getattr(X, "ndim", np.ndim(X)) != 2 or hasattr(X, "tocsr"):
            shape = getattr(X, "shape", np.shape(X))
            raise OptionError(
                f"X of shape {shape} is not allowed; use a dense array (n, d) of NumPy or Dask, or a "
                "DataFrame."
            )
        elif isinstance(X, da.Array):
            frame = dd.from_dask_array(X.rechunk({1: -1}))
        else:
            frame = pd.DataFrame(np.asarray(X))
        self.n_features_in_ = len(asked.spec(example_of(frame)).on)
        return frame

    def _as_given(self, column: Series, X: Points) -> Labels:
        """Give a column of a result in the manner of `X`: an array of an array, a Series of a frame."""
        if isinstance(X, da.Array):
            known = not getattr(self, "dropna", False)
            return column.to_dask_array(lengths=X.chunks[0] if known else None)
        return column if hasattr(X, "columns") else to_host(values_of(column))

    def fit(self: Self, X: Points, y: object = None) -> Self:
        """Cluster the rows of `X`; see the subclass."""
        raise NotImplementedError

    def fit_predict(self, X: Points, y: object = None) -> Labels:
        """`fit`, and the labels."""
        return self.fit(X).labels_
