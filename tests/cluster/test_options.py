"""The command line with workers: what it takes, refuses and prints."""

import json

import pyarrow.parquet as pq
import pytest

from expunge.cli.program import run as main
from expunge.vault import Vault

from support.vaults import random_table

pytestmark = pytest.mark.filterwarnings("ignore")

TRAIN = ["--target", "y", "--id-column", "who", "--shards", "4", "--rate", "2", "--seed", "0"]


@pytest.fixture
def table(tmp_path):
    pq.write_table(random_table([f"p{k}" for k in range(3_000)]), tmp_path / "t.parquet", row_group_size=400)
    return tmp_path / "t.parquet"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--workers", "0"], "must be a whole number of at least 1"),
        (["--workers", "two"], "must be a whole number of at least 1"),
        (["--workers", "2", "--dask", "tls://h:1"], "give only one of them"),
        (["--insecure"], "need --dask"),
        (["--tls-ca", "ca.pem"], "need --dask"),
        (["--dask", "tcp://198.18.0.9:8786"], "anyone on the network could run code"),
        (["--dask", "tls://127.0.0.1:1"], "tls:// needs a certificate authority"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_is_done(tmp_path, table, capsys, options, told):
    assert main(["train", str(table), *TRAIN, "--vault", str(tmp_path / "v.vault"), *options]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "v.vault").exists()


def test_a_scheduler_that_nobody_runs_is_told(tmp_path, table, capsys):
    command = ["train", str(table), *TRAIN, "--vault", str(tmp_path / "v.vault"), "--dask", "tcp://127.0.0.1:9"]
    assert main([*command, "--json"]) == 16
    error = json.loads(capsys.readouterr().err.splitlines()[-1])["error"]
    assert (error["type"], error["exit_code"]) == ("ClusterFailed", 16)
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in error["message"]
    assert not (tmp_path / "v.vault").exists()


@pytest.mark.slow
def test_workers_are_started_by_an_option_and_give_the_same_vault(tmp_path, table, capsys):
    for name, workers in (("a", []), ("b", ["--workers", "2"])):
        vault = ["--vault", str(tmp_path / f"{name}.vault")]
        assert main(["train", str(table), *TRAIN, *vault, *workers]) == 0
        assert main(["unlearn", "--id", "p7", *vault, *workers]) == 0
        assert main(["verify", *vault, *workers]) == 0
    assert "learned 3,000 rows of 3,000 people" in capsys.readouterr().out
    a, b = (Vault.open(tmp_path / f"{name}.vault") for name in "ab")
    assert a.digest() == b.digest()


def test_without_dask_an_option_says_what_to_install(tmp_path, table, capsys, monkeypatch):
    import sys

    for name in [name for name in sys.modules if name.split(".")[:2] == ["expunge", "distributed"]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["train", str(table), *TRAIN, "--vault", str(tmp_path / "v.vault"), "--workers", "2"]) == 2
    assert "which is not installed: pip install 'expunge[dask]'" in capsys.readouterr().err
