"""Each undocumented part of Dask behaves as the package relies on."""

import sys
from collections import Counter
from types import SimpleNamespace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.base import get_scheduler
from dask.dataframe.utils import assert_eq
from dask.delayed import Delayed
from dask.diagnostics import Profiler
from dask.system import CPU_COUNT
from distributed.protocol import serialize
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
from distributed.system import MEMORY_LIMIT

from dask_simjoin.graph import (
    dask_private,
    lazy_join,  # noqa: F401  (with graph.base, it installs the guards)
)
from dask_simjoin.graph.dask_private import (
    CHOICE_HOOK,
    END_CLASSES,
    FILTER_HOOK,
    FILTER_MODULES,
    MARK,
    PERSIST_HOOK,
    REPR_HOOK,
    Alias,
    Expr,
    Fused,
    List,
    Task,
    TaskRef,
    fuse_writes,
    guard_choices,
    guard_filters,
    guard_repr,
    persist_without_token,
)
from tests.support.gates import PATIENCE
from tests.support.profiles import every_nth
from tests.support.threads import started

FRAME = pd.DataFrame({"x": [3.0, 1.0, 2.0, 5.0, 4.0, 0.0], "k": [0, 1, 0, 1, 0, 1]})


def lazy():
    return dd.from_pandas(FRAME, npartitions=3, sort=False)


def kinds(frame):
    return [type(node) for node in frame.expr.walk()]


def test_the_names_are_listed_once():
    assert len(dask_private.__all__) == len(set(dask_private.__all__))
    assert all(hasattr(dask_private, name) for name in dask_private.__all__)


def test_collections_are_made_of_expressions():
    made = dask_private.new_collection(lazy().expr)
    assert isinstance(made, dask_private.FrameBase) and made.compute().equals(FRAME)


@pytest.mark.parametrize(
    ("kind", "use"),
    [
        ("FromPandas", lambda frame: frame),
        ("BlockwiseIO", lambda frame: frame),
        ("IO", lambda frame: frame),
        ("Projection", lambda frame: frame[["x"]]),
        ("Filter", lambda frame: frame[frame.x > 1]),
        ("FilterAlign", lambda frame: frame[frame.x.repartition(npartitions=2) > 1]),
        ("Elemwise", lambda frame: frame + 1),
        ("Blockwise", lambda frame: frame + 1),
        ("CumulativeAggregations", lambda frame: frame.x.cumsum()),
        ("Head", lambda frame: frame.head(1, compute=False)),
        ("Tail", lambda frame: frame.tail(1, compute=False)),
        ("Partitions", lambda frame: frame.partitions[1]),
        ("LocBase", lambda frame: frame.loc[2:]),
        ("SortValues", lambda frame: frame.sort_values("x")),
        ("NLargest", lambda frame: frame.nlargest(2, "x")),
        ("CustomReduction", lambda frame: frame.reduction(len, meta=0)),
        ("Repartition", lambda frame: frame.repartition(npartitions=2)),
        ("FromGraph", lambda frame: frame.persist(scheduler="synchronous")),
    ],
)
def test_methods_of_frames_make_these_expressions(kind, use):
    assert any(
        issubclass(one, getattr(dask_private, kind)) for one in kinds(use(lazy()))
    )


@pytest.mark.parametrize(
    ("kind", "use"),
    [
        ("RepartitionToFewer", lambda frame: frame.repartition(npartitions=1)),
        ("ReducedPartition", lambda frame: frame.x.max()),
        ("TreeReduce", lambda frame: frame.x.max()),
        ("Fused", lambda frame: (frame + 1) * 2),
    ],
)
def test_lowered_frames_have_these_expressions(kind, use):
    lowered = use(lazy()).expr.simplify().lower_completely()
    nodes = [type(node) for node in (*lowered.walk(), *lowered.fuse().walk())]
    assert any(issubclass(one, getattr(dask_private, kind)) for one in nodes)


def test_a_reader_of_few_columns_merges_partitions(tmp_path):
    wide = pd.DataFrame({f"x{n}": np.arange(40.0) for n in range(20)})
    dd.from_pandas(wide, npartitions=8).to_parquet(tmp_path)
    few = dd.read_parquet(tmp_path, filesystem="arrow")[["x0"]] + 1
    reader = next(
        node for node in few.expr.walk() if isinstance(node, dask_private.BlockwiseIO)
    )
    assert (
        type(reader)._fusion_compression_factor
        is not dask_private.BlockwiseIO._fusion_compression_factor
    )
    with dask.config.set({"dataframe.parquet.minimum-partition-size": 1}):
        merged = few.optimize(fuse=False)
    assert (
        any(issubclass(kind, dask_private.FusedIO) for kind in kinds(merged))
        and merged.npartitions < 8
    )


