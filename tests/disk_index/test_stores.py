"""An index on an S3 server: the same results as on a disk, and no version or file lost."""

import contextlib
import os
import pickle
import sys

import dask
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.disk_index import publishing, stores
from dask_simjoin.disk_index.folders import TOMBSTONE, is_tombstone
from dask_simjoin.disk_index.manifests import (
    manifest_path,
    read_manifest,
    versions,
)
from dask_simjoin.disk_index.stores import object_path
from dask_simjoin.errors import (
    IndexConflictError,
    IndexFormatError,
    IndexStoreError,
    OptionError,
    OptionTypeError,
    VersionGoneError,
)
from tests.support import s3
from tests.support.gates import PATIENCE
from tests.support.growing import Model
from tests.support.oracle import as_set
from tests.support.threads import started

obstore = pytest.importorskip("obstore")
pytest.importorskip("moto")


@pytest.fixture
def how(server):
    """Where an index goes, for `index` and `open_index`."""
    with dask.config.set(scheduler="sync"):
        yield {"path": s3.new_url(), "storage_options": server}


def frame(ids):
    return pd.DataFrame({"key": np.array(ids), "x": np.array(ids, float) / 2})


def made(how, ids=range(6), **options):
    return frame(ids).simjoin.index(
        1.0, on="x", id="key", row_group=2, **options, **how
    )


def sorted_rows(lazy):
    found = lazy.compute()
    return found.sort_values(found.columns.tolist()).reset_index(drop=True)


def told(how, store_pairs):
    """All that an index says as it grows."""
    index = made(
        how,
        range(20),
        keep="x",
        return_distance=True,
        store_pairs=store_pairs,
        recluster="never",
    )
    yield index.pairs()
    for new, gone, batch in (
        ([30, 31, 5], [2], "one"),
        ([40], [5, 30], "two"),
        ([2], [], "three"),
    ):
        changes = index.update(
            frame(new), delete=gone, if_exists="replace", batch=batch
        )
        yield changes.added
        yield changes.removed
    assert index.update(frame([2]), batch="three").report.known
    yield index.rows()
    yield index.components()
    yield index.join(frame([3, 4]).assign(x=[1.1, 7.2]), 0.5)
    assert index.optimize("all").files_written
    index.restore(2)
    yield index.pairs(0.7)
    yield index.changes(1)
    yield index.changes(0, 4)
    other = dask_simjoin.open_index(version=3, **how)
    yield other.pairs()
    assert index.check().damaged == 0
    assert index.persist().memory.rows
    yield index.delete([0]).removed
    assert index.vacuum(keep=2) > 1000
    yield index.pairs()
    yield index.history()[["kind", "batch", "rows", "files"]].reset_index()
    with pytest.raises(
        VersionGoneError, match=r"Version 3 of the index at .* versions 6 to 7 remain"
    ):
        dask_simjoin.open_index(version=3, **how)
    assert index.vacuum(keep=2) == 0
    assert index.check().versions == 2


@pytest.mark.parametrize(
    "store_pairs", [pytest.param(False, marks=pytest.mark.slow), True]
)
def test_results_are_those_of_a_disk(store_pairs, how, tmp_path):
    both = [told(where, store_pairs) for where in ({"path": tmp_path / "index"}, how)]
    for local, remote in zip(*both, strict=True):
        if not isinstance(local, pd.DataFrame):
            local, remote = sorted_rows(local), sorted_rows(remote)
        pd.testing.assert_frame_equal(local, remote)


def test_workers_make_their_own_clients(how, client):
    """A cluster writes rows and reads them; nothing of the client's process is sent."""
    import dask.dataframe as dd

    with dask.config.set(scheduler=None):
        index = dd.from_pandas(frame(range(40)), npartitions=4).simjoin.index(
            1.0, on="x", id="key", **how
        )
        changes = index.update(
            dd.from_pandas(frame(range(40, 60)), npartitions=2), delete=[0]
        )
        want = Model(1.0, {k: (k / 2,) for k in range(1, 60)})
        assert as_set(index.pairs().compute()) == want.pairs()
        assert as_set(changes.removed.compute()) == {(0, 1), (0, 2)}


