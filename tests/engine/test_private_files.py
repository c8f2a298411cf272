"""Code is loaded from files that no other user can have written, and from no others."""

import os

import pytest

from dask_simjoin.engine.private_files import make_folder, read_private, write_private

OTHER = 65534
"""A user who is neither root nor the one that runs the tests."""

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


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


@pytest.mark.parametrize(("umask", "modes"), [(0, (0o755, 0o644)), (0o077, (0o700, 0o600))])
def test_modes_are_never_looser_than_these(tmp_path, umask, modes):
    before = os.umask(umask)
    try:
        path = tmp_path / "cache" / "kernels" / "a"
        make_folder(path.parent)
        write_private(path, b"one")
    finally:
        os.umask(before)
    found = [one.stat().st_mode & 0o777 for one in (path.parent.parent, path.parent, path)]
    assert found == [modes[0], *modes]


def test_nothing_is_written_where_others_can_write(kept):
    kept.parent.chmod(0o777)
    with pytest.raises(PermissionError):
        write_private(kept.with_name("b"), b"two")
    assert [path.name for path in kept.parent.iterdir()] == ["a"]
