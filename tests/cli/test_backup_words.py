"""``expunge backup`` and ``restore`` as a shell sees them."""

import json
import shutil
from pathlib import Path

from support.commands import V


def lose(*names):
    for name in names:
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink()


def test_a_backup_is_made_and_put_back(ok, run, spend):
    out = ok("backup", "saved", *V)
    assert out.startswith("backed up to saved, as of request 1: ")
    assert run("backup", "saved", *V)[::2] == (
        2,
        "error: saved already exists: choose a new folder for the backup\n",
    )
    ok("unlearn", *V, "--id", "person-3")
    lose("spend.vault")
    code, out, err = run("restore", "saved", *V)
    assert (code, out) == (0, "restored spend.vault from a backup of request 1; now at 3\n")
    assert err.startswith("note: this folder is a copy from request 1. ")
    assert "erased" in run("find", *V, "--id", "person-3")[1]
    ok("verify", *V)


def test_a_folder_that_is_lost_is_restored_and_not_trained_anew(run, spend):
    lose("spend.vault")
    code, out, err = run("status", *V)
    assert (code, out) == (8, "")
    assert "spend.ledger exists: put the folder back, or restore a backup with: expunge restore" in err
    lose("spend.ledger")
    assert "make one with: expunge train" in run("status", *V)[2]


def test_without_a_ledger_the_list_of_erased_is_wanted(ok, run, spend):
    made = json.loads(ok("backup", "saved", *V, "--with-key", "--json"))
    assert (made["request"], made["with_key"], made["path"]) == (1, True, "saved")
    lose("spend.vault", "spend.ledger", "spend.key", "spend.certificates")
    code, out, err = run("restore", "saved", *V)
    assert (code, out) == (2, "")
    assert "--nothing-erased-since" in err
    Path("none.txt").touch()
    code, _, err = run("restore", "saved", *V, "--erased", "none.txt")
    assert (code, "is empty" in err) == (2, True)
    Path("since.txt").write_text("person-3\nperson-4\nstranger\n")
    words = ("--erased", "since.txt", "--actor", "privacy desk", "--json")
    done = json.loads(ok("restore", "saved", *V, *words))
    assert (done["people"], done["unseen"], done["ledger_kept"], done["backup_request"]) == (2, 1, False, 1)
    assert {one["callers"][0]["actor"] for one in json.loads(ok("log", *V, "--json"))[1:]} == {"privacy desk"}
    for one in ("person-3", "person-4", "stranger"):
        assert json.loads(run("find", *V, "--id", one, "--json")[1])[0]["state"] == "erased"
    ok("verify", *V)


def test_nobody_was_erased_since(ok, run, spend):
    ok("backup", "saved", *V)
    lose("spend.vault", "spend.ledger", "spend.key", "spend.certificates")
    assert ok("restore", "saved", *V, "--nothing-erased-since").startswith("restored spend.vault ")
    ok("verify", *V)
    code, _, err = run("restore", "saved", *V, "--nothing-erased-since")
    assert (code, "already exists" in err) == (2, True)
    assert run("restore", "nothing", "--vault", "other.vault")[0] == 8


def test_a_clone_is_made_and_recorded(ok, run, spend):
    code, _, err = run("clone", "staging.vault", *V)
    assert (code, "--new-identity" in err) == (2, True)
    code, out, err = run("clone", "staging.vault", *V, "--new-identity", "--reference", "CHG-7")
    assert (code, err[:6]) == (0, "note: ")
    assert "recorded as request 2; the clone signs with the key " in out
    ok("verify", "--vault", "staging.vault")
    name = json.loads(ok("status", *V, "--json"))["vault"]
    assert f"{name}/1" in ok("status", "--vault", "staging.vault")
    assert "clone of" not in ok("status", *V)
    assert "clone " in ok("log", *V)
    assert "cloned" in ok("log", "--vault", "staging.vault")
    code, out, err = run("clone", "staging.vault", *V, "--new-identity", "--json")
    assert (code, json.loads(err)["error"]["type"]) == (2, "InvalidSetting")
    made = json.loads(run("clone", "second.vault", *V, "--new-identity", "--json")[1])
    assert (made["clone_of"], made["request"], made["path"]) == (f"{name}/2", 3, "second.vault")