def test_large_files_are_read_by_few_requests(how, monkeypatch):
    """Row groups of one file come at once, not column by column."""
    n = 60_000
    rows = pd.DataFrame(
        {"key": np.arange(n), "x": np.random.default_rng(0).uniform(0, 1e6, n)}
    )
    index = rows.simjoin.index(1.0, on="x", id="key", row_group=1024, **how)
    gets = []
    plain = obstore.get
    monkeypatch.setattr(
        obstore,
        "get",
        lambda *args, **more: (gets.append(args[1]), plain(*args, **more))[1],
    )
    pd.testing.assert_frame_equal(sorted_rows(index.rows()), rows)
    assert sum("/rows/" in name for name in gets) < 10


def test_a_name_is_put_once(how):
    """Of writers at the same moment one makes the object."""
    path = object_path(how["path"], how["storage_options"])

    def put(number, name):
        try:
            (path / name).create(b"%d" % number)
        except FileExistsError:
            return 0
        return 1

    for name in map(str, range(20)):
        puts = [started(put, number, name) for number in range(4)]
        assert sum(done.result(PATIENCE) for done in puts) == 1


def test_two_threads_lose_nothing(how):
    both = [made(how), dask_simjoin.open_index(**how)]

    def work(number):
        for k in range(3):
            while True:
                with contextlib.suppress(IndexConflictError):
                    both[number].update(
                        frame([100 + 10 * number + k]), batch=f"{number} {k}"
                    )
                    break

    # set here for both: threads that set it would put back each other's value
    with dask.config.set(scheduler="sync"):
        for done in [started(work, number) for number in range(2)]:
            done.result(PATIENCE)
    want = [*range(6), 100, 101, 102, 110, 111, 112]
    assert sorted(both[0].rows().compute()["key"]) == want
    assert both[0].version == 7
    assert set(both[0].history()["batch"].dropna()) == {
        f"{n} {k}" for n in range(2) for k in range(3)
    }


def test_the_number_of_a_removed_version_stays_taken(how):
    index = made(how)
    for k in (10, 11, 12):
        index.update(frame([k]))
    index.vacuum(keep=1)
    root = index.path
    assert all(
        is_tombstone(manifest_path(root, number).read_bytes()) for number in (1, 2, 3)
    )
    assert versions(root) == [4]
    # as earlier versions of the package wrote them
    token = TOMBSTONE[:-1] + b', "written_by": "0123456789abcdef"}'
    manifest_path(root, 2).put(token)
    assert is_tombstone(token) and index.vacuum(keep=1) == 0


@pytest.mark.parametrize("loses", [1, publishing.ATTEMPTS])
def test_a_put_whose_answer_was_lost_counts(loses, how, monkeypatch):
    """The manifest names its attempt; and if no answer ever comes, the files stay."""
    index, plain, lost = made(how), obstore.put, []

    def put(store, path, content, **more):
        done = plain(store, path, content, **more)
        if path.endswith(".json") and len(lost) < loses:
            lost.append(path)
            raise obstore.exceptions.GenericError("no answer")
        return done

    monkeypatch.setattr(obstore, "put", put)
    changes = index.update(frame([20]), batch="once")
    assert (len(lost), changes.version, index.version) == (1, 2, 2)
    assert index.update(frame([20]), batch="once").report.known


def test_a_put_that_is_never_confirmed_leaves_its_files(how, monkeypatch):
    index, plain = made(how), obstore.put
    broken = []

    def put(store, path, content, **more):
        if path.endswith(".json"):
            broken.append((path, content))
            raise obstore.exceptions.GenericError("no answer")
        return plain(store, path, content, **more)

    with monkeypatch.context() as patched:
        patched.setattr(obstore, "put", put)
        with pytest.raises(IndexStoreError, match="may or may not exist"):
            index.update(frame([20]), batch="once")
    assert index.version == 1
    path, content = broken[0]
    plain(index.path.client, path, content, mode="create")  # the store did it after all
    assert index.version == 2 and index.check().damaged == 0
    assert index.update(frame([20]), batch="once").report.known


def test_failures_of_the_store_are_no_damage(how, monkeypatch):
    """A manifest that cannot be read now is not passed over."""
    index, plain = made(how), obstore.get
    index.update(frame([20]))
    root = index.path

    def get(store, path, **more):
        if path.endswith("2.json"):
            raise obstore.exceptions.GenericError(
                "no answer at http://host/2.json?sig=secret"
            )
        return plain(store, path, **more)

    monkeypatch.setattr(obstore, "get", get)
    for call in (
        lambda: index.version,
        index.check,
        lambda: index.update(frame([30])),
        index.vacuum,
    ):
        with pytest.raises(
            IndexStoreError, match=r"no answer at http://host/2\.json\. Check"
        ) as caught:
            call()
        assert "secret" not in str(caught.value)
    monkeypatch.undo()
    assert versions(root) == [1, 2]


