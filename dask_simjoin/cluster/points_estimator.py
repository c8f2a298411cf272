"""Base classes of estimators of points, with the interface of scikit-learn."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
import pandas as pd

from dask_simjoin.calls.decorators import check_call, with_added
from dask_simjoin.calls.inputs import Points as GeoPoints
from dask_simjoin.calls.inputs import (
    add_columns,
    as_frame,
    is_dask_array,
    masked_rows,
    points_of,
)
from dask_simjoin.calls.tables import table_of
from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.errors import (
    ColumnError,
    CoordinateError,
    OptionError,
    OptionTypeError,
    UnsupportedFrameError,
)
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.planning.coordinate_checks import DROPNA
from dask_simjoin.planning.resources import allowed_cores
from dask_simjoin.request.columns import example_of, has_column, is_frame
from dask_simjoin.request.messages import listed, shown, size_text
from dask_simjoin.request.options import (
    is_whole,
)
from dask_simjoin.request.spec import JoinSpec

if TYPE_CHECKING:
    import dask.array as da
    import dask.dataframe as dd

try:
    from sklearn.base import BaseEstimator as BaseEstimator
    from sklearn.base import (
        ClassNamePrefixFeaturesOutMixin as ClassNamePrefixFeaturesOutMixin,
    )
    from sklearn.base import ClusterMixin
    from sklearn.base import TransformerMixin as TransformerMixin
    from sklearn.exceptions import NotFittedError as NotFittedError
except (
    ImportError
):  # scikit-learn is optional: without it, use the small substitutes below

    class BaseEstimator:  # type: ignore[no-redef]
        """Substitute for scikit-learn's class: stores parameters by name."""

        @classmethod
        def _get_param_names(cls) -> list[str]:
            return sorted(
                name
                for name in inspect.signature(cls.__init__).parameters
                if name != "self"
            )

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Return the parameters by name; `deep` is ignored."""
            return {name: getattr(self, name) for name in self._get_param_names()}

        def set_params(self, **parameters: Any) -> Any:
            """Set parameters by name; raise an error for unknown names."""
            names = self._get_param_names()
            for name in parameters:
                if name not in names:
                    raise ValueError(
                        f"Invalid parameter {name!r} for estimator {self!r}. Valid "
                        f"parameters are: {names!r}."
                    )
            vars(self).update(parameters)
            return self

        def __repr__(self) -> str:
            every = inspect.signature(type(self).__init__).parameters
            given = [(name, getattr(self, name)) for name in every if name != "self"]
            changed = (
                f"{name}={value!r}"
                for name, value in given
                if value != every[name].default
            )
            return f"{type(self).__name__}({', '.join(changed)})"

    class NotFittedError(ValueError, AttributeError):  # type: ignore[no-redef]
        """Substitute for scikit-learn's class: raised if an estimator is used before
        `fit`.
        """

    class ClusterMixin:  # type: ignore[no-redef]
        """Substitute for scikit-learn's class: adds `fit_predict`."""

        def fit_predict(self, X: Any, y: object = None, **options: Any) -> Any:
            """Call `fit`, and return the labels."""
            return self.fit(X, **options).labels_  # type: ignore[attr-defined]

    class TransformerMixin:  # type: ignore[no-redef]
        """Substitute for scikit-learn's class: adds `fit_transform`."""

        def fit_transform(self, X: Any, y: object = None) -> Any:
            """Call `fit`, and return the transformed rows."""
            return self.fit(X).transform(X)  # type: ignore[attr-defined]

    class ClassNamePrefixFeaturesOutMixin:  # type: ignore[no-redef]
        """Substitute for scikit-learn's class: adds the names of output columns."""

        def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
            """Return a name for each output column: the class name in lower case, and a
            number. `input_features` is ignored."""
            if not hasattr(self, "_n_features_out"):
                raise NotFittedError(NOT_FITTED.format(type(self).__name__))
            name = type(self).__name__.lower()
            return np.array([f"{name}{i}" for i in range(self._n_features_out)], object)


