"""A vault whose process is killed at any instant: nothing that was acknowledged is lost, half done or done twice."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from expunge.vault import Vault

from support.killing import ALL_HIT, ALL_LEFT, ONE_THREAD, die, draw, estimator
from support.oracle import Oracle
from support.vaults import everything

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "load",
    [pytest.param((), id="at rest"), pytest.param(("--load",), id="under load", marks=pytest.mark.torture)],
)
def test_a_vault_that_is_killed_again_and_again_holds_what_was_acknowledged_and_nothing_else(load):
    command = [sys.executable, "-m", "support.killing", "--kills", "100", "--seed", "1", *load]
    ran = subprocess.run(command, cwd=TESTS, env=os.environ | ONE_THREAD, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr  # with the evidence's folder
    assert int(re.match(r"(\d+) kills", ran.stdout)[1]) >= 100
    assert int(re.search(r"(\d+) children outlived a worker", ran.stdout)[1]) > 0
    for what in ALL_HIT | ALL_LEFT:
        assert re.search(rf"[1-9]\d* {what}\n", ran.stdout), ran.stdout


def test_a_life_may_be_long():
    """A worker that is killed late, because the machine is busy, does many requests more."""
    for seed in range(20):
        oracle, rng = Oracle.of(estimator(observed=False)), die(seed)
        for _ in range(300):
            oracle = oracle.after(draw(oracle, rng))


BROKEN = """
from expunge.vault.requests import Unlearn
from support import killing

Unlearn.overwrite = lambda *_: None
killing.main()
"""


@pytest.mark.slow
def test_a_broken_promise_leaves_its_evidence_in_a_folder_that_is_named(tmp_path):
    command = [sys.executable, "-c", BROKEN, "--kills", "200", "--seed", "5"]
    env = os.environ | ONE_THREAD | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run(command, cwd=TESTS, env=env, capture_output=True, text=True)
    assert ran.returncode == 1
    folder = Path(re.search(r"^the evidence is in (.+)$", ran.stdout, re.MULTILINE)[1])
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [folder]
    texts = {path.stem: path.read_text() for path in folder.glob("*.txt")}
    # A worker finds the damage, or, if one was killed first, the reader that recovers the vault.
    assert re.search("the (worker|reader) failed before it was killed", texts["message"])
    assert "its number of rows differs from its manifest" in texts["stderr"]
    assert texts["stderr"] in ran.stdout
    assert "--seed 5" in texts["command"]
    assert "Request(kind='unlearn'" in texts["notes"]
    before, after = (everything(folder / name / "t.vault") for name in ("before", "after"))
    assert {"t.ledger", "t.key", "t.pub", "t.vault/current"} <= after.keys()
    if before:  # else it was a worker that trained the vault itself
        assert after["t.ledger"].startswith(before["t.ledger"])
        assert Vault.open(folder / "before" / "t.vault").verify().ok