def test_damage_is_found(how):
    index = made(how)
    index.update(frame([20]))
    large = index.path / "rows" / read_manifest(index.path, 2).files[0].name
    content = large.read_bytes()
    for broken in (content[:-9], content[:40] + b"?" + content[41:], b""):
        large.put(broken)
        if len(broken) < len(content):  # else the byte is of a column that is not read
            with pytest.raises(IndexFormatError, match=large.name):
                index.rows().compute()
        assert index.check().damaged == 1
    large.unlink()
    with pytest.raises(
        IndexFormatError, match=f"{large.name}. is missing, and version"
    ):
        index.rows().compute()
    large.put(content)
    assert index.check().damaged == 0
    last = manifest_path(index.path, 2)
    last.put(last.read_bytes()[:-30])
    with pytest.raises(IndexFormatError, match="damaged"):
        dask_simjoin.open_index(**how)
    assert dask_simjoin.open_index(version=1, **how).restore(1).version == 3


def test_folders_that_are_refused(how):
    options = how["storage_options"]
    with pytest.raises(IndexFormatError, match="holds no index"):
        dask_simjoin.open_index(**how)
    index = made(how)
    with pytest.raises(OptionError, match="holds an index already"):
        made(how)
    with pytest.raises(OptionError, match="has other files in it"):
        made({"path": str(index.path.parent), "storage_options": options})
    with pytest.raises(IndexStoreError, match="404"):
        made({"path": "s3://other-bucket/index", "storage_options": options})
    with pytest.raises(
        OptionError, match=r"'nonsense' is not valid.*Use the names of obstore"
    ):
        dask_simjoin.open_index(how["path"], storage_options={"nonsense": "1"})
    with pytest.raises(OptionTypeError, match="'key' of type object"):
        dask_simjoin.open_index(how["path"], storage_options={"key": object()})
    with pytest.raises(OptionTypeError, match="is not a dict"):
        dask_simjoin.open_index(how["path"], storage_options="x")
    with pytest.raises(OptionError, match="storage_options are for object stores"):
        dask_simjoin.open_index("folder", storage_options=options)
    for url in ("s3://", "s3:///name", "s3://bucket//name", "s3://bucket/a/../b"):
        with pytest.raises(OptionError, match="without empty parts"):
            dask_simjoin.open_index(url)


def test_a_store_without_conditional_puts_is_refused(how, monkeypatch):
    plain = obstore.put
    monkeypatch.setattr(
        obstore, "put", lambda *args, mode=None, **more: plain(*args, **more)
    )
    with pytest.raises(
        OptionError, match="replaces objects in spite of 'If-None-Match"
    ):
        made(how)
    monkeypatch.undo()
    assert made(how).version == 1


def test_paths_hide_their_options(how):
    path = object_path(how["path"], how["storage_options"])
    assert "secret" not in repr(path) + str(path) + repr(path / "rows")
    assert pickle.loads(pickle.dumps(path)) == path
    assert (path / "a" / "b.parquet").stem == "b"
    assert str(path.joinpath("a", "b").parent) == f"{how['path']}/a"
    assert hash(path) == hash(object_path(how["path"] + "/", how["storage_options"]))


def test_a_fork_of_a_process_with_a_client_is_refused(how, monkeypatch):
    """Its requests would hang."""
    path = object_path(how["path"], how["storage_options"])
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with pytest.raises(IndexStoreError, match="forked from one that had used"):
        path.exists()


