"""Resources of this process: threads, locks, the garbage collector, and files that no
other user can write.

Files with compiled code are loaded only if no other user could have written them. So we
check the open file, its folder and the folder above. This package makes both folders.
Folders further up are not checked, because everybody may write to some of them, such as
/tmp. If another user makes our folder there first, it belongs to that user, so the
check refuses it. ``__pycache__`` is not checked: whoever can write there can change the
package itself.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import itertools
import math
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dask_simjoin.sizes import BATCH, MIN_PART, MOMENT

Made = TypeVar("Made")
Lock = TypeVar("Lock")

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def forkable(lock: Lock) -> Lock:
    """Return a lock, and release it in all processes that are forked from this one.

    Another thread may hold the lock during a fork. The new process has no such thread,
    so nothing would ever release it there.
    """
    _locks.add(lock)
    return lock


def _release_locks() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_release_locks)


def threads_for(n: int, threads: int, min_items: int) -> int:
    """Return how many of the threads make work on n items shortest.

    `min_items`: items that a thread handles while another is woken; 0: every item takes
    longer. Threads are woken one after the other, so k threads take as long as one
    takes for n / k + (k - 1) * `min_items` items. The k-th thread pays if k * (k - 1)
    is at most n / `min_items`.
    """
    paying = int(0.5 + math.sqrt(0.25 + n / min_items)) if min_items else n
    return max(1, min(threads, paying))


def numbers_apart(dims: int) -> int:
    """Return the number of points in `dims` dimensions that a thread handles while
    another is woken.
    """
    return max(1, min(MIN_PART, BATCH // max(1, dims)))


def together(
    calls: Sequence[Callable[[], Made]],
    threads: int | None = None,
    stop: Callable[[], object] = lambda: None,
) -> list[Made]:
    """Run calls at the same time, and return their results in the order of the calls.

    `threads`: number of threads, this one included; None: one for each call. Threads
    take the calls in turn. If a call raises an error, the other threads end after their
    current calls, and the error is raised. The same holds for Ctrl-C. `stop`: is called
    then, and may make the current calls return early.
    """
    number = min(len(calls), threads or len(calls))
    if number <= 1:
        return [call() for call in calls]
    results: list[Any] = [None] * len(calls)
    waiting = collections.deque(range(len(calls)))  # whose methods are thread-safe

    def give_up() -> None:
        waiting.clear()
        stop()

    def take() -> None:
        try:
            while waiting:
                try:
                    at = waiting.popleft()
                except IndexError:  # another thread took the last call
                    return
                results[at] = calls[at]()
        except BaseException:
            give_up()
            raise

    _with_helpers(take, number, give_up)
    return results


def _with_helpers(
    take: Callable[[], None], number: int, stop: Callable[[], object]
) -> None:
    """Call `take` in `number` threads, this one included. After an error call `stop`,
    which makes `take` return soon.

    `take` returns when no work is left. So helpers that have not started by then are
    not needed, and this thread never waits for a free thread.
    """
    team = Team(take, number - 1)
    try:
        HELPERS.call(team)
        take()
        HELPERS.dismiss(team)
    except BaseException:  # such as Ctrl-C while this thread waits for the others
        stop()
        HELPERS.dismiss(team)
        raise
    if team.error is not None:
        try:
            raise team.error
        finally:  # the error keeps this frame, and with it all results
            del team


@dataclass(eq=False)
class Team:
    """Work that a thread and its helpers do.

    `wanted`: number of helpers that may still begin; `working`: of those that have
    begun and not ended. `ended` is set when none works any more.
    """

    work: Callable[[], None]
    wanted: int
    working: int = 0
    error: BaseException | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class Helpers:
    """Threads of this process that stay until it ends, because starting 31 threads
    takes as long as a short piece of work.

    A helper works for a team, looks for a team, or sleeps. All of this changes under
    one lock. A helper that looks for a team joins the first that wants helpers, and
    sleeps if none does. A thread that calls or joins a team wakes at most `WOKEN`
    helpers, and none if as many helpers look as teams want. Woken helpers wake others,
    so the first thread soon begins its own work. Helpers that come too late for short
    work look for the next team. So there are never more helpers than teams want at the
    same time. A team that is dismissed gets no more helpers, and waits for those that
    have begun.

    If Ctrl-C comes while the main thread wakes a helper, this helper may sleep until
    the process ends.

    A forked process has none of the threads of its parent, so it starts new ones.
    """

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._teams: list[Team] = []  # those that want helpers
        self._sleeping: list[Any] = []  # a lock for each, which wakes it when released
        self._number = self._working = 0

    def call(self, team: Team) -> None:
        """Let helpers join a team."""
        with self._lock:
            self._teams.append(team)
            self._wake()

    def dismiss(self, team: Team) -> None:
        """Let no more helpers join a team, and wait until those that did have ended."""
        with self._lock:
            if team in self._teams:
                self._teams.remove(team)
            if not team.working:
                return
            team.ended.clear()
        team.ended.wait()

    def _wake(self) -> None:
        wanted = sum(team.wanted for team in self._teams)
        for _ in range(WOKEN):
            if self._number - self._working - len(self._sleeping) >= wanted:
                return
            if self._sleeping:
                self._sleeping.pop().release()
            elif self._number < MAX_HELPERS:
                threading.Thread(target=self._help, name="simjoin", daemon=True).start()
                self._number += 1

    def _join(self) -> Team | None:
        if not self._teams:
            return None
        team = self._teams[0]
        team.wanted -= 1
        team.working += 1
        self._working += 1
        if not team.wanted:
            self._teams.remove(team)
        self._wake()
        return team

    def _leave(self, team: Team) -> None:
        team.working -= 1
        self._working -= 1
        if not team.working:
            team.ended.set()

    def _help(self) -> None:
        bell = threading.Lock()
        bell.acquire()
        while True:
            with self._lock:
                team = self._join()
                if team is None:
                    self._sleeping.append(bell)
            if team is None:
                bell.acquire()
                continue
            try:
                team.work()
            except BaseException as error:
                team.error = error
            with self._lock:
                self._leave(team)
            del team  # and what its work refers to


MAX_HELPERS = 512
"""Maximum number of threads that help others in this process."""

WOKEN = 2
"""Helpers that a thread wakes, because each takes it some time."""

HELPERS = Helpers()


def interruptible(work: Callable[[], object], stop: Callable[[], object]) -> None:
    """Run a long kernel so that Ctrl-C ends it. `stop`: makes `work` return early.

    Python raises `KeyboardInterrupt` only between two steps of the main thread. So this
    thread waits, and another one runs the kernel.
    """
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, name="simjoin-kernel", daemon=True)
    try:
        thread.start()
        done.wait()
    except BaseException:
        stop()
        # Ctrl-C may have come before the thread started
        while thread.is_alive() and not done.wait(0.1):
            pass
        raise
    if errors:
        raise errors[0]


def shared_out(
    work: Callable[[int, int], Made],
    n: int,
    threads: int,
    grain: int = 1,
    min_items: int | None = None,
    turns: int = 1,
) -> list[Made]:
    """Split n items between threads, run `work(start, stop)` for each part, and return
    the results.

    Parts begin at multiples of `grain`. `min_items`: see `threads_for`; None:
    `MIN_PART`. `turns`: number of parts per thread; several balance parts of unequal
    work.
    """
    number = threads_for(n, threads, MIN_PART if min_items is None else min_items)
    if number == 1:
        return [work(0, n)]
    parts = number * turns
    cuts = [min(round(n * k / parts / grain) * grain, n) for k in range(parts)]
    ranges = [(a, b) for a, b in itertools.pairwise([*cuts, n]) if b > a] or [(0, n)]
    return together([functools.partial(work, *part) for part in ranges], number)


FIRST_WORK = 1 << 35
"""The first part of long work compares at most this many coordinates, in about a second
or less.
"""

GROWTH = 64
"""A part has at most this many times the items of an earlier part."""


def in_turns(
    work: Callable[[int, int], Made],
    n: int,
    threads: int,
    cost: float,
    grain: int = 1,
    turns: int = 1,
    seconds: float = MOMENT,
) -> list[Made]:
    """Split n items between threads, run `work(start, stop)` for each part, and return
    the results in order. Parts are short, so that Ctrl-C ends the work after one.

    `cost`: with how many coordinates an item may be compared. The first part has few
    such comparisons. Each other one has as many items as take this many `seconds` at
    the speed of an earlier part. `grain`, `turns`: as in `shared_out`.
    """
    most = n if threads == 1 else -(-n // (threads * turns))
    lock, found = threading.Lock(), dict[int, Made]()
    begin, size = 0, min(most, max(1, int(FIRST_WORK / max(1.0, cost))))

    def stop_all() -> None:
        nonlocal begin
        begin = n

    def take() -> None:
        nonlocal begin, size
        try:
            while True:
                with lock:
                    start = begin
                    begin = stop = min(n, -(-(start + size) // grain) * grain)
                if start >= n:
                    return
                clock = time.perf_counter()
                found[start] = work(start, stop)
                spent = time.perf_counter() - clock
                part = min(seconds / max(spent, 1e-9), GROWTH) * (stop - start)
                size = max(1, min(most, int(part)))
        except BaseException:
            stop_all()
            raise

    if threads > 1:
        _with_helpers(take, threads, stop_all)
    else:
        take()
    return [found[start] for start in sorted(found)] or [work(0, 0)]


@contextlib.contextmanager
def not_collecting() -> Iterator[None]:
    """Disable Python's garbage collector inside the `with` block.

    While Numba is imported and compiles, the collector scans all objects again and
    again, and frees little. Its scans take half of the time of the import, and a
    seventh of the time to compile.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


