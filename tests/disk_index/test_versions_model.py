"""The rules by which versions are made and removed, in every order of their steps: see the program."""

import pytest

from tests.checks.versions_model import MUTANTS, SHORT, Rules, explore


@pytest.mark.parametrize("name", SHORT)
def test_no_order_of_steps_breaks_a_rule(name):
    states, steps, broken = explore(Rules(), SHORT[name])
    assert broken is None
    assert states < steps


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_left_out_is_found_out(name):
    assert explore(*MUTANTS[name])[2] is not None
