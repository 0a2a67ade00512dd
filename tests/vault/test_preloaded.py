"""The command line on a disk whose system calls fail: its exit code says what became of the request."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.killing import ONE_THREAD
from support.preloaded import WORDS, compiled

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    found = compiled(tmp_path_factory.mktemp("faults"))
    return found or pytest.skip("there is no C compiler, or this is not Linux")


def run(library, *words):
    env = os.environ | ONE_THREAD | {"LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "support.preloaded", *words]
    ran = subprocess.run(command, cwd=TESTS, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("share", range(2))
def test_after_a_system_call_that_fails_the_exit_code_says_what_became_of_the_request(library, share):
    commands = [word for command in [*WORDS][share::2] for word in ("--command", command)]
    run(library, *commands, "--every", "101")


HARMFUL = [
    "sync small.ledger",  # of the acceptance: the next command carries it out, so the code is 12 and not 1
    "close small.ledger",  # the answer was lost to an error of close, after all was done
]


@pytest.mark.slow
def test_calls_that_once_did_harm(library):
    run(library, "--command", "unlearn", *(word for call in HARMFUL for word in ("--call", call)), "--every", "3")


@pytest.mark.torture
@pytest.mark.parametrize("share", range(8))
@pytest.mark.parametrize("command", WORDS)
def test_the_same_of_every_fault_at_every_call(library, command, share):
    run(library, "--command", command, "--every", "8", "--share", str(share))
