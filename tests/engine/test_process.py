"""Threads share work without loss or repetition, and code is loaded only from files of
this user or root.
"""

import functools
import os
import random
import threading
import time
import weakref

import numpy as np
import pytest

from dask_simjoin.engine import process
from dask_simjoin.engine.cpu import nearest
from dask_simjoin.engine.index.cpu_tiles import make_nearest_layout
from dask_simjoin.engine.process import make_folder, read_private, write_private
from tests.support.gates import PATIENCE


@pytest.fixture(autouse=True)
def little(monkeypatch):
    """Give threads so little work that small indexes are made by several."""
    monkeypatch.setattr(process, "MIN_PART", 100)


@pytest.mark.parametrize("number", [1, 2, 3, 8])
@pytest.mark.parametrize("grain", [1, 64, 4096])
@pytest.mark.parametrize("n", [0, 1, 99, 500, 1000, 5000])
def test_parts_are_all_there_is(n, number, grain):
    parts = process.shared_out(lambda a, b: (a, b), n, number, grain)
    assert [b for _, b in parts[:-1]] == [a for a, _ in parts[1:]]
    assert (parts[0][0], parts[-1][1]) == (0, n)
    assert all(a % grain == 0 for a, _ in parts)
    assert 1 <= len(parts) <= number


@pytest.mark.parametrize("threads", [1, 3, 100])
@pytest.mark.parametrize("n", [0, 1, 99, 200, 601, 5000, 1_000_000])
def test_as_many_threads_as_make_work_short(n, threads):
    found = process.threads_for(n, threads, 100)
    took = {k: n / k + (k - 1) * 100 for k in range(1, threads + 1)}
    assert took[found] == pytest.approx(min(took.values()))
    assert process.threads_for(n, threads, 0) == max(1, min(n, threads))


def test_calls_are_made_at_a_time():
    meet = threading.Barrier(3, timeout=PATIENCE)
    assert sorted(process.together([meet.wait] * 3)) == [0, 1, 2]


def test_helpers_stay():
    """Later calls use the threads of earlier ones."""
    meet = threading.Barrier(3, timeout=PATIENCE)

    def who():
        meet.wait()
        return threading.get_ident()

    first, second = (set(process.together([who] * 3)) for _ in range(2))
    known = {thread.ident for thread in threading.enumerate()}
    assert len(first) == len(second) == 3
    assert first | second <= known


def test_calls_within_calls_need_no_free_thread(monkeypatch):
    """All helpers wait for calls of their own, which they make themselves."""
    monkeypatch.setattr(process, "MAX_HELPERS", 2)
    monkeypatch.setattr(process, "HELPERS", process.Helpers())

    def deep(level):
        if not level:
            return 1
        return sum(process.together([functools.partial(deep, level - 1)] * 4, 4))

    assert deep(4) == 4**4


@pytest.fixture
def helpers(monkeypatch):
    """Helpers that no other test has used."""
    monkeypatch.setattr(process, "HELPERS", process.Helpers())
    return process.HELPERS


def asleep(helpers):
    """Wait until all helpers sleep, and return their number."""
    end = time.monotonic() + PATIENCE
    while len(helpers._sleeping) < helpers._number:
        assert time.monotonic() < end
        time.sleep(0.001)
    assert not helpers._teams and not helpers._working
    return helpers._number


@pytest.mark.parametrize("work", [int, functools.partial(time.sleep, 1e-4)])
def test_there_are_no_more_helpers_than_threads_want(helpers, work):
    """Also if calls end before helpers come."""
    for _ in range(200):
        process.together([work] * 8)
    assert asleep(helpers) <= 7


def test_helpers_keep_nothing_of_what_they_did(helpers):
    meet = threading.Barrier(3, timeout=PATIENCE)

    class Work:
        def __call__(self):
            meet.wait()

    work = Work()
    known = weakref.ref(work)
    process.together([work] * 3)
    del work
    asleep(helpers)
    assert known() is None