def test_the_program_reads_the_environment(how, tmp_path, monkeypatch):
    """Options could be seen by others in a list of processes, so there is no option for
    them.
    """
    from click.testing import CliRunner

    from dask_simjoin.cli.main import cli

    options = how["storage_options"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret"])
    monkeypatch.setenv("AWS_REGION", options["region"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", options["endpoint_url"])
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.chdir(tmp_path)
    url = how["path"]

    def run(*words):
        ran = CliRunner().invoke(cli, ["index", *words])
        assert ran.exit_code == 0 and "Traceback" not in ran.output, ran.output
        return ran.stdout

    quiet = "--scheduler", "synchronous", "-q"
    frame(range(6)).to_csv("first.csv", index=False)
    frame([20, 21]).to_csv("second.csv", index=False)
    run(
        "make",
        "first.csv",
        "--eps",
        "1",
        "--on",
        "x",
        "--id",
        "key",
        "--path",
        url,
        *quiet,
    )
    run("update", url, "second.csv", "--batch", "one", "-o", "changes.csv", *quiet)
    run("pairs", url, "-o", "pairs.csv", *quiet)
    found = pd.read_csv("pairs.csv").itertuples(index=False, name=None)
    assert set(found) == Model(1.0, {k: (k / 2,) for k in (*range(6), 20, 21)}).pairs()
    assert '"version":2' in run("history", url, "--json")
    assert '"damaged": 0' in run("check", url, "--json")
    assert dask_simjoin.open_index(**how).version == 2


def test_a_missing_library_is_named(monkeypatch):
    for name in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ModuleNotFoundError,
        match="stores need obstore, which is not installed: pip install",
    ):
        dask_simjoin.open_index("s3://a-bucket-of-its-own/index")


@pytest.fixture
def failing(monkeypatch):
    """Let requests of a kind fail for some names, a number of times."""
    monkeypatch.setattr(stores, "WAITS", (0.0, 0.0, 0.0))

    def fail(request, error, part, times):
        plain, left = getattr(obstore, request), [times]

        def called(store, path, *args, **more):
            if part in path and left[0]:
                left[0] -= 1
                for content in args:
                    if hasattr(content, "read"):
                        content.read()
                raise error
            return plain(store, path, *args, **more)

        monkeypatch.setattr(obstore, request, called)
        return left

    return fail


CONFLICT = obstore.exceptions.AlreadyExistsError("409 Conflict")


@pytest.mark.parametrize("part", ["/rows/", "/keys/", ".lease", ".json"])
def test_a_conflict_of_requests_is_tried_again(part, how, failing):
    """A store may answer 409 to a put although the name is free."""
    index = made(how)
    left = failing("put", CONFLICT, part, 2)
    changes = index.update(frame([20]), delete=[0])
    assert left == [0] and changes.version == 2 and index.check().damaged == 0
    assert sorted(index.rows().compute()["key"]) == [1, 2, 3, 4, 5, 20]


def test_conflicts_that_do_not_end(how, failing):
    index = made(how)
    failing("put", CONFLICT, "/rows/", -1)
    with pytest.raises(
        IndexStoreError,
        match=r"each of 4 requests for '.*rows/.*' with a conflict \(HTTP status 409\)",
    ):
        index.update(frame([20]))
    assert index.version == 1


def test_a_conflict_of_removals_is_tried_again(how, failing):
    index = made(how)
    index.optimize("all")
    left = failing("delete", CONFLICT, "/rows/", 1)
    assert index.vacuum(1) and left == [0]


def test_a_conflict_while_an_index_is_made(how, failing):
    left = failing("put", CONFLICT, "/_versions/", 1)
    assert made(how).version == 1 and left == [0]


FORBIDDEN = obstore.exceptions.PermissionDeniedError("status 403 Forbidden")


def test_a_reader_without_the_right_to_put_gets_components(how, failing):
    index = made(how)
    expected = sorted_rows(index.components())
    for path in (index.path / "components").iterdir():
        path.unlink()
    failing("put", FORBIDDEN, "", -1)
    index = dask_simjoin.open_index(**how)
    pd.testing.assert_frame_equal(sorted_rows(index.components()), expected)
    with pytest.raises(IndexStoreError, match=r"refuses .*: status 403 .*put and del"):
        index.update(frame([20]))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (obstore.exceptions.GenericError("status 503 Slow Down"), "too many requests"),
        (obstore.exceptions.GenericError("status 429"), "too many requests"),
        (obstore.exceptions.GenericError("status 500"), "Check the network"),
        (obstore.exceptions.UnauthenticatedError("status 401"), "credentials in"),
        (FORBIDDEN, "list and get objects"),
    ],
)
def test_a_status_has_its_own_remedy(error, text, how, failing):
    index = made(how)
    failing("get", error, ".json", -1)
    with pytest.raises(IndexStoreError, match=text):
        index.pairs()


def test_components_need_a_store_that_answers(how, failing):
    index = made(how)
    failing("put", obstore.exceptions.GenericError("status 500"), "/components/", -1)
    with pytest.raises(IndexStoreError, match="status 500"):
        index.components()
