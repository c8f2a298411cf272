"""Calls in threads of their own, for tests that do something beside them."""

import threading
from concurrent.futures import Future


def started(function, *args, **options):
    """Start a call in a thread; return the future of its result.

    Nobody waits for the thread: if the test fails, neither it nor the process hangs.
    """
    future = Future()

    def run():
        try:
            future.set_result(function(*args, **options))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
