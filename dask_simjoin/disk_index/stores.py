"""The folder of an index on an object store: S3, Google Cloud Storage or Azure Blob
Storage.

`ObjectPath` has those methods of `pathlib.Path` that an index needs, so most modules
work with both classes. Writes are atomic. `create` is a put with ``If-None-Match: *``,
which fails if the name is in use. An `ObjectPath` has no connection, since each process
makes its own client. So tasks can carry it to workers.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from dask_simjoin.errors import IndexStoreError, OptionError, OptionTypeError
from dask_simjoin.request.columns import optional
from dask_simjoin.request.messages import shown

SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
"""The schemes of URLs that name object stores."""

FSSPEC_NAMES = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "endpoint_url": "endpoint",
    "anon": "skip_signature",
}
"""Name of an option in s3fs, which pandas and Dask use -> its name in obstore."""

NESTED = ("client_options", "retry_config")
"""Options whose values are dicts."""

FIRST_BYTES = 1 << 16
"""The first request for an object fetches this many bytes. So does the first read at
the end of a file. Most objects, and most endings of files, are smaller.
"""

WAITS = (0.1, 0.2, 0.4, 0.8)
"""After a conflict of requests (HTTP status 409), wait for these seconds, and repeat
the request. The client itself repeats requests after the statuses 429 and 5xx.
"""

BUSY = re.compile(r"\b(?:429|503)\b")
"""Statuses that ask for fewer requests."""

QUERY = re.compile(r"(?<=[\w/%-])\?[^\s)]*")
"""Matches the query of a URL in a message. It may contain a signature, which must not
be shown.
"""


class ObjectStat(NamedTuple):
    """Size and time of an object, under the same names as in the result of
    `pathlib.Path.stat`.
    """

    st_size: int  # size in bytes
    st_mtime: float  # time when the object was written, in seconds since the epoch


@dataclass(frozen=True, order=True)
class ObjectPath:
    """The path of an object or a folder on an object store."""

    base: str  # bucket or container, such as "s3://bucket"
    # path within the bucket, without a slash at either end; "" is the bucket itself
    key: str
    options: str = field(default="{}", repr=False)
    """Options to reach the store, as JSON. They may contain secrets, so they are never
    shown.
    """
    listed_stat: ObjectStat | None = field(default=None, repr=False, compare=False)
    """The size and the time of the object, if a listing has returned them."""

    def __str__(self) -> str:
        return f"{self.base}/{self.key}"

    def __dask_tokenize__(self) -> object:
        return type(self).__name__, str(self)

    def __truediv__(self, name: str) -> ObjectPath:
        return self.joinpath(name)

    def joinpath(self, *names: str) -> ObjectPath:
        return replace(
            self,
            key="/".join(part for part in (self.key, *names) if part),
            listed_stat=None,
        )

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return replace(self, key=self.key.rpartition("/")[0], listed_stat=None)

    @property
    def stem(self) -> str:
        return os.path.splitext(self.name)[0]

    @property
    def suffix(self) -> str:
        return os.path.splitext(self.name)[1]

    @property
    def client(self) -> Any:
        """The client of the store in this process.

        An error is raised in a forked process, because requests would hang.
        """
        found = _client(self.base, self.options)
        if os.getpid() != _users[0]:
            raise IndexStoreError(
                f"This process was forked from one that had used {self.base!r}, and "
                "connections do not work "
                "after a fork. Start processes with 'spawn' or 'forkserver', as Dask "
                "does."
            )
        return found

    def is_dir(self) -> bool:
        return False

    def stat(self) -> ObjectStat:
        """Return the size and the time of the object. Raise `FileNotFoundError` if it
        does not exist.
        """
        return self.listed_stat or _stat(self._call("head"))

    def exists(self) -> bool:
        if not self.key:
            return False
        try:
            self._call("head")
        except FileNotFoundError:
            return False
        return True

    def read_bytes(self) -> bytes:
        return bytes(self._call("get").bytes())

    def read_range(self, start: int, stop: int) -> tuple[ObjectStat, str, Any]:
        """Read some bytes of the object. Return its size and time, its tag, and the
        bytes.
        """
        found = self._call("get", options={"range": (start, stop)})
        with _reaching(self):
            return _stat(found.meta), str(found.meta["e_tag"]), found.bytes()

    def create(self, content: bytes) -> None:
        """Write a new object. Raise `FileExistsError` if its name is in use."""
        for wait in WAITS:
            try:
                return self._put(content, mode="create")
            # a conflict with another request looks the same as a name in use
            except FileExistsError:
                if self.exists():
                    raise
            time.sleep(wait)
        self._put(content, mode="create")

    def touch(self, exist_ok: bool = True) -> None:
        if exist_ok:
            self.put(b"")
        else:
            self.create(b"")

    def put(self, content: bytes | BinaryIO) -> None:
        """Write the object, or replace it. A large file is sent in parts, but appears
        all at once.
        """
        self._put(content)

    def _put(self, content: bytes | BinaryIO, **how: Any) -> None:
        try:
            if how:
                self._try("put", content, **how)
            else:
                self._call("put", content)
        except FileNotFoundError:
            raise IndexStoreError(
                f"{str(self)!r} cannot be written, because {self.base!r} does not "
                "exist. Create the "
                "bucket first."
            ) from None

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object. It is not an error if it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            self._call("delete")

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield the paths directly below this one. If the path is an object, its
        `listed_stat` is set.
        """
        with _reaching(self):
            found = _obstore().list_with_delimiter(self.client, self.key or None)
        for name in found["common_prefixes"]:
            yield replace(self, key=str(name).rstrip("/"), listed_stat=None)
        for one in found["objects"]:
            if one["path"] != self.key:
                yield replace(self, key=one["path"], listed_stat=_stat(one))

    def after(self, name: str) -> Iterator[ObjectPath]:
        """Yield the objects below this path, sorted by name, beginning after `name`."""
        below = f"{self.key}/" if self.key else ""
        with _reaching(self):
            for some in _obstore().list(
                self.client, self.key or None, offset=f"{below}{name}"
            ):
                for one in sorted(some, key=lambda one: str(one["path"])):
                    yield replace(self, key=one["path"], listed_stat=_stat(one))

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        """Send a request, and repeat it if it is in conflict with another request."""
        for wait in (*WAITS, None):
            for file in args:
                if hasattr(file, "seek"):
                    file.seek(0)
            try:
                return self._try(name, *args, **options)
            except FileExistsError as error:
                conflict = error
            if wait is not None:
                time.sleep(wait)
        raise IndexStoreError(
            f"The store answered each of {len(WAITS) + 1} requests for {str(self)!r} "
            "with a conflict (HTTP status 409): other requests for it are running. "
            "Repeat the call. If the update has a batch=, it is not applied twice."
        ) from conflict

    def _try(self, name: str, *args: Any, **options: Any) -> Any:
        with _reaching(self):
            return getattr(_obstore(), name)(self.client, self.key, *args, **options)