def test_held_partitions_are_values_in_the_layer():
    held = lazy().persist(scheduler="synchronous").expr
    layer, keys = held.operand("layer"), held.operand("keys")
    assert len(keys) == 3 and not any(
        isinstance(layer[key], dask_private.GraphNode) for key in keys
    )


def test_a_shuffle_sends_each_row_to_the_partition_that_its_column_says():
    rows = lazy().assign(_partitions=lazy().k)
    moved = dask_private.Shuffle(rows.expr, "_partitions", 2, True, "tasks")
    with dask.config.set(scheduler="synchronous"):
        parts = dask.compute(*dask_private.new_collection(moved).to_delayed())
    assert [sorted(part.k.unique()) for part in parts] == [[0], [1]]


class Numbers(dask_private.PartitionsFiltered, Expr):
    _parameters = ["number", "_partitions"]
    _defaults = {"_partitions": None}
    _meta = None

    def _divisions(self):
        return (None,) * (self.operand("number") + 1)

    def _layer(self):
        return {
            (self._name, at): Task((self._name, at), int, n)
            for at, n in enumerate(self._partitions)
        }


def test_chosen_partitions_are_the_last_operand():
    assert list(Numbers(4)._partitions) == [0, 1, 2, 3]
    some = dask_private.Partitions(Numbers(4), [2, 0]).simplify()
    graph = some.__dask_graph__()
    with dask.config.set(scheduler="synchronous"):
        assert get_scheduler()(graph, some.__dask_keys__()) in ([2, 0], (2, 0))


def test_tasks_refer_to_tasks():
    graph = {
        "one": Task("one", int, 1),
        "same": Alias("same", "one"),
        "inner": Task(
            "inner", sum, List(TaskRef("one"), TaskRef("same"), Task(None, abs, -5))
        ),
    }
    run = get_scheduler(cls=Delayed, scheduler="synchronous")
    assert list(run(graph, ["inner"])) == [7]
    assert graph["inner"].dependencies == {"one", "same"}
    assert type(graph["one"]) is Task and isinstance(
        graph["same"], dask_private.GraphNode
    )


def test_unknown_categories_are_marked():
    frame = lazy().astype({"k": "category"})
    assert dask_private.UNKNOWN_CATEGORIES in frame._meta.k.dtype.categories
    assert (
        dask_private.UNKNOWN_CATEGORIES
        not in frame.categorize()._meta.k.dtype.categories
    )


def test_a_key_begins_with_the_name_of_its_task():
    assert (
        dask_private.key_split(("simjoin_count-0123456789abcdef0123456789abcdef", 3))
        == "simjoin_count"
    )


def test_dispatchers_of_gpu_arrays_take_further_classes():
    class Own(tuple):
        pass

    cuda_serialize.register(Own)(lambda value: ({"size": len(value)}, []))
    cuda_deserialize.register(Own)(lambda header, frames: Own(range(header["size"])))
    header, frames = serialize(Own((0, 1)), serializers=("cuda",))
    assert cuda_deserialize.dispatch(Own)(header["sub-header"], frames) == (0, 1)


def test_the_machine_has_threads_and_memory():
    assert CPU_COUNT >= 1 and MEMORY_LIMIT > 1 << 28


def test_a_scheduler_is_the_method_of_a_client(client):
    assert get_scheduler().__self__ is client


def test_all_modules_that_ask_are_guarded():
    asking = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("dask.dataframe") and hasattr(module, FILTER_HOOK)
    ]
    assert {module.__name__ for module in asking} == {
        module.__name__ for module in FILTER_MODULES
    }
    assert all(hasattr(getattr(module, FILTER_HOOK), MARK) for module in asking)


def test_filters_are_guarded_once():
    module = SimpleNamespace(**{FILTER_HOOK: lambda expr, parent, dependents: True})
    condition = lazy().expr
    assert guard_filters(lambda step, found: found is condition, [module])
    once = getattr(module, FILTER_HOOK)
    assert (
        guard_filters(lambda step, found: False, [module])
        and getattr(module, FILTER_HOOK) is once
    )
    assert once(None, SimpleNamespace(predicate=None), None)
    assert not once(None, SimpleNamespace(predicate=condition), None)
    assert not guard_filters(lambda step, found: False, [SimpleNamespace()])


def test_choices_are_guarded_once():
    class End:
        def _simplify_down(self):
            return "moved"

    stays, moves = End(), End()
    assert guard_choices(lambda end: end is stays, [End]) and guard_choices(
        lambda end: True, [End]
    )
    assert (stays._simplify_down(), moves._simplify_down()) == (None, "moved")
    assert not guard_choices(lambda end: False, [type("Head", (), {})])
    assert all(hasattr(vars(kind)[CHOICE_HOOK], MARK) for kind in END_CLASSES)


