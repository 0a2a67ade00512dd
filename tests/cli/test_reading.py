"""``--read-only`` and ``--group`` on the command line."""

import stat

import pytest

from expunge.saving import files
from expunge.vault import Vault
from expunge.vault.disk.folder import Folder

from support.commands import TRAIN
from support.disks import ended_at
from support.vaults import everything

LOOKS = {
    "predict": ("predict", "new.csv"),
    "status": ("status",),
    "log": ("log",),
    "key": ("key",),
    "find": ("find", "--id", "person-1"),
    "verify": ("verify",),
}


class ReadOnly(files.System):
    """A disk on which nothing may be changed or locked."""

    def refuse(self, *_):
        pytest.fail("somebody writes")

    write = truncate = reserve = sync = rename = unlink = mkdir = rmdir = chmod = lock = refuse


@pytest.mark.parametrize("name", LOOKS)
def test_a_command_that_only_reads_says_the_same_and_changes_nothing(spend, ok, monkeypatch, name):
    expected = ok(*LOOKS[name], "--vault", spend)
    before = everything(spend)
    monkeypatch.setattr(files, "system", ReadOnly())
    assert ok(*LOOKS[name], "--vault", spend, "--read-only") == expected
    assert everything(spend) == before


@pytest.mark.parametrize("name", LOOKS)
def test_a_command_that_only_reads_ends_with_12_while_something_is_pending(spend, run, ok, name):
    ended_at(Folder, "commit", lambda: Vault.open(spend).unlearn(["person-0"]))
    before = everything(spend)
    code, out, err = run(*LOOKS[name], "--vault", spend, "--read-only", "--wait", "0")
    assert (code, out) == (12, "")
    assert "opened read-only" in err or "opened it read-only" in err
    assert everything(spend) == before
    ok(*LOOKS[name], "--vault", spend)
    ok(*LOOKS[name], "--vault", spend, "--read-only")


def test_a_new_key_is_not_made_by_who_only_reads(spend, run):
    code, _, err = run("key", "--new", "--read-only", "--vault", spend)
    assert code == 2
    assert "--read-only" in err


def test_a_group_may_read_a_vault_that_was_made_for_it(here, ok):
    ok("train", "customers.parquet", "--vault", "spend.vault", "--group", *TRAIN)
    modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in here.glob("spend.*")}
    assert modes == {".vault": 0o2750, ".certificates": 0o2750, ".ledger": 0o640, ".pub": 0o640, ".key": 0o600}
