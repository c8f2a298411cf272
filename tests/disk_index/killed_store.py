"""Run something on an S3 server again and again, and let each request fail: for
`test_store_crashes`.

It forks before it has a client: python -m tests.disk_index.killed_store ADDRESS URL
ACTION MODE STEP
"""

import contextlib
import functools
import itertools
import os
import shutil
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import dask

import dask_simjoin
from dask_simjoin.errors import IndexStoreError, UpkeepWarning
from tests.disk_index.killed import FIRST, GONE, NEW
from tests.support import s3


def make(how):
    """Make the index."""
    FIRST.iloc[:10].simjoin.index(
        1.0, on="x", id="key", row_group=4, store_pairs=True, **how
    )


def grow(how):
    """Make two more versions."""
    index = dask_simjoin.open_index(**how)
    index.update(FIRST.iloc[10:], batch="one")
    index.update(None, delete=[9])


def update(how):
    """Insert, replace and delete as one version."""
    dask_simjoin.open_index(**how).update(
        NEW, delete=GONE, if_exists="replace", batch="new"
    )


def restore(how):
    """Bring back what was."""
    dask_simjoin.open_index(**how).restore(1)


def vacuum(how):
    """Remove what is old, and what no version names: all of it counts as a day old."""
    from dask_simjoin.disk_index import versions as module

    module.A_DAY = -1000
    dask_simjoin.open_index(**how).vacuum(keep=1)


def optimize(how):
    """Put rows in order."""
    dask_simjoin.open_index(**how).optimize("all")


ACTIONS = {
    "make": make,
    "update": update,
    "restore": restore,
    "optimize": optimize,
    "vacuum": vacuum,
}


MODES = ("kill", "down", "once", "unheard")
"""The process dies before a request; it and all later ones fail; it fails; it is done
and seems to fail.
"""


def fail_at(request, mode):
    """Let one of the requests of this process fail from now on; returns the list of
    their number.
    """
    import obstore

    done = [0]

    def counted(function):
        def called(*args, **options):
            done[0] += 1
            if done[0] <= request or (done[0] > request + 1 and mode != "down"):
                return function(*args, **options)
            if mode == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if mode == "unheard":
                with contextlib.suppress(
                    OSError, obstore.exceptions.AlreadyExistsError
                ):
                    function(*args, **options)
            raise obstore.exceptions.GenericError("no answer")

        return called

    for name in ("put", "get", "head", "delete", "list", "list_with_delimiter"):
        setattr(obstore, name, counted(getattr(obstore, name)))
    return done


def copied(options, source, target):
    """Copy all objects below a URL."""
    import obstore

    from dask_simjoin.disk_index.stores import object_path

    old, new = object_path(source, options), object_path(target, options)
    for some in obstore.list(old.client, old.key):
        for one in some:
            obstore.copy(
                old.client, one["path"], new.key + one["path"].removeprefix(old.key)
            )


FAILED = 3
"""The exit code of a process of which a request failed."""


def in_child(work):
    """Do something in a process of its own; tells whether it was killed, or returned
    that it failed.
    """
    child = os.fork()
    if not child:
        code = 1
        try:
            with dask.config.set(scheduler="sync"):
                code = FAILED if work() is True else 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status) not in (0, FAILED):
        raise SystemExit("failed in a child")
    return status != 0


def main(address, url, name, mode, step):
    """Leave URL/NUMBER of requests before the one that failed, each `step`-th, and a
    last whole one.
    """
    options, action = s3.options_of(address), ACTIONS[name]
    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="sync"):
        # kernels are compiled before anything is forked
        warm = {"path": Path(folder) / "warm"}
        for one in (make, grow):
            one(warm)
        if name not in ("make", "vacuum"):
            action(warm)
        shutil.rmtree(warm["path"])
    template = {"path": f"{url}/template", "storage_options": options}
    in_child(lambda: (make(template), grow(template)))
    if name == "vacuum":  # there are leftovers of a writer, too
        in_child(lambda: (fail_at(20, "kill"), update(template)))

    def failing(at):
        how = template | {"path": f"{url}/{at}"}
        if name != "make":
            copied(options, template["path"], how["path"])
        done = fail_at(at, mode)
        with contextlib.suppress(IndexStoreError), warnings.catch_warnings():
            # of a request after the commit
            warnings.simplefilter("ignore", UpkeepWarning)
            action(how)
        return done[0] > at

    places = itertools.count(0, step)
    print(next(at for at in places if not in_child(functools.partial(failing, at))))


if __name__ == "__main__":
    main(*sys.argv[1:5], int(sys.argv[5]))
