import io
import signal
import sys

import pyarrow.csv
import pyarrow.parquet
import pytest

from expunge import cli

from support.commands import TRAIN, customers
from support.disks import Unsynced, used
from support.vaults import duplicate, people


@pytest.fixture(scope="module", autouse=True)
def _unsynced():
    """No wait for the disk: what these tests end is never the machine."""
    with used(Unsynced()):
        yield


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with tables, in which commands are run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("EXPUNGE_KEY", raising=False)
    pyarrow.parquet.write_table(customers(people()), "customers.parquet")
    pyarrow.csv.write_csv(customers(["person-3", "nobody"], 1).drop(["spend"]), "new.csv")
    pyarrow.csv.write_csv(customers(["person-5"], 2), "corrected.csv")
    pyarrow.parquet.write_table(customers(["new-1", "new-2"], 3), "more.parquet")
    return tmp_path


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command as a shell does: how it ended, and what it printed where."""
    handler = signal.getsignal(signal.SIGINT)

    def ran(*args, stdin=""):
        monkeypatch.setattr(sys, "argv", ["expunge", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.entry()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    yield ran
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def ok(run):
    """Run a command that must succeed: what it printed."""

    def ran(*args, **options):
        code, out, err = run(*args, **options)
        assert (code, err) == (0, ""), (args, out, err)
        return out

    return ran


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Where the first test that needs a vault leaves a copy for the others."""
    return tmp_path_factory.mktemp("trained")


@pytest.fixture
def spend(here, ok, trained):
    """A vault made by the command."""
    if (trained / "spend.vault").exists():
        return duplicate(trained / "spend.vault", here)
    ok("train", "customers.parquet", "--vault", "spend.vault", *TRAIN)
    duplicate(here / "spend.vault", trained)
    return here / "spend.vault"
