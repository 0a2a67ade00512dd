"""Files that somebody cuts while a vault is open: refused, where to read what is mapped would end the process."""

import os
import sys

import numpy as np
import pytest

from expunge.errors import InvalidFile
from expunge.vault import Vault

from support.tampering import WHO, of_kind
from support.vaults import everything, made, random_table, small

ASKED = {
    "unlearn": lambda vault: vault.unlearn([WHO]),
    "rectify": lambda vault: vault.rectify(random_table([WHO, WHO], seed=3)),
    "add": lambda vault: vault.add(random_table(["new-9"], seed=3)),
    "rebound": lambda vault: vault.rebound({"x0": (-3, 3)}),
    "readmit": lambda vault: vault.readmit(["person-0"]),
    "holds": lambda vault: vault.find([WHO]),
    "verify": lambda vault: vault.verify(),
    "digest": lambda vault: vault.digest(),
}


def in_a_child(task):
    """Do something in a process that may be ended by the system; return its exit code, or minus the signal."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        try:
            task()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("kind", ["rows", "live", "people"])
def test_a_file_that_is_cut_under_an_open_vault_is_refused(copies, kind, asked):
    """In a child, which a bus error would end; it opens the vault itself, and has all of it in memory."""
    path = copies()

    def task():
        vault = Vault.open(path)
        vault.digest()
        for part in of_kind(path, kind):
            size = part.stat().st_size
            content = part.read_bytes()
            for length in sorted({0, 1, size // 2, size - 1}):
                os.truncate(part, length)
                before = everything(path)
                with pytest.raises(InvalidFile):
                    ASKED[asked](vault)
                assert everything(path) == before
                vault.predict(np.zeros((1, 2)))
                part.write_bytes(content)
        if asked == "unlearn":
            assert vault.unlearn([WHO]).rows == 2
        assert vault.verify().ok

    assert in_a_child(task) == 0


def test_a_file_that_is_removed_under_an_open_vault_is_refused(copies):
    for kind in ("rows", "live", "people"):
        path = copies()
        vault = Vault.open(path)
        vault.digest()
        of_kind(path, kind)[0].unlink()
        with pytest.raises(InvalidFile, match="is missing"):
            vault.unlearn([WHO])


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="there is no way to ask for room here")
def test_a_row_file_has_no_holes(tmp_path):
    """On a full tmpfs, to read a hole of a file that is mapped ends the process."""

    def room():
        (rows,) = tmp_path.glob("v.vault/rows.*")
        return rows.stat().st_blocks * 512 - rows.stat().st_size

    shards = 2000
    vault = made(tmp_path / "v.vault", random_table(range(shards + 1)), model=small(shards=shards, rate=1000))
    assert room() >= 0
    vault.add(random_table(range(shards + 1, 2 * shards + 1), seed=1))
    assert room() >= 0
    assert vault.verify().ok