def test_the_repr_is_guarded_once():
    class Shows:
        def __init__(self, expr):
            self.expr = expr

        _repr_divisions = property(lambda self: "divisions")

    assert guard_repr(lambda expr: expr, Shows) and guard_repr(
        lambda expr: "again", Shows
    )
    assert (Shows(None)._repr_divisions, Shows("instead")._repr_divisions) == (
        "divisions",
        "instead",
    )
    assert not guard_repr(lambda expr: None, int)
    assert hasattr(vars(dask_private.FrameBase)[REPR_HOOK].fget, MARK)


def test_results_are_persisted_without_a_token_of_their_rows():
    class Rebuilds:
        _postpersist = staticmethod(lambda *graph: "by Dask")

    assert persist_without_token("ours", Rebuilds)
    once = vars(Rebuilds)[PERSIST_HOOK]
    assert persist_without_token("all", Rebuilds)
    assert vars(Rebuilds)[PERSIST_HOOK] is once
    assert Rebuilds._postpersist({}, FRAME, (), "others") == "by Dask"
    assert not persist_without_token("ours", int)
    assert hasattr(getattr(dask_private.FrameBase, PERSIST_HOOK), MARK)

    class Unhashable:
        def __dask_tokenize__(self):
            raise AssertionError("a token is made")

    graph = {("a", 0): Unhashable()}, FRAME, (None, None)
    rebuild = dask_private.FrameBase._postpersist
    names = {rebuild(*graph, "simjoin_pairs")._name for _ in range(2)}
    assert len(names) == 2
    with pytest.raises(AssertionError, match="a token is made"):
        # if this raises no error, `persist_without_token` can be removed
        rebuild(*graph, "others")


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_persisted_results_are_the_results(scheduler):
    with dask.config.set(scheduler=scheduler):
        pairs = lazy().simjoin.self_join(1.0, on="x")
        found, again = pairs.persist(), pairs.persist()
        assert found._name != again._name and found._name.startswith("simjoin_pairs")
        assert found.compute().equals(pairs.compute())
        assert again[["left"]].compute().equals(pairs.compute()[["left"]])
        assert found.divisions == pairs.divisions
        both = dd.concat([found, again]).compute()
        assert len(both) == 2 * len(found) > 0


def test_writes_are_fused_once():
    class Barrier:
        pass

    class Simplified:
        def _simplify_down(self):
            return None

    assert fuse_writes(lambda step: True, Barrier)
    once = vars(Barrier)[CHOICE_HOOK]
    assert (
        fuse_writes(lambda step: False, Barrier) and vars(Barrier)[CHOICE_HOOK] is once
    )
    assert not fuse_writes(lambda step: True, Simplified)


def test_writes_follow_their_inputs(tmp_path):
    """Dask reads a wide frame in one order of columns for the labels of groups, and in
    another one for the rows.
    """
    frame = pd.DataFrame({f"x{k}": np.arange(9.0) for k in range(17)})
    frame = frame.assign(g=0, key=range(9))
    frame.to_parquet(tmp_path / "frame.parquet")
    wide = dd.read_parquet(tmp_path, filesystem="arrow").set_index("key", drop=False)
    on = [f"x{k}" for k in range(17)]
    for how in ({}, {"by": "g"}):
        found = wide.simjoin.neighbor_counts(5.0, on=on, **how).to_frame("n")
        for n, one in enumerate((found, found.persist())):
            one.to_parquet(tmp_path / f"found{n}")
            assert dd.read_parquet(tmp_path / f"found{n}")["n"].compute().tolist() == [
                *(1, 2, 2, 2, 2, 2, 2, 2, 1)
            ]


def steps_of(compute):
    """Count the tasks that run meanwhile, by the first part of their key."""
    with dask.config.set(scheduler="sync"), Profiler() as ran:
        compute()
    return Counter(
        task.key[0].rpartition("-")[0]
        for task in ran.results
        if isinstance(task.key, tuple)
    )


WRITTEN = {
    "pairs": lambda frame: frame.simjoin.self_join(0.1),
    "labels": lambda frame: frame.simjoin.dbscan(0.1, 3).to_frame("label"),
    "beside": lambda frame: frame.assign(label=frame.simjoin.dbscan(0.1, 3)),
    "twice": lambda frame: frame.assign(
        a=(found := frame.simjoin.neighbor_counts(0.1)), b=found + 1
    ),
}


