"""Signals stop the program: unfinished files go, older ones stay, and the exit code
names the signal.
"""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time

import dask
import pandas as pd
import pytest
from click.testing import CliRunner
from distributed.utils import sync

import _dask_simjoin_cli
from dask_simjoin import __main__
from dask_simjoin.cli import running
from dask_simjoin.cli.main import CODES, cli, main
from dask_simjoin.cli.tables import OutputWriter
from tests.support.paths import ROOT
from tests.support.profiles import every_nth

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def called(tmp_path, monkeypatch):
    """Run the program as a shell does, on a table of two rows."""
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"x": [0.0, 1.0]}).to_csv("t.csv", index=False)
    (tmp_path / "out.csv").write_text("mine")

    def call(*words):
        given = [
            "dask-simjoin",
            "self-join",
            "t.csv",
            "--eps",
            "1",
            "-o",
            "out.csv",
            "--overwrite",
            "-q",
            *words,
        ]
        monkeypatch.setattr(sys, "argv", given)
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code

    yield call
    assert not list(tmp_path.glob(".*"))


@pytest.fixture(autouse=True)
def as_before():
    """What signals do is as it was after each test."""
    own = signal.getsignal(signal.SIGHUP)
    if own == signal.SIG_IGN:  # the tests run under nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    after = [signal.getsignal(number) for number in SIGNALS]
    signal.signal(signal.SIGHUP, own)
    assert after == before


def signalled(number, step, monkeypatch):
    """Let a step of writing be interrupted by a signal after it is done."""
    does = getattr(OutputWriter, step)

    def stopped(self, *args):
        does(self, *args)
        os.kill(os.getpid(), number)
        time.sleep(0.01)  # handlers run between instructions

    monkeypatch.setattr(OutputWriter, step, stopped)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_leaves_what_was_there(called, number, monkeypatch, capsys, tmp_path):
    signalled(number, "write", monkeypatch)
    assert called() == 128 + number and 128 + number in CODES
    assert (tmp_path / "out.csv").read_text() == "mine"
    assert "Stopped; the output is unchanged." in capsys.readouterr().err


def test_a_signal_that_a_library_suppresses_leaves_what_was_there(
    called, monkeypatch, tmp_path
):
    does = OutputWriter.write

    def stopped(self, *args):
        does(self, *args)
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)  # handlers run between instructions

    monkeypatch.setattr(OutputWriter, "write", stopped)
    assert called() == 130
    assert (tmp_path / "out.csv").read_text() == "mine"


def test_a_first_signal_waits_for_workers_to_start():
    stop, done = running.Stop(), []

    def start(step):
        with stop.held():
            stop(signal.SIGINT, None)
            done.append(step)

    for step in ("the first one waits", "a second one does not"):
        with pytest.raises(KeyboardInterrupt):
            start(step)
    assert done == ["the first one waits"]


def test_workers_do_not_see_ctrl_c():
    """Their processes inherit the mask of the thread that starts them."""

    async def blocked():
        return signal.pthread_sigmask(signal.SIG_BLOCK, [])

    with running._loop_without_interrupts() as loop:
        assert signal.SIGINT in sync(loop, blocked)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_what_is_complete_stays(called, monkeypatch, tmp_path):
    """The old output is away before the new one has its name: nothing stops between the
    two.
    """
    renamed = os.rename

    def rename(*names):
        os.kill(os.getpid(), signal.SIGTERM)
        renamed(*names)
        os.kill(os.getpid(), signal.SIGHUP)

    monkeypatch.setattr(os, "rename", rename)
    assert called() == 0
    assert (tmp_path / "out.csv").read_text() == "left,right\n0,1\n"


def test_a_second_signal_does_not_leave_files(called, monkeypatch, tmp_path):
    """A terminal that is closed sends several."""
    signalled(signal.SIGHUP, "write", monkeypatch)
    removed = running.Stop.finish

    def twice(self):
        removed(self)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

    monkeypatch.setattr(running.Stop, "finish", twice)
    assert called() == 129