AnyPath = Path | ObjectPath
"""The folder of an index, or a file in it: on a disk, or on an object store."""


class ObjectFile:
    """An object that can be read from any offset."""

    def __init__(self, path: ObjectPath) -> None:
        self._path, head = path, b""
        try:
            about, tag, head = path.read_range(0, FIRST_BYTES)
        except IndexStoreError:  # the store refuses a range of an empty object
            about, tag = path.stat(), ""
            if about.st_size:
                raise
        self._head = pa.py_buffer(head)
        self.identity = about.st_size, int(about.st_mtime), tag

    def read(self, start: int, size: int) -> pa.Buffer:
        """Read `size` bytes; at the end of the object, read fewer."""
        stop = min(start + size, self.identity[0])
        if stop <= max(start, self._head.size):
            return self._head[start : max(start, stop)]
        return pa.py_buffer(self._path.read_range(start, stop)[2])

    def close(self) -> None:
        """Free the memory of the bytes that were read in advance."""
        self._head = pa.py_buffer(b"")


def object_path(url: str, options: Mapping[str, Any] | None) -> ObjectPath:
    """Return the path for the URL of an object store. `options`: how to reach the
    store.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        allowed = ", ".join(f"{one}://" for one in SCHEMES)
        raise OptionError(
            f"path={url!r} is not allowed: an index is in a folder, or on an object "
            f"store ({allowed})."
        )
    bucket, _, key = rest.partition("/")
    key = key.rstrip("/")
    if not bucket or any(part in ("", ".", "..") for part in key.split("/") if key):
        raise OptionError(
            f"path={url!r} is not a name on an object store; use "
            f"{scheme}://BUCKET/NAME, without empty parts."
        )
    how = json.dumps(
        _options({} if options is None else options, scheme), sort_keys=True
    )
    found = ObjectPath(f"{scheme}://{bucket}", key, how)
    try:
        found.client  # noqa: B018
    except (_obstore("obstore.exceptions").BaseError, ValueError, TypeError) as error:
        raise OptionError(
            f"path={url!r} cannot be used with these storage_options: "
            f"{_reason(error)}. Use the names of "
            "obstore: https://developmentseed.org/obstore"
        ) from None
    return found


def _options(options: Mapping[str, Any], scheme: str) -> dict[str, Any]:
    """Return the options under the names of obstore. Raise an error for values that
    cannot be sent to workers.
    """
    if not isinstance(options, Mapping):
        raise OptionTypeError(
            f"storage_options={shown(options)} is not a dict of names and values."
        )
    aliases = FSSPEC_NAMES if scheme == "s3" else {}
    found: dict[str, Any] = {}
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(
            value, dict if name in NESTED else (str, bool, int)
        ):
            raise OptionTypeError(
                f"storage_options has {shown(name)} of type {type(value).__name__}; "
                "use strings, numbers and "
                f"bools, and dicts for {' and '.join(NESTED)}."
            )
        found[aliases.get(name, name)] = value
    if str(found.get("endpoint", "")).startswith("http://"):
        found["client_options"] = {"allow_http": True} | found.get("client_options", {})
    return found


_users: list[int] = []
"""Ids of the processes that have made clients. In a forked process, the first id is of
another process.
"""


@functools.lru_cache
def _client(base: str, options: str) -> Any:
    _users.append(os.getpid())
    return _obstore("obstore.store").from_url(base, **json.loads(options))


def _obstore(name: str = "obstore") -> Any:
    """Import obstore, or a module of it. If it is missing, the error says how to
    install it.
    """
    return optional(name, "obstore", "Indexes on object stores")


def _stat(meta: Mapping[str, Any]) -> ObjectStat:
    return ObjectStat(int(meta["size"]), meta["last_modified"].timestamp())


def _reason(error: Exception) -> str:
    """Return the first line of an error. The queries of URLs are left out, because they
    may contain signatures.
    """
    text = (str(error).splitlines() or [""])[0].partition(": <")[0]
    return QUERY.sub("", text)[:400].rstrip(". ")


@contextlib.contextmanager
def _reaching(path: ObjectPath) -> Iterator[None]:
    """Convert an error of a store to the error that a file would raise, or else to
    `IndexStoreError`.
    """
    errors = _obstore("obstore.exceptions")
    try:
        yield
    except errors.AlreadyExistsError:
        raise FileExistsError(
            errno.EEXIST, os.strerror(errno.EEXIST), str(path)
        ) from None
    except FileNotFoundError:
        raise FileNotFoundError(
            errno.ENOENT, os.strerror(errno.ENOENT), str(path)
        ) from None
    except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
        failure = IndexStoreError(
            f"The store refuses a request for {str(path)!r}: {_reason(error)}. The "
            "credentials in storage_options or in the environment are wrong, or do not "
            "allow this. Reading an index needs the rights to list and get objects, "
            "writing it also the rights to put and delete them."
        )
        failure.errno = errno.EACCES  # see `is_read_only`
        raise failure from error
    except (errors.BaseError, OSError) as error:
        reason = _reason(error)
        check = (
            "It receives too many requests: wait for some minutes"
            if BUSY.search(reason)
            else "Check the network, the bucket and the credentials in storage_options"
        )
        raise IndexStoreError(
            f"The store did not answer for {str(path)!r} as expected: {reason}. "
            f"{check}, and repeat the call. If the update has a batch=, it is not "
            "applied twice."
        ) from error


def is_read_only(error: OSError) -> bool:
    """Return whether a file was not written because this process may only read the
    folder or the bucket.
    """
    return error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