@pytest.mark.parametrize("made", every_nth(4, list(WRITTEN)))
def test_a_partition_is_written_by_the_task_that_makes_it(tmp_path, made):
    frame = pd.DataFrame(
        np.random.default_rng(3).uniform(size=(400, 2)), columns=["x", "y"]
    )
    dd.from_pandas(frame, npartitions=4).to_parquet(tmp_path / "read")
    read = dd.read_parquet(tmp_path / "read", columns=["x", "y"])
    lazy = WRITTEN[made](read)
    names = steps_of(lambda: lazy.to_parquet(tmp_path / "written"))
    assert [n for name, n in names.items() if name.endswith("-toparquetdata")] == [
        lazy.npartitions
    ]
    assert (
        not {"operation", "reset_index", "to_frame", "assign", "simjoin_pairs"}
        & names.keys()
    )
    assert_eq(
        dd.read_parquet(tmp_path / "written"),
        WRITTEN[made](read).compute(),
        check_index=False,
    )


def test_other_writes_stay_as_dask_makes_them(tmp_path):
    names = steps_of(lambda: lazy().to_parquet(tmp_path))
    assert names["reset_index"] == names["toparquetdata"] == 3


class Slow(dask_private.FromPandas):
    """A frame whose divisions wait for those of another one, found by another thread."""

    def _divisions(self):
        other = dd.from_pandas(pd.DataFrame({"x": range(6)}), npartitions=2).expr
        started(lambda: other.divisions).result(PATIENCE)
        return super()._divisions()


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="there is no such lock since Python 3.12"
)
def test_fused_steps_ask_for_all_that_they_read():
    assert not dask_private.list_fused_columns()

    class Other(Fused):
        _projection_columns = ["own"]

    assert not dask_private.list_fused_columns(Other)
    assert Other._projection_columns == ["own"]


@pytest.mark.parametrize("verb", every_nth(4, ["near_duplicated", "neighbor_counts"]))
def test_values_of_groups_in_combined_files_are_persisted(tmp_path, verb):
    frame = pd.DataFrame(
        {"x": range(12), "y": 0.0, "g": ["a", "b", "c"] * 4, "n": range(12)}
    )
    dd.from_pandas(frame, npartitions=3).to_parquet(tmp_path)
    read = dd.read_parquet(tmp_path, filesystem="fsspec")
    both = dd.concat([read[read.n > 5], read[read.n <= 5]])
    found = getattr(both.simjoin, verb)(3.0, on=["x", "y"], by="g")
    assert_eq(found.persist(), found.compute())


@pytest.mark.parametrize(
    "index", [pd.RangeIndex(61), pd.RangeIndex(-5, 178, 3), pd.RangeIndex(1)]
)
@pytest.mark.parametrize("sort", [True, False])
def test_divisions_of_a_range_are_those_of_dask(index, sort):
    frame = pd.DataFrame({"x": 1.0}, index=index)
    for parts in range(1, len(index) + 1):
        first, second = (
            dd.from_pandas(frame, npartitions=parts, sort=sort).expr for _ in range(2)
        )
        assert first.frame is second.frame or first is second
        dask_private.seed_divisions(first)
        (seeded,) = first.frame._division_info.values()
        first.frame._division_info.clear()
        wanted, locations = first._divisions_and_locations
        assert (list(wanted), list(locations)) == tuple(map(list, seeded))


@pytest.mark.parametrize(
    "index", [pd.RangeIndex(9, 0, -1), pd.Index([1, 2, 2, 5]), pd.Index(["a", "b"])]
)
def test_divisions_of_other_indexes_are_left_to_dask(index):
    whole = dd.from_pandas(
        pd.DataFrame({"x": 1.0}, index=index), npartitions=2, sort=False
    ).expr
    dask_private.seed_divisions(whole)
    assert not whole.frame._division_info
    by_size = dd.from_pandas(pd.DataFrame({"x": range(9)}), chunksize=4).expr
    dask_private.seed_divisions(by_size)
    assert not by_size.frame._division_info


def test_divisions_that_compute_hold_up_no_others():
    plain = dd.from_pandas(pd.DataFrame({"x": range(3)}), npartitions=1).expr
    assert Slow(*plain.operands).divisions == plain.divisions


def test_graphs_without_a_token_are_computed(client):
    graph = {
        "a": Task("a", int, "5"),
        "b": Task("b", sum, List(TaskRef("a"), TaskRef("a"))),
    }
    first, second = (dask_private.without_token(graph) for _ in range(2))
    assert first._name != second._name
    assert client.get(first, ["b", "a"]) == [10, 5]
    (future,) = client.get(second, ["b"], sync=False)
    assert future.key == "b" and future.result() == 10


def test_the_token_of_a_graph_is_not_made(monkeypatch):
    class Unhashable:
        def __dask_tokenize__(self):
            raise AssertionError("a token is made")

    graph = {"a": Task("a", repr, Unhashable())}
    dask_private.without_token(graph)
    with pytest.raises(AssertionError, match="a token is made"):
        # if this raises no error, `without_token` can be removed
        dask_private.LLGExpr(graph)
