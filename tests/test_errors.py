"""Errors are what users of pandas catch, name a remedy, and keep theirs when they travel."""

import inspect
import pickle

import pytest

from dask_simjoin import errors
from dask_simjoin.errors import BudgetError, ListError, Remedy, SimJoinError

ERRORS = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, SimJoinError)]


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_is_a_built_in_one_and_says_what_helps(kind):
    if kind is not SimJoinError:
        assert issubclass(kind, (ValueError, TypeError, RuntimeError, OSError, LookupError))
        assert "Remedy:" in kind.__doc__


def test_remedies_travel():
    error = BudgetError("too large", remedies=[Remedy({"blocksize": None}), Remedy(verb="count_pairs")])
    back = pickle.loads(pickle.dumps(error))
    assert str(back) == "too large" and back.remedies == error.remedies
    assert back.remedies[0].options == {"blocksize": None} and back.remedies[1].verb == "count_pairs"
    assert SimJoinError("none").remedies == ()


def test_a_row_without_a_list_is_named():
    error = pickle.loads(pickle.dumps(ListError(7, "3 numbers, others 4")))
    assert (error.row, str(error)) == (7, "Row 7 holds 3 numbers, others 4.")
