"""Files: a sync reaches the drive, and a file is replaced whole or not at all."""

import errno
import fcntl
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from expunge.errors import InvalidFile
from expunge.saving import files

from support.disks import Crash, used
from support.faulty import Fault, Faulty

# Syncs


@pytest.fixture
def calls(monkeypatch):
    """Record the system calls for syncs, in order; `fails` is the error of a full sync."""
    recorded = SimpleNamespace(log=[], fails=None)

    def full(fd, command):
        recorded.log.append(command)
        if recorded.fails:
            raise OSError(recorded.fails, os.strerror(recorded.fails))

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", "full", raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full)
    monkeypatch.setattr(os, "fsync", lambda fd: recorded.log.append("fsync"))
    return recorded


def set_platform(monkeypatch, platform):
    monkeypatch.setattr(files, "sys", SimpleNamespace(platform=platform))


@pytest.mark.parametrize("platform", ["linux", "freebsd14", "win32"])
def test_a_sync_is_the_systems_own(calls, monkeypatch, platform):
    set_platform(monkeypatch, platform)
    files.sync(0)
    assert calls.log == ["fsync"]


def test_on_a_mac_a_sync_goes_down_to_the_drive(calls, monkeypatch, tmp_path):
    set_platform(monkeypatch, "darwin")
    files.sync(0)
    assert calls.log == ["full"]
    files.create(tmp_path / "new", b"new")
    files.sync_folder(tmp_path)
    assert calls.log == ["full"] * 3


@pytest.mark.parametrize("reason", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_where_a_file_system_has_no_full_sync_the_plain_one_is_done(calls, monkeypatch, reason):
    set_platform(monkeypatch, "darwin")
    calls.fails = reason
    files.sync(0)
    assert calls.log == ["full", "fsync"]


@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC, errno.EBADF])
def test_a_full_sync_that_fails_is_a_sync_that_failed(calls, monkeypatch, reason):
    """A plain sync after it would succeed, and data that the first one lost would seem safe."""
    set_platform(monkeypatch, "darwin")
    calls.fails = reason
    with pytest.raises(files.SyncFailed, match="could not be synced"):
        files.sync(0)
    assert calls.log == ["full"]


# A file in place of another


@pytest.fixture
def disk(tmp_path):
    root = tmp_path / "disk"
    root.mkdir()
    (root / "f").write_bytes(b"old content")
    with used(Faulty(root)) as disk:
        yield disk


def replace(disk, *, commit=True, fails=False):
    with files.replace_file(disk.root / "f", disk.root / "beside") as new:
        files.write_parts(new.fd, [b"new ", b"content"])
        if commit:
            new.commit()
        if fails:
            raise KeyError("in between")


def test_a_file_that_is_committed_takes_the_place_and_lasts(disk):
    replace(disk)
    assert disk.left() == {"f": b"new content"}
    log = [str(operation) for operation in disk.log]
    assert log.index("sync beside") < log.index("rename f") < log.index("sync disk")


@pytest.mark.parametrize(("commit", "fails"), [(False, False), (False, True), (True, True)])
def test_a_file_that_is_not_committed_or_whose_writing_fails_is_wiped(disk, commit, fails):
    kept = []
    unlink = disk.unlink
    disk.unlink = lambda path: (kept.append(path.read_bytes()), unlink(path))
    if fails:
        with pytest.raises(KeyError):
            replace(disk, commit=commit, fails=True)
    else:
        replace(disk, commit=commit)
    assert (disk.root / "f").read_bytes() == b"old content"
    assert os.listdir(disk.root) == ["f"]
    assert kept == [bytes(len(b"new content"))]


def test_a_file_of_somebody_else_is_not_wiped(disk):
    (disk.root / "beside").write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        replace(disk)
    assert (disk.root / "beside").read_bytes() == b"precious"
    assert (disk.root / "f").read_bytes() == b"old content"


