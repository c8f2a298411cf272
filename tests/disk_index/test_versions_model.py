"""The rules by which versions are made and removed, in every order of their steps: see
the program.
"""

import pytest

from tests.checks import store_model
from tests.checks.versions_model import MUTANTS, SHORT, Rules, explore


@pytest.mark.parametrize("name", SHORT)
def test_no_order_of_steps_breaks_a_rule(name):
    states, steps, broken = explore(Rules(), SHORT[name])
    assert broken is None
    assert states < steps


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_left_out_is_found_out(name):
    assert explore(*MUTANTS[name])[2] is not None


@pytest.mark.parametrize("name", list(store_model.SHORT)[:4])
def test_nothing_is_broken_on_a_store(name):
    states, steps, broken = explore(
        store_model.Rules(), store_model.SHORT[name], do=store_model.DO
    )
    assert broken is None and states > 50 and steps > states


@pytest.mark.parametrize("name", store_model.MUTANTS)
def test_each_rule_for_stores_is_needed(name):
    rules, setting = store_model.MUTANTS[name]
    assert explore(rules, setting, do=store_model.DO)[2] is not None