NOT_FITTED = "This {} instance is not fitted yet; call fit(X) first."

NOTHING = "Found array with 0 {what} (shape={shape}) while a minimum of 1 is required."
"""Message for empty input. Scikit-learn's checks of estimators look for these words."""

Points = Any
"""Rows to fit: an array (n, d) of NumPy or Dask, or a data frame, which may be lazy."""

Labels = Any
"""Labels of the rows: an array (n,) if the rows are an array, or a Series if they are a
frame.
"""


class PointsEstimator(BaseEstimator):
    """Base class of estimators whose input is an array or a frame."""

    n_features_in_: int  # number of fitted columns
    # names of the fitted columns; only if all of them are strings
    feature_names_in_: np.ndarray
    # the geometry column of a fitted GeoDataFrame, unless `on` names other columns
    _points: GeoPoints | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Explain unknown parameters in the words of the verbs' errors."""
        super().__init_subclass__(**options)
        if "__init__" not in vars(cls):
            return
        made = cls.__init__
        parameters = list(inspect.signature(made).parameters.values())[1:]
        if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters):
            return

        @functools.wraps(made)
        def checked(self: Any, *args: Any, **given: Any) -> None:
            check_call(cls.__name__, parameters, args, given)
            made(self, *args, **given)

        cls.__init__ = checked  # type: ignore[method-assign]

    def _options(self, request: Any) -> dict[str, Any]:
        """Return the estimator's parameters that are options of a request.

        A metric of None is left out, so that the default of the request applies. The
        option `threads` is the parameter `n_jobs`.
        """
        accepted = inspect.signature(request).parameters
        given = self.get_params()
        given["threads"] = threads_of(given["n_jobs"])
        return {
            name: value
            for name, value in given.items()
            if name in accepted and (name != "metric" or value is not None)
        }

    def _frame(
        self, X: Points, kind: Any, **more: Any
    ) -> tuple[Frame, dict[str, Any], Any]:
        """Convert the rows to fit to a frame. Return it, the options of this fit, and
        the request with these options.

        `kind`: the class of the request; `more`: options that are not parameters of the
        estimator. The points of a GeoDataFrame become columns, as in the verbs.
        """
        given = points_frame(X)
        self._points = points_of(given, getattr(self, "on", None))
        options = self._options(kind) | more
        options["threads"] = table_of(given).own_threads(options["threads"])
        known = inspect.signature(kind).parameters
        frame, options, _ = with_added(given, options, kind, known)
        request = kind(**options)
        spec: JoinSpec = request.spec(example_of(frame))
        columns = list(dict.fromkeys([*spec.named, *spec.conditions]))
        self.n_features_in_ = len(columns)
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if frame_like(X) and all(isinstance(name, str) for name in columns):
            self.feature_names_in_ = np.array(columns, object)
        return frame, options, request

    def _queries(self, X: Points, columns: list[Hashable]) -> Frame:
        """Convert new rows to a plain frame with the fitted columns."""
        name = type(self).__name__
        lazy = UnsupportedFrameError(
            f"{name} needs new rows in memory; compute() them first, or "
            "map_partitions over them."
        )
        frame = table_of(points_frame(X)).in_memory(lazy)
        fitted = self._points
        points = None if fitted is None else points_of(frame, None)
        if fitted is not None and points is not None:
            fitted.check_same(points)
            frame = pd.DataFrame(add_columns(frame, points.name, fitted.columns))
        if frame_like(X):
            missing = [one for one in columns if not has_column(frame.columns, one)]
            if missing:
                raise ColumnError(
                    f"X has no columns {listed(missing)}, and {name} was fitted to "
                    f"{listed(columns)}. "
                    "Columns of an array have numbers as names. Use a frame with these "
                    "columns, or an array: "
                    "X.to_numpy()."
                )
        elif frame.shape[1] != self.n_features_in_:
            raise OptionError(
                f"X has {frame.shape[1]} features, but {name} is expecting "
                f"{self.n_features_in_} features as input."
            )
        else:
            frame.columns = columns
        return frame[columns]

    def _as_given(self, column: Series, X: Points) -> Labels:
        """Return a result column as an array if `X` is an array, and as a Series
        otherwise.
        """
        if is_dask_array(X):
            return column.to_dask_array(lengths=X.chunks[0])
        return column if frame_like(X) else to_host(values_of(column))