@pytest.mark.parametrize("write", [replace, lambda disk: files.put(disk.root / "f", b"new ", b"content")])
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("kind", ["error", "full", "short", "sync", "stop", "torn"])
def test_whatever_goes_wrong_a_file_is_there_whole_or_as_it_was(tmp_path, kind, lasting, write):
    whole = {b"old content", b"new content"}
    for k in range(100):
        root = tmp_path / f"{k}"
        root.mkdir()
        (root / "f").write_bytes(b"old content")
        disk, error = Faulty(root), None
        disk.arm(Fault(kind, k, lasting))
        with used(disk):
            try:
                write(disk)
            except (OSError, Crash) as caught:
                error = caught
        assert (root / "f").read_bytes() in whole
        for seed in (None, *range(8)):
            assert disk.left(seed)["f"] in whole
        if error is None:
            assert disk.left() == {"f": b"new content"}
        elif kind in ("full", "short"):  # to wipe takes no room
            assert os.listdir(root) == ["f"]
        if k > len(disk.log):
            break
    assert k > 5


# Files that are synced together


def inode(fd):
    return os.fstat(fd).st_ino


def open_files():
    """Count the descriptors of this process, if the system can."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


@pytest.fixture
def pages(tmp_path):
    """Forty empty files, more than a batch keeps open."""
    recorded = [tmp_path / f"page.{k}" for k in range(40)]
    for path in recorded:
        path.touch()
    return recorded


def test_a_batch_syncs_every_file_after_it_was_written_and_few_are_open_at_once(pages, monkeypatch):
    synced, counts, lock = {}, [open_files()], threading.Lock()

    def record(self, fd):
        with lock:
            counts.append(open_files())
        synced[inode(fd)] = os.fstat(fd).st_size

    monkeypatch.setattr(files.System, "sync", record)
    with files.SyncBatch() as batch:
        for k, path in enumerate(pages):
            batch.fill(path, b"x" * (k + 1))
    assert synced == {path.stat().st_ino: k + 1 for k, path in enumerate(pages)}
    assert max(counts) <= counts[0] + 20


def test_cleared_files_lose_their_bytes_only_after_zeros_were_synced(pages):
    for path in pages:
        path.write_bytes(b"secret")
    seen, contents = [], {path.stat().st_ino: path for path in pages}

    class Recording(files.System):
        def sync(self, fd):
            seen.append(("sync", inode(fd), contents[inode(fd)].read_bytes()))

        def truncate(self, fd, size):
            seen.append(("truncate", inode(fd), size))
            super().truncate(fd, size)

    with used(Recording()), files.SyncBatch() as batch:
        for path in pages:
            batch.clear(path)
    for path in pages:
        number = path.stat().st_ino
        assert [step for step in seen if step[1] == number] == [("sync", number, bytes(6)), ("truncate", number, 0)]
        assert path.read_bytes() == b""


def test_a_sync_that_fails_is_told_once_all_others_have_ended(pages, monkeypatch):
    running, ended = set(), set()

    def slow(self, fd):
        running.add(inode(fd))
        if inode(fd) == pages[1].stat().st_ino:
            raise OSError(5, "Input/output error")
        time.sleep(0.05)
        ended.add(inode(fd))

    monkeypatch.setattr(files.System, "sync", slow)
    with pytest.raises(files.SyncFailed), files.SyncBatch() as batch:
        for path in pages[:5]:
            batch.fill(path, b"x")
    assert len(running) == 5
    assert len(ended) == 4


def test_a_batch_that_an_error_ends_syncs_nothing_more(pages, monkeypatch):
    monkeypatch.setattr(files.System, "sync", lambda self, fd: pytest.fail("synced"))
    with pytest.raises(InvalidFile, match="not empty"), files.SyncBatch() as batch:
        pages[1].write_bytes(b"here already")
        for path in pages[:3]:
            batch.fill(path, b"x")


def test_where_no_thread_can_be_started_files_are_synced_one_by_one(pages, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    synced = []
    monkeypatch.setattr(files, "_sync_pool", None)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(files.System, "sync", lambda self, fd: synced.append(inode(fd)))
    with files.SyncBatch() as batch:
        for path in pages:
            batch.fill(path, b"x")
    assert sorted(synced) == sorted(path.stat().st_ino for path in pages)


def test_an_interrupt_waits_for_syncs_that_are_running(pages, monkeypatch):
    ended = []

    def interrupt(self, fd):
        if inode(fd) == pages[0].stat().st_ino:
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.2)
        ended.append(os.fstat(fd).st_size)  # an error if it was closed

    monkeypatch.setattr(files.System, "sync", interrupt)
    with pytest.raises(KeyboardInterrupt), files.SyncBatch() as batch:
        for path in pages[:4]:
            batch.fill(path, b"x")
    assert set(ended) == {1}
