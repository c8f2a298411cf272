"""What estimators share: points, names of columns, and parameters without scikit-learn."""

import subprocess
import sys

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cluster import DBSCAN
from tests.cluster.test_estimators import KINDS, X


def test_numbers_as_objects():
    labels = DBSCAN(eps=0.1).fit_predict(X)
    assert DBSCAN(eps=0.1).fit_predict(X.astype(object)).tolist() == labels.tolist()
    with pytest.raises(TypeError, match="must be a string or a real number"):
        DBSCAN().fit(np.array([[{}, 1.0]], object))


def test_names_of_columns():
    frame = pd.DataFrame(X, columns=["x", "y"]).assign(name="a")
    for kind in KINDS:
        made = kind().fit(frame)
        assert made.feature_names_in_.tolist() == ["x", "y"] and made.n_features_in_ == 2
        assert not hasattr(made.fit(X), "feature_names_in_")
    lazy = DBSCAN().fit(dd.from_pandas(frame, npartitions=2))
    assert lazy.feature_names_in_.tolist() == ["x", "y"]


@pytest.mark.processes
def test_without_scikit_learn():
    """It is optional, and not imported before an estimator is asked for."""
    program = """
import sys
import dask_simjoin
assert "sklearn" not in sys.modules
sys.modules["sklearn"] = None
import numpy as np
from dask_simjoin.cluster import DBSCAN
from dask_simjoin.neighbors import KNeighborsTransformer, NearestNeighbors, RadiusNeighborsTransformer
made = DBSCAN(eps=1.5, min_samples=2)
assert made.set_params(min_samples=1).get_params()["min_samples"] == 1
assert repr(made) == "DBSCAN(eps=1.5, min_samples=1)"
try:
    made.set_params(radius=1)
except ValueError as error:
    assert "Invalid parameter 'radius'" in str(error)
assert made.fit_predict(np.array([[0.0], [1.0], [9.0]])).tolist() == [0, 0, 1]
try:
    NearestNeighbors().kneighbors()
except ValueError as error:
    assert "not fitted" in str(error)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
