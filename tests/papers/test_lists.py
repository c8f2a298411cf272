"""Options of joins by lists in Z-order."""

import numpy as np
import pytest

from dask_simjoin.errors import OptionError
from dask_simjoin.papers.lists import ZOrder
from tests.support.points import frame_of


def test_auto_takes_more_lists_where_intervals_are_long():
    frame = frame_of(np.random.default_rng(0).uniform(size=(30_000, 16)))
    numbers = [
        len(frame.simjoin.plan(eps, method="zorder").plan.layout.shifts)
        for eps in (0.001, 0.1, 0.2)
    ]
    assert numbers == sorted(numbers) and numbers[0] <= 3 and numbers[-1] >= 9


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lists", 0),
        ("lists", "many"),
        ("lists", np.arange(2)),
        ("shifts", "odd"),
        ("seed", -1),
        ("walk", "none"),
        ("index", "both"),
        ("output", "sorted"),
        ("words", 5),
        ("assign", "warp"),
    ],
)
def test_options_are_checked(name, value):
    with pytest.raises(OptionError, match=rf"ZOrder\({name}="):
        ZOrder(**{name: value})
