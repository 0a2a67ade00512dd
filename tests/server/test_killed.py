"""A service that is killed has everything that it acknowledged, once; one that is asked to end, ends in time."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from expunge.vault import Vault

from support.killing import ONE_THREAD
from support.processes import Served, small_vault, until

pytestmark = pytest.mark.no_cover


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "seed"),
    [(40, 0), (40, 1), pytest.param(5000, 4, marks=pytest.mark.torture)],
)
def test_everything_acknowledged_is_there_once_however_often_it_was_killed(kills, seed):
    command = [sys.executable, "-m", "support.service_killing", "--kills", str(kills), "--seed", str(seed)]
    memory = {"TMPDIR": "/dev/shm"} if kills < 1000 and Path("/dev/shm").is_dir() else {}  # noqa: S108 - many short lives
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], env=os.environ | ONE_THREAD | memory, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{kills} kills" in done.stdout


@pytest.mark.slow
def test_the_command_itself_takes_up_what_it_was_killed_over(tmp_path):
    path = tmp_path / "spend.vault"
    small_vault(path)
    with Served(path, "--window", "1s") as service:
        asked = [service.ask("POST", "/api/v1/erasures", {"ids": [f"p{k}"]}) for k in range(5)]
        assert [status for status, _ in asked] == [202] * 5
        service.kill()
    with Served(path) as service:
        waiting = "/api/v1/requests?state=waiting"
        until(lambda: not service.ask("GET", waiting)[1]["requests"])
        assert service.stop() == 0
    vault = Vault.open(path, read_only=True)
    assert [one.state for one in vault.find([f"p{k}" for k in range(6)])] == ["erased"] * 5 + ["present"]
    assert vault.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_is_asked_to_end_finishes_what_is_under_way_within_ten_seconds(tmp_path, number):
    path, answers = tmp_path / "spend.vault", []
    small_vault(path)
    with Served(path) as service:

        def ask(k):
            try:
                answers.append((k, *service.ask("POST", "/api/v1/erasures", {"ids": [f"p{k}"]})))
            except OSError:
                answers.append((k, 0, {}))

        threads = [threading.Thread(target=ask, args=(k,)) for k in range(20)]
        for thread in threads:
            thread.start()
        until(lambda: answers)
        service.process.send_signal(number)
        assert service.process.wait(10.0) == 0
        for thread in threads:
            thread.join()
        assert b'"stopped", "clean": true' in service.lines[-1]
    vault = Vault.open(path)
    done = [k for k, status, _ in answers if status == 200]
    assert done
    assert {one.state for one in vault.find([f"p{k}" for k in done])} == {"erased"}
    assert {status for _, status, _ in answers} <= {0, 200, 202, 503}
    assert vault.verify().ok
    assert not list(path.with_suffix(".queue").glob("*-wal"))