def test_signals_that_were_ignored_are(called, monkeypatch, tmp_path):
    """So of nohup, which is to outlive its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signalled(signal.SIGHUP, "write", monkeypatch)
        assert called() == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (tmp_path / "out.csv").read_text() != "mine"


WHILE_IMPORTED = """
import os, signal, sys, _dask_simjoin_cli
class Interrupt:
    def find_spec(self, name, *_):
        if name == "dask_simjoin.cli.commands":
            os.kill(os.getpid(), int(sys.argv[1]))
sys.meta_path.insert(0, Interrupt())
_dask_simjoin_cli.main()
"""


def test_version_and_help_do_not_import_the_package(monkeypatch, capsys):
    """So they take less than half a second."""
    monkeypatch.setitem(sys.modules, "dask_simjoin.cli.main", None)
    for argument in ("--version", "--help", "-h"):
        monkeypatch.setattr(sys, "argv", ["dask-simjoin", argument])
        _dask_simjoin_cli.main()
        at_once = capsys.readouterr().out
        ran = CliRunner().invoke(cli, [argument], prog_name="dask-simjoin")
        assert at_once == ran.output


def test_the_module_is_the_program():
    """So its seconds, too, count from the start."""
    assert __main__.main is _dask_simjoin_cli.main


def test_objects_of_the_import_are_left_out_of_garbage_collections():
    try:
        assert _dask_simjoin_cli._program() is main
        assert gc.isenabled() and gc.get_freeze_count() > 100_000
    finally:
        gc.unfreeze()


@pytest.mark.processes
@pytest.mark.parametrize("number", every_nth(4, [signal.SIGINT, signal.SIGHUP]))
def test_a_signal_while_modules_are_imported(number):
    ran = subprocess.run(
        [sys.executable, "-c", WHILE_IMPORTED, str(int(number))],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (128 + number, "")


def test_lines_of_progress_end_without_a_rest_of_time(monkeypatch, capsys):
    monkeypatch.setattr(running, "LINE_SECONDS", 0.0)
    lines = running.Lines("planning", lambda: None)
    for done in range(3):
        lines.show(done, 2)
    first, second, last = capsys.readouterr().err.splitlines()
    assert first.endswith("about unknown left")
    assert "1 of 2 tasks" in second
    assert second.endswith(" left")
    assert last.startswith("planning: 2 of 2 tasks, ")
    assert last.endswith(" elapsed")
    lines.close()


def test_lines_of_progress_appear_while_no_task_finishes(monkeypatch, capsys):
    monkeypatch.setattr(running, "LINE_SECONDS", 0.1)
    with running.stage("planning", None, False):
        for _ in range(100):
            time.sleep(0.1)
            if found := capsys.readouterr().err:
                break
    assert found.startswith("planning: preparing, ")
    assert found.splitlines()[0].endswith(" elapsed")


@pytest.mark.parametrize(
    ("scheduler", "workers", "limit", "expected"),
    [
        ("threads", None, None, False),
        ("threads", None, "1 GB", True),
        ("threads", 2, None, True),
        ("synchronous", None, None, False),
        ("cluster", None, None, True),
        ("tcp://host:8786", 2, None, False),
    ],
)
def test_starting_workers_is_announced(scheduler, workers, limit, expected):
    assert running.starts_workers(scheduler, workers, limit) == expected


def test_threads_are_those_of_dask():
    with running.computing("threads", None, None, 3, "pandas") as client:
        assert client is None
        assert dask.config.get("num_workers") == 3
        assert dask.config.get("pool")._max_workers == 3


@pytest.mark.slow
def test_threads_of_started_workers(monkeypatch):
    asked = {}

    def cluster(**options):
        asked.update(options)
        raise LookupError

    monkeypatch.setattr(running, "_cluster", lambda backend: cluster)
    with (
        pytest.raises(LookupError),
        running.computing("threads", 2, None, 3, "pandas"),
    ):
        pass
    assert (asked["n_workers"], asked["threads_per_worker"]) == (2, 3)
