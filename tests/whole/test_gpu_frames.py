"""Every verb on cuDF frames, plain and lazy, says what it says on pandas frames."""

import dask
import numpy as np
import pandas as pd
import pytest

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")
dask_cudf = pytest.importorskip("dask_cudf")

import dask.dataframe as dd
from dask.base import is_dask_collection

from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.errors import (
    BudgetError,
    CoordinateError,
    DuplicateIdError,
    OptionError,
    SourceChangedError,
)
from tests.checks.gpu_verbs import run_case
from tests.support.gpu_frames import computed, lay
from tests.support.gpu_programs import join_programs
from tests.support.oracle import as_set, assert_same_pairs, brute_force
from tests.support.points import frame_of
from tests.support.profiles import examples

pytestmark = pytest.mark.gpu

N, EPS = 700, 0.07
HOW = ["cudf", "dask-1", "dask-4"]


def programs():
    return join_programs([3]) + join_programs([2])


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    places = frame_of(rng.uniform(size=(N, 3)))
    places["name"] = [f"place {k:04}" for k in rng.permutation(N)]
    places["when"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(
        rng.permutation(N), unit="s"
    )
    places["big"] = np.uint64(2**63) + rng.permutation(N).astype(np.uint64)
    return places


ON = ["c0", "c1", "c2"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("id", [None, "name", "when", "big"])
def test_pairs_are_those_of_pandas(frame, how, id):
    options = {"on": ON, "id": id, "return_distance": True}
    want = frame.simjoin.self_join(EPS, **options)
    pairs = lay(frame, how).simjoin.self_join(EPS, **options)
    example = pairs._meta if is_dask_collection(pairs) else pairs
    assert isinstance(example, cudf.DataFrame)
    found = computed(pairs)
    assert found.columns.tolist() == want.columns.tolist()
    assert [str(t) for t in found.dtypes] == [str(t) for t in example.dtypes]
    assert_same_pairs(as_set(found), as_set(want))
    key = ["left", "right"]
    both = (
        found.sort_values(key).distance.to_numpy(),
        want.sort_values(key).distance.to_numpy(),
    )
    assert (both[0] == both[1]).all()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("partitioning", ["auto", "entity", "spatial", "replicated"])
@pytest.mark.parametrize("blocksize", [None, "4 kB"])
def test_partitionings(frame, how, partitioning, blocksize):
    if partitioning == "replicated" and blocksize and how != "cudf":
        with pytest.raises(BudgetError, match="replicated"):
            computed(
                lay(frame, how).simjoin.self_join(
                    EPS, on=ON, partitioning=partitioning, blocksize=blocksize
                )
            )
        return
    there = lay(frame, how)
    options = {"on": ON, "partitioning": partitioning, "blocksize": blocksize}
    want = brute_force(frame[ON].to_numpy(), EPS)
    for id in (None, "name"):
        pairs = there.simjoin.self_join(EPS, id=id, **options)
        if id is None:
            assert_same_pairs(as_set(computed(pairs)), want)
        else:
            names = frame.name.tolist()
            assert_same_pairs(
                as_set(computed(pairs)), {(names[a], names[b]) for a, b in want}
            )
    counts = there.simjoin.neighbor_counts(EPS, **options)
    places = np.array(sorted(want)).reshape(-1)
    assert computed(counts).tolist() == np.bincount(places, minlength=N).tolist()
    total = there.simjoin.count_pairs(EPS, **options)
    assert int(total if how == "cudf" else total.compute(scheduler="sync")) == len(want)
    some = [EPS, EPS / 3, 0.0, EPS / 2]
    there_too = computed(there.simjoin.count_pairs(some, **options))
    assert there_too.tolist() == frame.simjoin.count_pairs(some, on=ON).tolist()
    counts = computed(there.simjoin.neighbor_counts(some, **options))
    assert (
        counts.to_numpy().tolist()
        == frame.simjoin.neighbor_counts(some, on=ON).to_numpy().tolist()
    )
    few = lay(frame[::3], how)
    for eps in (EPS, some):
        counts = computed(there.simjoin.neighbor_counts(eps, other=few, **options))
        want = frame.simjoin.neighbor_counts(eps, other=frame[::3], on=ON)
        assert counts.to_numpy().tolist() == want.to_numpy().tolist()


@pytest.mark.parametrize("how", HOW)
def test_both_directions_self_pairs_and_projection(frame, how):
    there = lay(frame, how)
    want = brute_force(frame[ON].to_numpy(), EPS)
    every = want | {(b, a) for a, b in want} | {(a, a) for a in range(N)}
    found = there.simjoin.self_join(EPS, on=ON, pairs="both", include_self=True)
    assert_same_pairs(as_set(computed(found)), every)
    left = computed(there.simjoin.self_join(EPS, on=ON)[["left"]])
    assert sorted(left.left.tolist()) == sorted(a for a, _ in want)


@pytest.mark.parametrize("how", HOW)
def test_dropna(frame, how):
    holed = frame[ON].copy()
    holed.loc[::7, "c1"] = np.nan
    holed["c2"] = holed["c2"].astype("float32")
    kept = holed.dropna()
    names = kept.index.tolist()
    want = {
        (names[a], names[b]) for a, b in brute_force(kept.to_numpy(np.float64), EPS)
    }
    with pytest.raises(CoordinateError, match="c1"):
        computed(lay(holed, how).simjoin.self_join(EPS))
    assert_same_pairs(
        as_set(computed(lay(holed, how).simjoin.self_join(EPS, dropna=True))), want
    )
    counts = computed(lay(holed, how).simjoin.neighbor_counts(EPS, dropna=True))
    assert counts.index.tolist() == holed.index.tolist()
    assert counts.sum() == 2 * len(want)
    assert (counts.to_numpy()[::7] == 0).all()
    other = lay(holed.iloc[:30], how)
    for options in ({"how": "left", "keep": "c0"}, {"how": "leftanti"}):
        options["dropna"] = True
        found = computed(lay(holed, how).simjoin.join(other, EPS, **options))
        plain = holed.simjoin.join(holed.iloc[:30], EPS, **options)
        assert len(found) == len(plain)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("column", ["float32", "int64", "bool", "Int32"])
def test_dtypes(how, column):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2 if column == "bool" else 30, (300, 2))
    plain = frame_of(x).astype(column)
    want = brute_force(x.astype(float), 2.0)
    there = lay(plain.astype(column.lower()), how)
    assert_same_pairs(
        as_set(computed(there.simjoin.self_join(2.0, on=["c0", "c1"]))), want
    )


@pytest.mark.parametrize("how", HOW)
def test_repeated_ids_are_refused(frame, how):
    there = lay(frame.assign(name="same"), how)
    with pytest.raises(DuplicateIdError, match="'same' repeats"):
        computed(there.simjoin.self_join(EPS, on=ON, id="name"))
    far = frame.assign(number=np.r_[np.arange(N - 1), 0])
    with pytest.raises(DuplicateIdError, match="0 repeats"):
        computed(lay(far, how).simjoin.self_join(EPS, on=ON, id="number"))
    scattered = frame.assign(number=np.random.default_rng(0).permutation(N))
    assert len(computed(lay(scattered, how).simjoin.self_join(EPS, on=ON, id="number")))
    assert len(
        computed(
            lay(far, how)
            .simjoin.with_row_id()
            .simjoin.self_join(EPS, on=ON, id="row_id")
        )
    )


@pytest.mark.parametrize("how", HOW)
def test_few_rows(frame, how):
    for n in (0, 1, 2):
        some = lay(frame.iloc[:n], how)
        pairs = some.simjoin.self_join(10.0, on=ON, return_distance=True)
        assert len(computed(pairs)) == n * (n - 1) // 2
        assert (
            computed(some.simjoin.neighbor_counts(10.0, on=ON)).tolist()
            == [max(n - 1, 0)] * n
        )


def test_empty_partitions(frame):
    part = cudf.from_pandas(frame[ON])
    parts = [part[:0], part[:300], part[:0], part[300:]]
    there = dd.from_map(lambda p: p, parts, meta=part[:0])
    for partitioning in ("entity", "spatial", "replicated"):
        found = computed(there.simjoin.self_join(EPS, partitioning=partitioning))
        assert_same_pairs(as_set(found), brute_force(frame[ON].to_numpy(), EPS))


def test_the_plan(frame):
    there = lay(frame, "dask-4")
    report = there.simjoin.plan(EPS, on=ON)
    assert report.partitioning == "replicated" and report.chunks == 1
    assert "tiles on GPUs, in float32" in str(report)
    # a GPU runs parts of the queries one after the other, whatever the threads
    with dask.config.set({"num_workers": 2}):
        assert there.simjoin.plan(EPS, on=ON, partitioning="replicated").partitions == 1
    assert lay(frame, "cudf").simjoin.plan(EPS, on=ON).pairs > 0


def test_what_only_the_cpu_does_is_refused(frame):
    with pytest.raises(OptionError, match="does not support frames of 'cudf'"):
        lay(frame, "dask-4").simjoin.self_join(EPS, on=ON, method="sweep")
    names = [f"c{k}" for k in range(2049)]
    wide = cudf.DataFrame({name: [0.0, 1.0] for name in names})
    with pytest.raises(OptionError, match="at most 2,048"):
        wide.simjoin.self_join(EPS)
    assert wide.simjoin.count_pairs(50.0, on=names[:2048]) == 1
    assert wide.simjoin.count_pairs(0.0, on=names[:2048]) == 0


def test_a_source_that_changed_is_refused(frame):
    there = lay(frame, "dask-4")
    pairs = there.simjoin.self_join(EPS, on=ON)
    changed = lay(frame.iloc[:-1], "dask-4")
    plan = pairs.npartitions
    assert plan
    frozen = pairs.expr.operand("source")
    frozen.inner = changed[ON].expr
    with pytest.raises(SourceChangedError):
        computed(pairs)


def test_backends_and_readers(frame, tmp_path):
    """to_backend, and readers that Dask's configuration makes give cuDF."""
    want = brute_force(frame[ON].to_numpy(), EPS)
    there = dd.from_pandas(frame, npartitions=3).to_backend("cudf")
    assert_same_pairs(as_set(computed(there.simjoin.self_join(EPS, on=ON))), want)
    there.to_parquet(tmp_path / "points")
    with dask.config.set({"dataframe.backend": "cudf"}):
        read = dd.read_parquet(tmp_path / "points")
        pairs = read.simjoin.self_join(EPS, on=ON)
        assert_same_pairs(as_set(computed(pairs)), want)
        pairs.to_parquet(tmp_path / "pairs")
    back = pd.read_parquet(tmp_path / "pairs")
    assert_same_pairs(as_set(back), want)
    named = read.simjoin.self_join(EPS, on=ON, id="name").merge(
        read[["name", "big"]], left_on="left", right_on="name"
    )
    assert len(named) == len(want)


def test_threads_share_a_gpu(frame):
    pairs = lay(frame, "dask-4").simjoin.self_join(
        EPS, on=ON, partitioning="entity", blocksize="2 kB"
    )
    found = pairs.compute(scheduler="threads", num_workers=8).to_pandas()
    assert_same_pairs(as_set(found), brute_force(frame[ON].to_numpy(), EPS))


def test_each_index_is_built_once(frame):
    pairs = lay(frame, "dask-4").simjoin.self_join(
        EPS, on=ON, partitioning="entity", blocksize="5 kB"
    )
    chunks = len(pairs.expr.plan.chunks)  # planning builds one, of its sample
    before = JOINER.built
    assert pairs.npartitions > chunks > 3
    computed(pairs)
    assert JOINER.built == before + chunks


def test_more_pairs_than_a_batch_and_an_output_hold(frame, monkeypatch):
    x = np.random.default_rng(0).uniform(size=(20_000, 2))
    there = dask_cudf.from_cudf(
        cudf.DataFrame({"x": x[:, 0], "y": x[:, 1]}), npartitions=2
    )
    want = int(there.simjoin.count_pairs(0.1).compute(scheduler="sync"))
    assert want > 5_000_000
    with dask.config.set({"simjoin.output-size": "8 MiB"}):
        pairs = there.simjoin.self_join(0.1)
        sizes = [
            len(part) for part in dask.compute(*pairs.to_delayed(), scheduler="sync")
        ]
    assert sum(sizes) == want
    assert len(sizes) > 8 and max(sizes) < 2 * 8 * 2**20 / 16


@pytest.mark.parametrize("case", range(examples(300)))
def test_random_options(case):
    run_case(29, case, [])
