"""The accessor has every verb, and no other."""

from dask_simjoin.api.accessor import VerbMethods
from dask_simjoin.api.verbs import VERBS


def test_the_accessor_has_every_verb_and_no_other():
    methods = {
        name for name, value in vars(VerbMethods).items() if callable(value) and not name.startswith("_")
    }
    assert methods == set(VERBS)
    for name, verb in VERBS.items():
        assert vars(VerbMethods)[name].__wrapped__ is verb.function
