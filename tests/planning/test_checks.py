"""What a refusal recommends works, or ends at another cause: nobody is sent in a
circle.
"""

import pickle
from dataclasses import dataclass, field

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cluster.expressions import components, optics
from dask_simjoin.cluster.expressions import spanning as trees
from dask_simjoin.errors import BudgetError, PlanningError, Remedy, ScratchError
from dask_simjoin.graph import pairs, planner
from dask_simjoin.planning import budget, checks, chunk_limits, data_warnings
from dask_simjoin.planning.limits import Limits
from dask_simjoin.sets import graph as set_graph
from tests.support.profiles import chosen, in_turns

MOST_STEPS = 6

PLANNED = (
    "self_join",
    "join",
    "knn_join",
    "count_pairs",
    "neighbor_counts",
    "k_distances",
    "set_self_join",
    "count_set_pairs",
    "set_neighbor_counts",
)
"""Verbs that refuse nothing after they are planned."""

RANDOM = np.random.default_rng(0)
POINTS = pd.DataFrame(RANDOM.uniform(size=(2000, 2)), columns=["x", "y"]).assign(
    g=range(2000)
)
POINTS["lists"] = POINTS[["x", "y"]].to_numpy().tolist()
SETS = pd.DataFrame({"s": [f"{n % 7} {n % 5} {n % 3}" for n in range(600)]})
SETS["words"] = SETS["s"].str.split()
ON = {"on": ["x", "y"]}
WORDS = {"on": "s", "tokenizer": "whitespace"}


def workers(limit, memory, number=2):
    """Workers of one thread each, that have so many bytes for a task."""
    return Limits(number, int(memory), True, int(limit), workers=number)


HERE = Limits(2)


@dataclass
class Case:
    """A call that is refused.

    Attributes
    ----------
    verb, options : str, dict
    have : Limits
    config : dict
        Dask's configuration.
    constants : dict
        Limits of the package that are smaller here, so that few rows exceed them.
    plain : bool
        Whether the frame is of pandas.
    left : str
        The refusal in which it may end, of a cause that no option cures; "": it must go
        on.
    """

    verb: str
    options: dict
    have: Limits = HERE
    config: dict = field(default_factory=dict)
    constants: dict = field(default_factory=dict)
    plain: bool = False
    left: str = ""
    npartitions: int = 10


FEW_TASKS = {(checks, "MAX_TASKS"): 100}
TINY_TREES = {(chunk_limits, "WORKING"): 0}


def in_pandas(verb, options, free=10**6, constants=None):
    """A call on a pandas frame, for whose result there are `free` bytes."""
    few = {(budget, "free_memory"): lambda: free, (budget, "SPARE_BYTES"): 0}
    return Case(verb, options, plain=True, constants=few | (constants or {}))