class ArrowTable(Protocol):
    """An Arrow table, or a table of another library that exports Arrow data."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows of the table as an Arrow stream."""


class Clustering(ClusterMixin, PointsEstimator):
    """Base of clustering estimators, which set `labels_` (n,) int64 in the form of
    their input.
    """

    labels_: Labels

    @overload
    def fit_predict(
        self, X: np.ndarray, y: object = None, **options: Any
    ) -> np.ndarray: ...
    @overload
    def fit_predict(
        self, X: pd.DataFrame, y: object = None, **options: Any
    ) -> pd.Series: ...
    @overload
    def fit_predict(  # type: ignore[overload-cannot-match]
        self, X: dd.DataFrame, y: object = None, **options: Any
    ) -> dd.Series: ...
    @overload
    def fit_predict(  # type: ignore[overload-cannot-match]
        self, X: da.Array, y: object = None, **options: Any
    ) -> da.Array: ...
    @overload
    def fit_predict(  # type: ignore[overload-cannot-match]
        self, X: Sequence[Any], y: object = None, **options: Any
    ) -> np.ndarray: ...
    @overload
    def fit_predict(self, X: ArrowTable, y: object = None, **options: Any) -> Any: ...  # type: ignore[overload-cannot-match]
    def fit_predict(self, X: Any, y: object = None, **options: Any) -> Any:
        """Call `fit` with these options, and return `labels_`."""
        return super().fit_predict(X, y, **options)


def threads_of(n_jobs: Any) -> int | None:
    """Convert scikit-learn's `n_jobs` to the option `threads`."""
    if n_jobs is None:
        return None
    allowed = "use None, a number of threads, -1 for all cores, or -2 for all but one"
    if not is_whole(n_jobs):
        raise OptionTypeError(f"n_jobs={shown(n_jobs)} is not allowed; {allowed}.")
    if n_jobs == 0:
        raise OptionError(f"n_jobs == 0 in Parallel has no meaning; {allowed}.")
    return int(n_jobs) if n_jobs > 0 else max(1, allowed_cores() + 1 + int(n_jobs))


def check_fitted(estimator: BaseEstimator, attribute: str) -> None:
    if not hasattr(estimator, attribute):
        raise NotFittedError(NOT_FITTED.format(type(estimator).__name__))


def frame_like(X: Points) -> bool:
    """Return whether `X` is a frame or a table with named columns."""
    return is_frame(X) or hasattr(X, "__arrow_c_stream__")


def points_frame(X: Points) -> Frame:
    """Convert `X` to a frame. Scikit-learn's checks of estimators look for the words of
    the errors.
    """
    if frame_like(X):
        frame = as_frame(X, "X")
        if not is_frame(frame):
            raise _one_dimensional(X)
        if table_of(frame).known_length() == 0:
            raise OptionError(NOTHING.format(what="sample(s)", shape=frame.shape))
        return frame
    if hasattr(X, "tocsr"):
        size = size_text(8 * math.prod(X.shape))
        raise OptionTypeError(
            f"X is a sparse matrix of shape {X.shape}, but dense data is required. "
            "Outside a pipeline, pass X.toarray(). In a pipeline, let the previous step "
            "return a dense array, such as OneHotEncoder(sparse_output=False). Or put "
            "this step in front (from sklearn.preprocessing): FunctionTransformer(lambda X: "
            f"X.toarray(), accept_sparse=True). The dense array takes {size}."
        )
    if is_dask_array(X):
        import dask.dataframe as dd

        return dd.from_dask_array(_checked(X).rechunk({1: -1}))
    if hasattr(X, "to_frame"):
        raise _one_dimensional(X)
    X = table_of(X).in_memory(_one_dimensional(X))
    masked = masked_rows(X)
    return as_frame(_checked(np.asarray(X) if masked is None else masked), "X")