FOLDER, FILE = 0o755, 0o644
"""Modes of new folders and files, before the umask.

All users can read them: files in a container image may belong to root, but are read by
another user.
"""


def check_private(found: os.stat_result, path: Path) -> None:
    """Refuse a file or folder if another user than this one or root can write to it.

    Raises
    ------
    PermissionError
    """
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(
            f"{path} belongs to another user (uid {found.st_uid}), so nothing is "
            "loaded from it"
        )
    if found.st_mode & 0o022:
        raise PermissionError(f"other users can write to {path}; run chmod go-w on it")


def read_private(path: Path) -> bytes:
    """Return the content of a file, after checking that only this user or root can have
    written it.

    Raises
    ------
    OSError
        PermissionError if another user can write to the file, its folder or the folder
        above; other errors if the file cannot be read.
    """
    _check_folders(path.parent)
    with open(path, "rb") as file:
        check_private(os.fstat(file.fileno()), path)
        return file.read()


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically; refuse folders that `read_private` would refuse."""
    _check_folders(path.parent)
    part = path.with_name(f"{uuid.uuid4().hex}.part")
    try:
        with open(part, "xb", opener=functools.partial(os.open, mode=FILE)) as file:
            file.write(content)
        part.replace(path)
    finally:  # remove the partial file after an error, because on a full disk it would stay and keep it full
        part.unlink(missing_ok=True)


def make_folder(folder: Path, mode: int = FOLDER) -> None:
    """Make a folder and all missing parents, each with this mode: only this user may
    write.

    `os.makedirs` would apply the mode to the last folder only.
    """
    if not folder.exists():
        make_folder(folder.parent, mode)
        folder.mkdir(mode, exist_ok=True)


def _check_folders(folder: Path) -> None:
    for one in (folder, folder.parent):
        if one.name != "__pycache__":
            check_private(one.stat(), one)
