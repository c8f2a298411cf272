"""Requests say what verbs are asked for: what their fields tell of options is true of
the verbs.
"""

import dataclasses
import inspect
import typing

import pandas as pd
import pytest

from dask_simjoin import SimJoinAccessor
from dask_simjoin.api.verbs import VERBS
from dask_simjoin.catalog import CHOICES, NEAREST
from dask_simjoin.errors import OptionError
from dask_simjoin.request.options import ORDER
from dask_simjoin.request.requests import (
    JoinRequest,
    KnnJoinRequest,
    PlannedKnnJoinRequest,
    PlanRequest,
    SelfJoinRequest,
)
from dask_simjoin.sets.methods import CHOICES as SET_CHOICES

FRAME = pd.DataFrame(
    {"x": [0.0, 1.0, 3.0], "r": [1.0, 1.0, 9.0], "sets": [[1], [1, 2], [3]]}
)


@pytest.fixture(params=VERBS.values(), ids=lambda verb: verb.name)
def verb(request):
    """Each verb of the table."""
    return request.param


def test_options_are_the_fields_of_the_request(verb):
    fields = {field.name: field for field in dataclasses.fields(verb.request)}
    _, *options = inspect.signature(verb.function).parameters.values()
    assert {one.name for one in options} == set(fields)
    for one in options:
        default = fields[one.name].default
        assert one.default == (one.empty if default is dataclasses.MISSING else default)
        assert (one.kind is one.KEYWORD_ONLY) == fields[one.name].kw_only
    named = [one.name for one in options if one.kind is one.KEYWORD_ONLY]
    assert named == sorted(named, key=ORDER.index)


def test_every_option_is_described(verb):
    hints = typing.get_type_hints(verb.function)
    assert hints == typing.get_type_hints(getattr(SimJoinAccessor, verb.name))
    for field in dataclasses.fields(verb.request):
        assert field.metadata["help"]
        choices = field.metadata["choices"]
        if typing.get_origin(hints[field.name]) is typing.Literal:
            assert typing.get_args(hints[field.name]) == choices
        elif field.name == "method":  # methods may be added to their table
            of_sets = "threshold" in hints and verb.name != "profile"
            joined = SET_CHOICES if of_sets else CHOICES
            assert choices == (
                NEAREST if verb.name in ("knn_join", "closest_pairs") else joined
            )
        else:
            assert not choices
    assert "return" in hints and "frame" in hints


@pytest.mark.filterwarnings("ignore::dask_simjoin.errors.DeprecatedWarning")
def test_choices_are_all_that_is_taken(verb):
    given = {
        "threshold": 1,
        "eps": 1.0,
        "max_eps": 1.0,
        "k": 1,
        "n": 1,
        "other": FRAME.copy(),
        "on": "x",
    }
    given["min_samples"] = 2
    known = {field.name: field for field in dataclasses.fields(verb.request)}
    # all choices of what takes a path are those of `metric`
    given["path"] = "never-made"
    options = {name: value for name, value in given.items() if name in known}
    if verb.name == "set_plan":
        del options["other"]
    if "threshold" in known:
        options |= {"on": "sets"}
    frame = FRAME
    if verb.name in ("plan", "profile"):
        options = {"eps": 1.0, "on": "x"}
    elif "transpositions" in known:
        frame = FRAME.assign(text="a")
        options |= {"on": "text"} | (
            {"other": frame.copy()} if verb.name == "edit_join" else {}
        )
    for name, field in known.items():
        choices = field.metadata["choices"]
        if verb.name == "profile" and name == "comparison":
            options = {"threshold": 1, "on": "sets"}
        for choice in choices if name != "metric" else ():
            needed = {"best": True} if name == "ties" and "best" in known else {}
            if name == "matching" and "other" in known:
                needed = {"other": frame.copy()}
            verb.function(frame, **options | needed | {name: choice})
        if choices:
            with pytest.raises(
                OptionError, match=f"{name}='no-such-choice' is not allowed"
            ):
                verb.function(frame, **options | {name: "no-such-choice"})


def test_a_plan_is_of_the_request_that_its_options_make():
    assert PlanRequest(eps=2.0, on="x").planned() == SelfJoinRequest(eps=2.0, on="x")
    assert PlanRequest(
        eps=2.0, other=FRAME, left_on="x", right_on="r"
    ).planned() == JoinRequest(other=FRAME, eps=2.0, left_on="x", right_on="r")
    assert PlanRequest(eps=2.0, k=3, method="tiles").planned() == PlannedKnnJoinRequest(
        k=3, max_distance=2.0, method="tiles"
    )


def test_requests_do_not_change():
    asked = SelfJoinRequest(eps=1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        asked.eps = 2.0
    assert asked == SelfJoinRequest(eps=1.0) != SelfJoinRequest(eps=2.0)
    assert hash(asked) == hash(SelfJoinRequest(eps=1.0))


def test_the_smallest_distance_may_be_the_largest_one():
    request = KnnJoinRequest(k=1, on="x", min_distance=2.0, max_distance=2.0)
    spec = request.spec(FRAME)
    assert request.min_total(spec) == spec.measure.least_total(2.0) > 2.0
    assert request.max_total(spec) == spec.threshold == 4.0
    with pytest.raises(OptionError, match="is larger than max_distance"):
        KnnJoinRequest(k=1, on="x", min_distance=2.1, max_distance=2.0).spec(FRAME)