CASES = {
    "chunks too large": Case(
        "self_join",
        {"eps": 0.01, "blocksize": "40 kB", "partitioning": "entity", **ON},
        workers(1e9, 1e5),
    ),
    "chunks too large, and smaller ones too many": Case(
        "self_join",
        {"eps": 0.01, "blocksize": "40 kB", "partitioning": "entity", **ON},
        workers(1e9, 1e4),
        constants=FEW_TASKS,
        left="check_chunks",
    ),
    "one row a chunk": Case(
        "count_pairs",
        {"eps": 2.0, "blocksize": "1 B", "partitioning": "entity", **ON},
        constants={(checks, "MAX_SMALL_TASKS"): 100},
    ),
    "many block pairs": Case(
        "count_pairs",
        {"eps": 2.0, "blocksize": "2 kB", "partitioning": "entity", **ON},
        constants=FEW_TASKS,
    ),
    "many block pairs, and no room for larger chunks": Case(
        "count_pairs",
        {"eps": 2.0, "blocksize": "2 kB", "partitioning": "entity", **ON},
        workers(5e8, 2e4),
        constants=FEW_TASKS,
        left="check_blocks",
    ),
    "many block pairs by rows where regions serve": Case(
        "count_pairs",
        {"eps": 0.001, "blocksize": "2 kB", "partitioning": "entity", **ON},
        workers(2e9, 2e6),
        constants=FEW_TASKS,
    ),
    "many searches": Case(
        "knn_join",
        {"k": 3, "blocksize": "2 kB", "partitioning": "entity", **ON},
        constants=FEW_TASKS,
    ),
    "many partitions of the result": Case(
        "self_join",
        {"eps": 0.5, **ON},
        config={"simjoin.output-size": "1 kB"},
        constants=FEW_TASKS,
    ),
    "many partitions of the result, and no room for larger ones": Case(
        "self_join",
        {"eps": 0.9, **ON},
        workers(5e8, 6e5),
        config={"simjoin.output-size": "1 kB"},
        constants=FEW_TASKS,
    ),
    "a large result": Case(
        "self_join", {"eps": 0.5, **ON}, config={"simjoin.result-limit": "1 kB"}
    ),
    "a large result of two tables": Case(
        "join", {"eps": 0.5, **ON}, config={"simjoin.result-limit": "1 kB"}
    ),
    "many neighbors": Case(
        "knn_join", {"k": 9, **ON}, config={"simjoin.result-limit": "1 kB"}
    ),
    "a large matrix": Case(
        "neighbor_graph", {"eps": 0.5, **ON}, config={"simjoin.result-limit": "1 kB"}
    ),
    "a matrix too large for workers": Case(
        "neighbor_graph", {"eps": 0.5, **ON}, workers(4e6, 1.3e6)
    ),
    "one chunk of all rows": Case(
        "self_join",
        {"eps": 0.01, "partitioning": "replicated", "blocksize": "1 kB", **ON},
    ),
    "one chunk of all rows that fits no task": Case(
        "self_join",
        {"eps": 0.01, "partitioning": "replicated", **ON},
        workers(5e8, 5e4),
    ),
    "workers too small to shuffle": Case(
        "self_join",
        {"eps": 0.001, "partitioning": "spatial", "blocksize": "12 kB", **ON},
        workers(5e8, 1e5),
    ),
    "workers too small to shuffle, and many block pairs": Case(
        "count_pairs",
        {"eps": 0.5, "partitioning": "spatial", "blocksize": "2 kB", **ON},
        workers(5e8, 2e4),
        constants=FEW_TASKS,
        left="check_blocks",
    ),
    "partitions too large to shuffle": Case(
        "self_join",
        {"eps": 0.001, "partitioning": "spatial", "blocksize": "2 kB", **ON},
        workers(2e9, 3e4),
        npartitions=2,
    ),
    "one chunk with its tree": Case(
        "hdbscan",
        {"min_cluster_size": 20, "blocksize": "1 GB", **ON},
        workers(5e5, 5e5, 1),
        constants=TINY_TREES,
    ),
    "a tree too large for a worker": Case(
        "hdbscan",
        {"min_cluster_size": 20, **ON},
        workers(2e5, 1e5),
        constants=FEW_TASKS | TINY_TREES,
        left="check_tree",
    ),
    "a tree too large for a worker, of regions": Case(
        "spanning_tree",
        {"partitioning": "spatial", **ON},
        workers(2e5, 1e5),
        constants=FEW_TASKS | TINY_TREES,
        left="check_tree",
    ),
    "rows too many for one order": Case(
        "optics",
        {"max_eps": 0.1, "min_samples": 5, **ON},
        workers(2e5, 1e5),
        constants=FEW_TASKS,
        left="check_order",
    ),
    "edges too many for one worker": Case(
        "optics",
        {"max_eps": 0.5, "min_samples": 5, **ON},
        workers(9e6, 4e5),
        constants={(checks, "ENTRY_BYTES"): 10**6},
    ),
    "pairs told to one task": Case(
        "near_duplicated",
        {"eps": 0.5, "keep": "g", "blocksize": "12 kB", **ON},
        workers(1e6, 4e5),
    ),
    "pairs of sets told to one task": Case(
        "set_near_duplicated",
        {"threshold": 0.4, **WORDS, "keep": "first"},
        workers(1e4, 1e6),
    ),
    "pairs of sets": Case(
        "set_self_join",
        {"threshold": 0.4, **WORDS},
        config={"simjoin.result-limit": "1 kB"},
    ),
    "sets of one row a chunk": Case(
        "count_set_pairs",
        {"threshold": 0.4, "blocksize": "1 B", **WORDS},
        constants={(checks, "MAX_SMALL_TASKS"): 100},
    ),
    "blocks of sets too large": Case(
        "count_set_pairs",
        {"threshold": 0.4, "blocksize": "1 MB", **WORDS},
        workers(1e9, 1e5),
    ),
    "pairs of a plain frame": in_pandas("self_join", {"eps": 2.0, **ON}),
    "pairs of two plain frames": in_pandas("join", {"eps": 2.0, **ON}),
    "pairs of a plain frame of lists": in_pandas(
        "self_join", {"eps": 2.0, "on": "lists"}
    ),
    "pairs of a plain frame, which are most of all": in_pandas(
        "self_join", {"eps": 2.0, **ON}, constants={(data_warnings, "DEAR"): 2**20}
    ),
    "pairs of a plain frame, with more bytes than the disk": in_pandas(
        "self_join",
        {"eps": 2.0, **ON},
        constants={(budget, "free_disk"): lambda _: 10**6},
    ),
    "pairs of plain sets": in_pandas(
        "set_self_join", {"threshold": 0.4, "on": "words"}, free=10**4
    ),
    "pairs of plain texts": in_pandas(
        "edit_self_join", {"k": 2, "on": "s"}, free=10**4
    ),
    "pairs of plain texts by similarity": in_pandas(
        "edit_self_join", {"similarity": 0.5, "on": "s"}, free=10**4
    ),
    "neighbors of a plain frame": in_pandas("knn_join", {"k": 900, **ON}),
}


