"""A vault whose process is killed at any instant: nothing that was acknowledged is lost, half done or done twice."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.killing import ONE_THREAD

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_vault_that_is_killed_again_and_again_holds_what_was_acknowledged_and_nothing_else(tmp_path):
    command = [sys.executable, "-m", "support.killing", "--kills", "200", "--seed", "1", "--folder", tmp_path]
    ran = subprocess.run(command, cwd=TESTS, env=os.environ | ONE_THREAD, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(re.match(r"(\d+) kills", ran.stdout)[1]) >= 200
    assert int(re.search(r"(\d+) children outlived a worker", ran.stdout)[1]) > 0
    for what in ("first train", "unlearn", "add", "rectify", "rebound", "recovery of an accepted request"):
        assert re.search(rf"[1-9]\d* {what}\n", ran.stdout), ran.stdout
    for left in ("accepted, finished by the next", "not accepted, nothing changed"):
        assert left in ran.stdout