def _one_dimensional(X: Any) -> UnsupportedFrameError:
    """Return the error for a Series, an index or an Arrow array as rows."""
    kind = type(X)
    called = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    row = ""
    if isinstance(X, pd.Series):
        row = ", or X.to_frame().T if it is one row"
    how = (
        f"Use X.to_frame() if it is one column{row}."
        if hasattr(X, "to_frame")
        else "Reshape your data to an array (n, d)."
    )
    return UnsupportedFrameError(
        f"X is a {called}, which has one dimension; use a DataFrame, a table or an "
        f"array (n, d). {how}"
    )


def _checked(x: Any) -> Any:
    if x.ndim != 2:
        raise OptionError(
            f"X of shape {x.shape} is not allowed; use a dense array (n, d) of NumPy "
            "or Dask, or a "
            "DataFrame. Reshape your data with X.reshape(-1, 1) or X.reshape(1, -1)."
        )
    if x.dtype.kind == "c":
        raise OptionError(
            "Complex data not supported: X is of dtype complex; use its real numbers."
        )
    for size, what in ((x.shape[0], "sample(s)"), (x.shape[1], "feature(s)")):
        if size == 0:
            raise OptionError(NOTHING.format(what=what, shape=x.shape))
    if x.dtype.kind == "O":
        return x.astype(np.float64)
    if x.dtype.kind == "b":  # columns of booleans would not be coordinates
        return x.astype(np.uint8)
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


@contextlib.contextmanager
def advising_pipelines(estimator: BaseEstimator, X: Points) -> Iterator[None]:
    """Replace the remedy for missing values in errors by one that a user of
    scikit-learn can apply. New rows are not called a left table.
    """
    try:
        yield
    except CoordinateError as error:
        problem, found, _ = (error.without_table or str(error)).partition(DROPNA)
        if found:
            problem += _remedy_in_pipelines(estimator, X, problem)
        error.args = (problem,)
        raise


def _remedy_in_pipelines(estimator: BaseEstimator, X: Points, problem: str) -> str:
    name, remedies = type(estimator).__name__, []
    if "missing" in problem and isinstance(X, np.ma.MaskedArray):
        remedies.append(
            "fill the masked numbers first, such as X.filled(0) (the imputers of "
            "scikit-learn ignore masks)"
        )
    elif "missing" in problem:
        remedies.append(
            "put an imputer for NaN in front of this step, such as "
            f"make_pipeline(SimpleImputer(), {name}(...)), with SimpleImputer from "
            "sklearn.impute"
        )
    if hasattr(estimator, "dropna"):
        remedies.append("use dropna=True, so that such rows get the label -1")
    else:
        remedies.append(f"leave out such rows first{_without_such(X, problem)}")
    text = ", or ".join(remedies)
    return f"{text[0].upper()}{text[1:]}."


def _without_such(X: Points, problem: str) -> str:
    """Return an expression for the other rows of an array or a pandas frame."""
    if isinstance(X, pd.DataFrame) and "missing" in problem:
        return " with X.dropna()"
    if not isinstance(X, (np.ndarray, pd.DataFrame)):
        return ""
    if isinstance(X, np.ma.MaskedArray):
        return " with X[~np.ma.getmaskarray(X).any(axis=1)]"
    every = "(X != 0).any" if "direction" in problem else "np.isfinite(X).all"
    return f" with X[{every}(axis=1)]"