@pytest.mark.parametrize("at_most", [1, 3, 512])
def test_threads_that_call_helpers_at_the_same_time(helpers, monkeypatch, at_most):
    """Each call is made once, whichever threads are late, fail, or call others."""
    monkeypatch.setattr(process, "MAX_HELPERS", at_most)
    failed = []

    def run(seed):
        rng = random.Random(seed)
        for _ in range(60):
            pauses = [rng.choice((0, 0, 1e-5, 3e-4)) for _ in range(rng.randint(2, 9))]
            wrong = rng.randrange(200)  # the call that fails, if there are as many
            made = []

            def call(k, pauses=pauses, wrong=wrong, made=made):
                made.append(k)
                time.sleep(pauses[k])
                if k == wrong:
                    raise ZeroDivisionError
                return process.together([int] * 3) and k

            calls = [functools.partial(call, k) for k in range(len(pauses))]
            try:
                found = process.together(calls, rng.randint(2, 9))
            except ZeroDivisionError:
                right = wrong in made and len(set(made)) == len(made)
            else:
                right = found == sorted(made) == list(range(len(calls)))
            if not right:
                failed.append((seed, wrong, made))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert not failed
    assert asleep(helpers) <= at_most


def test_a_forked_process_has_helpers_of_its_own():
    assert process.together([os.getpid] * 4) == [os.getpid()] * 4
    child = os.fork()
    if not child:  # a failing assertion must not go on as a second test run
        found = process.together([os.getpid] * 4)
        os._exit(0 if found == [os.getpid()] * 4 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("threads", [1, 2, 7, 100])
def test_threads_take_calls_in_turn(threads):
    """Results have the order of the calls, whichever thread makes them."""
    calls = [functools.partial(lambda k: k * k, k) for k in range(50)]
    assert process.together(calls, threads) == [k * k for k in range(50)]


@pytest.mark.parametrize("error", [IndexError, KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("own", [True, False], ids=["this thread", "another thread"])
def test_after_an_error_no_more_calls_are_made(error, own):
    main, made = threading.current_thread(), []
    failed = threading.Event()

    def call():
        if failed.is_set() or (threading.current_thread() is main) != own:
            made.append(failed.wait(PATIENCE))  # until the other thread has failed
            return
        failed.set()
        raise error("here")

    with pytest.raises(error, match="here"):
        process.together([call] * 100, 2)
    assert len(made) < 90


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("grain", [1, 64])
@pytest.mark.parametrize("n", [0, 1, 99, 5000])
@pytest.mark.parametrize("cost", [1.0, 1e9, 1e20])
def test_short_parts_are_all_there_is(n, grain, threads, cost):
    parts = process.in_turns(lambda a, b: (a, b), n, threads, cost, grain, 2)
    assert [b for _, b in parts[:-1]] == [a for a, _ in parts[1:]]
    assert (parts[0][0], parts[-1][1]) == (0, n)
    assert all(a % grain == 0 for a, _ in parts)
    if cost == 1e20 and n:
        assert parts[0][1] == min(grain, n)
    if cost == 1.0 and threads == 1:
        assert len(parts) == 1


def test_parts_take_about_as_long_as_they_may(monkeypatch):
    """Where some items take ten times as long as others."""
    now = [0.0]
    monkeypatch.setattr(process.time, "perf_counter", lambda: now[0])

    def work(start, stop):
        own = sum(0.01 if k < 300 else 0.1 for k in range(start, stop))
        now[0] += own
        return own

    spent = process.in_turns(work, 600, 1, process.FIRST_WORK, seconds=0.5)
    assert spent[0] == 0.01 and len(spent) > 30
    assert max(spent) < 5.1  # at the change
    assert sorted(spent)[-2] < 0.51


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("threads", [1, 3])
def test_after_an_error_no_more_parts_are_made(error, threads, monkeypatch):
    monkeypatch.setattr(process, "GROWTH", 1)
    made = []

    def work(start, stop):
        made.append(start)
        if len(made) == 5:
            raise error("here")

    with pytest.raises(error, match="here"):
        process.in_turns(work, 1000, threads, 1e20)
    assert len(made) <= 5 + threads


@pytest.mark.parametrize("own", [True, False], ids=["this thread", "another thread"])
def test_an_error_stops_the_current_calls(own):
    main, stopped = threading.current_thread(), threading.Event()
    begun, ended = threading.Event(), []

    def call():
        if (threading.current_thread() is main) == own:
            assert begun.wait(20)
            raise MemoryError("here")
        begun.set()
        ended.append(stopped.wait(20))

    with pytest.raises(MemoryError, match="here"):
        process.together([call] * 9, 2, stopped.set)
    assert ended == [True]


def test_what_a_thread_raises_is_raised():
    def fail(start, stop):
        raise ValueError(f"from {start}")

    with pytest.raises(ValueError, match="from"):
        process.shared_out(fail, 1000, 3)


def some_points(kind, n, dims):
    rng = np.random.default_rng(dims)
    if kind == "alike":
        return np.full((n, dims), 7.5)
    if kind == "few values":
        return rng.integers(0, 3, (n, dims)).astype(float)
    if kind == "far":
        return rng.normal(size=(n, dims)) + 1e9
    return rng.normal(size=(n, dims))


@pytest.mark.parametrize("dims", [1, 2, 20])
@pytest.mark.parametrize("kind", ["normal", "few values", "alike", "far"])
def test_nearest_neighbours_by_several_threads(kind, dims):
    n, k = 700, 4
    x = np.asfortranarray(some_points(kind, n, dims))
    layout = make_nearest_layout(
        x.min(axis=0), x.max(axis=0), x.mean(axis=0), x.var(axis=0), x[:100]
    )
    states = []
    for number in (1, 3):
        index = nearest.build(x, np.arange(n), layout, number)
        state = nearest.fresh(n, k)
        nearest.nearest(index, index, layout, *state, is_self_join=True)
        back = np.argsort(index["order"])
        states.append([part[back] for part in state])
    assert all(np.array_equal(one, other) for one, other in zip(*states, strict=True))


OTHER = 65534
"""A user who is neither root nor the one that runs the tests."""

ROOT = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give files to another user"
)


@pytest.fixture
def kept(tmp_path):
    """A file of this user, in a folder of this user."""
    path = tmp_path / "cache" / "kernels" / "a"
    make_folder(path.parent)
    write_private(path, b"one")
    return path


def test_own_files_are_read(kept):
    assert read_private(kept) == b"one"
    with pytest.raises(FileNotFoundError):
        read_private(kept.with_name("b"))


@pytest.mark.parametrize("up", [0, 1, 2])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_can_write_is_not_read(kept, up, mode):
    loose = [kept, *kept.parents][up]
    loose.chmod(loose.stat().st_mode | mode)
    with pytest.raises(PermissionError, match=r"other users can write to .*chmod go-w"):
        read_private(kept)
    loose.chmod(loose.stat().st_mode & ~mode)
    assert read_private(kept) == b"one"


@ROOT
@pytest.mark.parametrize("up", [0, 1, 2])
def test_what_another_user_owns_is_not_read(kept, up):
    os.chown([kept, *kept.parents][up], OTHER, OTHER)
    with pytest.raises(PermissionError, match="belongs to another user"):
        read_private(kept)


@ROOT
def test_what_root_wrote_is_read_by_others(kept, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    assert read_private(kept) == b"one"


def test_a_link_leads_to_what_is_checked(kept, tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"two")
    outside.chmod(0o666)
    kept.unlink()
    kept.symlink_to(outside)
    with pytest.raises(PermissionError):
        read_private(kept)


def test_python_keeps_its_own_code_in_a_folder_that_a_group_may_write(tmp_path):
    """Who can write there can change the package itself."""
    path = tmp_path / "__pycache__" / "kernels" / "a"
    make_folder(path.parent)
    path.parent.parent.chmod(0o775)
    write_private(path, b"one")
    assert read_private(path) == b"one"


@pytest.mark.parametrize(
    ("umask", "modes"), [(0, (0o755, 0o644)), (0o077, (0o700, 0o600))]
)
def test_modes_are_never_looser_than_these(tmp_path, umask, modes):
    before = os.umask(umask)
    try:
        path = tmp_path / "cache" / "kernels" / "a"
        make_folder(path.parent)
        write_private(path, b"one")
    finally:
        os.umask(before)
    found = [
        one.stat().st_mode & 0o777 for one in (path.parent.parent, path.parent, path)
    ]
    assert found == [modes[0], *modes]


def test_nothing_is_written_where_others_can_write(kept):
    kept.parent.chmod(0o777)
    with pytest.raises(PermissionError):
        write_private(kept.with_name("b"), b"two")
    assert [path.name for path in kept.parent.iterdir()] == ["a"]