def call(case, verb, options, npartitions):
    """Build and plan, and compute what planning alone does not check."""
    frame = SETS if "set_" in case.verb or "edit_" in case.verb else POINTS
    plain = case.plain and npartitions is None
    if not plain:
        frame = dd.from_pandas(
            frame, npartitions=npartitions or case.npartitions, sort=False
        )
    made = getattr(frame.simjoin, verb)(
        *((frame,) if verb == "join" else ()), **options
    )
    if plain:
        return made
    return made.expr.plan if verb in PLANNED else made.compute()


def refusal(case, verb, options, npartitions):
    """Return what is raised, and who refused; None: nothing is."""
    try:
        call(case, verb, options, npartitions)
    except PlanningError as error:  # planned for a cluster, and computed without one
        if "whose workers would shuffle its rows with 'p2p'" not in str(error):
            raise
    except (BudgetError, ScratchError) as error:
        frame = error.__traceback__
        while frame.tb_next is not None:
            frame = frame.tb_next
        return error, frame.tb_frame.f_code.co_name
    return None


def follow(case, verb, options, config, npartitions, before):
    """Follow each remedy to its end; return how many were followed."""
    with dask.config.set({**config, "scheduler": "sync"}):
        found = refusal(case, verb, options, npartitions)
    if found is None:
        return 0
    error, who = found
    assert who not in before, f"in a circle: {[*before, who]}: {error}"
    assert len(before) < MOST_STEPS
    if not error.remedies:
        assert who == case.left, f"{who} recommends nothing: {error}"
        return 0
    for remedy in error.remedies:
        for name, value in [*remedy.options.items(), *remedy.config.items()]:
            assert value is None or str(value) in str(error), (
                f"{name}={value!r} is not in: {error}"
            )
        assert not remedy.verb or remedy.verb in str(error)
    return sum(
        1
        + follow(
            case,
            remedy.verb or verb,
            {
                name: value
                for name, value in {**options, **remedy.options}.items()
                if value is not None
            },
            {**config, **remedy.config},
            remedy.npartitions or npartitions,
            [*before, who],
        )
        for remedy in error.remedies
    )


def pretend(monkeypatch, have):
    """Plan for a cluster, and compute without one."""
    for module in (planner, set_graph, trees, optics, components, set_graph, pairs):
        monkeypatch.setattr(module, "limits_for", lambda library: have)
    monkeypatch.setattr(
        planner, "shuffle_method", lambda *_: "p2p" if have.cluster else "tasks"
    )
    monkeypatch.setattr("dask_simjoin.graph.lazy_join.check_shuffle", lambda *_: None)


NEAR = {"eps": 0.01, **ON}
SIMILAR = {"threshold": 0.4, **WORDS}
CALLS = {
    "self_join": NEAR,
    "join": NEAR,
    "count_pairs": NEAR,
    "neighbor_counts": NEAR,
    "neighbor_graph": NEAR,
    "near_duplicated": NEAR,
    "dbscan": {"min_samples": 5, **NEAR},
    "knn_join": {"k": 3, **ON},
    "k_distances": {"k": 3, **ON},
    "closest_pairs": {"n": 10, **ON},
    "spanning_tree": ON,
    "hdbscan": {"min_cluster_size": 20, **ON},
    "optics": {"max_eps": 0.1, "min_samples": 5, **ON},
    "set_self_join": SIMILAR,
    "set_near_duplicated": SIMILAR,
    "count_set_pairs": SIMILAR,
    "set_neighbor_counts": SIMILAR,
    "edit_self_join": {"k": 1, "on": "s"},
}


@in_turns(1, memory=[1e3, 1e5], verb=list(CALLS))
def test_workers_far_too_small_are_refused(monkeypatch, verb, memory):
    """The message says what to do, and no advice is about an option that is not given."""
    pretend(monkeypatch, workers(200 * memory, memory))
    with (
        dask.config.set({"scheduler": "sync"}),
        pytest.raises(BudgetError, match=r"\. Use .*(workers|memory)") as caught,
    ):
        call(Case(verb, CALLS[verb]), verb, CALLS[verb], None)
    assert "Leave out" not in str(caught.value)
    for remedy in caught.value.remedies:
        assert all(str(value) in str(caught.value) for value in remedy.options.values())


@pytest.mark.filterwarnings("ignore::dask_simjoin.errors.UnitsWarning")
@pytest.mark.parametrize(
    "name",
    chosen(list(CASES), [name for name in CASES if name != "one chunk with its tree"]),
)
def test_remedies_are_tried(monkeypatch, name, record_property):
    case = CASES[name]
    pretend(monkeypatch, case.have)
    for (module, constant), value in case.constants.items():
        monkeypatch.setattr(module, constant, value)
    with dask.config.set({**case.config, "scheduler": "sync"}):
        found = refusal(case, case.verb, case.options, None)
    assert found is not None, "it is not refused"
    record_property(
        "remedies", follow(case, case.verb, case.options, case.config, None, [])
    )


def test_remedies_travel_with_their_error():
    for kind in (BudgetError, ScratchError):
        error = pickle.loads(pickle.dumps(kind("no", remedies=[Remedy({"k": 1})])))
        assert str(error) == "no" and error.remedies[0].options == {"k": 1}
    assert BudgetError("no").remedies == ()
