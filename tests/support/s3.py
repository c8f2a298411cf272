"""An S3 server of its own process, moto's, that answers one request at a time: python
-m tests.support.s3.

It checks conditions of a put before it puts.  So requests must not overlap, or two
writers could both win.
"""

import contextlib
import logging
import subprocess
import sys
import threading
import uuid
from pathlib import Path

ROOT = Path(__file__).parents[2]

BUCKET = "bucket"


class Ordered:
    """An application that answers one request at a time."""

    def __init__(self, app):
        self.app, self.lock = app, threading.Lock()

    def __call__(self, environ, start_response):
        with self.lock:
            return list(self.app(environ, start_response))


def main():
    """Serve until the standard input ends, after printing the address."""
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    server._server.app = Ordered(server._server.app)
    s3_backends["123456789012"]["aws"].create_bucket(BUCKET, "us-east-1")
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


@contextlib.contextmanager
def server():
    """Run a server; yield the options of its clients."""
    command = [sys.executable, "-m", "tests.support.s3"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        address = process.stdout.readline().strip()
        try:
            yield options_of(address)
        finally:
            process.stdin.close()
            process.wait(30)


def options_of(address):
    """Return the `storage_options` for a server, for pandas and Dask."""
    return {
        "key": "id",
        "secret": "no secret",
        "endpoint_url": address,
        "region": "us-east-1",
        "retry_config": {"max_retries": 1},
    }


def new_url():
    """Return the URL of a new folder."""
    return f"s3://{BUCKET}/some folder/{uuid.uuid4().hex}"


if __name__ == "__main__":
    main()
