"""Kernels on a stream of their own: what waits for what, by a CUDA that tells what it is asked for."""

import threading
from types import SimpleNamespace

import pytest

from tests.support.host_gpu import as_cupy

with as_cupy(None, None, ("dask_simjoin.engine.gpu",)):
    from dask_simjoin.engine.gpu.kernels.load import VARIABLE, Aside, asked


class Stream:
    """A stream that tells what is done with it."""

    said: list

    def __init__(self, name="own", non_blocking=False):
        assert name == "default" or non_blocking
        self.name = name

    def record(self):
        self.said.append(f"{self.name} recorded")
        return f"event of {self.name}"

    def wait_event(self, event):
        self.said.append(f"{self.name} waits for {event}")

    def __enter__(self):
        self.said.append("enter")

    def __exit__(self, *error):
        self.said.append("leave")

    def synchronize(self):
        self.said.append(f"host waits for {self.name}")


@pytest.fixture
def said(monkeypatch):
    monkeypatch.setattr(Stream, "said", [], raising=False)
    return Stream.said


@pytest.fixture
def cuda(said, monkeypatch):
    monkeypatch.setattr(Stream, "null", Stream("default"), raising=False)
    return SimpleNamespace(Stream=Stream, runtime=SimpleNamespace(getDevice=lambda: 0))


BEGIN = ["default recorded", "own waits for event of default", "enter"]
END = ["leave", "host waits for own"]
ONCE = [*BEGIN, "kernel", *END]


def worker(aside, said, fail=False):
    @aside.run("pairs", "nearest")
    class Worker:
        def pairs(self, number, *, more):
            """Its text."""
            said.append("kernel")
            if fail:
                raise ValueError("not on this device")
            return number + more

        @staticmethod
        def nearest(number):
            return Worker().pairs(number, more=1)

        def layout(self):
            said.append("no kernel")

    return Worker()


def test_it_waits_for_the_default_stream_and_the_host_for_it(cuda, said):
    own = worker(Aside(cuda, True), said)
    assert own.pairs(1, more=2) == 3 and said == ONCE
    assert own.pairs.__doc__ == "Its text."
    said.clear()
    assert own.nearest(1) == 2 and said == ONCE, "once, whatever calls what"
    said.clear()
    own.layout()
    assert said == ["no kernel"]


def test_the_host_waits_too_where_a_kernel_fails(cuda, said):
    aside = Aside(cuda, True)
    with pytest.raises(ValueError, match="device"):
        worker(aside, said, fail=True).pairs(1, more=2)
    assert said == ONCE
    assert worker(aside, said).pairs(1, more=2) == 3, "and it can be used again"


def test_without_being_asked_for_nothing_changes(cuda, said, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not asked()
    assert worker(Aside(cuda, asked()), said).pairs(1, more=2) == 3 and said == ["kernel"]
    monkeypatch.setenv(VARIABLE, "own")
    assert asked()


def test_with_a_second_thread_all_run_on_the_default_stream(cuda, said):
    aside = Aside(cuda, True)
    own, inside, go_on = worker(aside, said), threading.Event(), threading.Event()

    def first():
        with aside.stream():
            inside.set()
            go_on.wait(10)

    def second():
        go_on.set()
        own.pairs(1, more=2)

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join(10)
    # the second's kernel is launched once those of the first are done
    assert said == [*BEGIN, *END, "kernel"]
    said.clear()
    own.pairs(1, more=2)
    assert said == ["kernel"]


def test_arguments_are_held_until_the_host_has_waited(cuda, said):
    """A caller may have dropped them, and their memory would be given to others."""

    class Array:
        def __del__(self):
            said.append("freed")

    aside = Aside(cuda, True)

    @aside.run("build")
    class Worker:
        def build(self, x):
            del x
            said.append("kernel")

    Worker().build(Array())
    assert said == [*ONCE, "freed"]
