"""Drafts: what a process that was killed had written of a file is wiped by the next one that writes it."""

import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from expunge import CodedRegressor
from expunge.saving import drafts, files

from support.disks import used
from support.vaults import random_table, small

PROBE = random_table(["probe-1", "probe-2"], seed=5).drop(["y"])

KILLED = """
import os, signal, sys
from expunge.vault import Vault
from expunge.tables import predictions
from support.vaults import random_table

def end(self):
    self.close()
    self._file.flush()
    os.kill(os.getpid(), signal.SIGKILL)

predictions.PredictionWriter.commit = end
Vault.open(sys.argv[1]).predict_to(random_table(["probe-1"]).drop(["y"]), sys.argv[2])
"""


def killed(vault, out):
    """Kill a process that predicts into a file, once all is written; what it leaves."""
    words = [sys.executable, "-c", KILLED, str(vault.places.vault), str(out)]
    done = subprocess.run(words, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == -signal.SIGKILL
    (left,) = out.parent.glob(f".{out.name}.*")
    assert left.stat().st_size
    return left


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_what_a_killed_process_wrote_is_wiped_by_the_next(vault, tmp_path, form):
    out = tmp_path / "out" / f"p.{form}"
    out.parent.mkdir()
    left = killed(vault, out)
    if form == "csv":
        assert b"probe-1" in left.read_bytes()
    others = [left.with_name(name) for name in (".q.csv.0123abcd", f".{out.name}.0123abc", f"{out.name}.0123abcd")]
    for other in others:
        other.write_text("of somebody else")
    with left.open("rb") as opened:
        vault.predict_to(PROBE, out)
        assert not any(opened.read())
    assert sorted(out.parent.iterdir()) == sorted([out, *others])


def test_who_is_still_writing_is_left_alone(vault, tmp_path):
    out, inner = tmp_path / "p.csv", []

    def rows():
        for batch in PROBE.to_batches(max_chunksize=1):
            inner.append(vault.predict_to(PROBE, out).rows)
            yield batch

    assert vault.predict_to(pa.RecordBatchReader.from_batches(PROBE.schema, rows()), out).rows == 2
    assert inner == [2, 2]
    assert pyarrow.csv.read_csv(out)["who"].to_pylist() == ["probe-1", "probe-2"]
    assert list(tmp_path.glob(".*")) == []


def test_only_plain_files_of_ones_own_with_one_name_are_wiped(vault, tmp_path):
    out, precious = tmp_path / "p.csv", tmp_path / "precious"
    precious.write_text("keep me")
    os.link(precious, tmp_path / ".p.csv.00000001")
    (tmp_path / ".p.csv.00000002").symlink_to(precious)
    (tmp_path / ".p.csv.00000003").mkdir()
    os.mkfifo(tmp_path / ".p.csv.00000004")
    vault.predict_to(PROBE, out)
    assert precious.read_text() == "keep me"
    assert len(list(tmp_path.glob(".p.csv.*"))) == 4


class Sweeping(files.System):
    """A disk on which another process sweeps between the birth of a draft and its lock, a few times."""

    def __init__(self, path, times):
        self.path, self.times, self.sweeping = path, times, False

    def lock(self, fd):
        if self.times and not self.sweeping:
            self.times, self.sweeping = self.times - 1, True
            drafts.wipe_stale_drafts(self.path)
            self.sweeping = False
        super().lock(fd)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_draft_that_was_swept_before_it_was_locked_is_begun_anew(tmp_path, times):
    path = tmp_path / "file"
    with used(Sweeping(path, times)), drafts.open_draft(path) as new:
        files.write_parts(new.fd, [b"whole"])
        new.commit()
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


def test_without_locks_files_are_written_and_nothing_is_swept(tmp_path):
    class Without(files.System):
        def lock(self, fd):
            raise OSError(95, "not supported")

    (tmp_path / ".file.0123abcd").write_text("perhaps alive")
    with used(Without()), drafts.open_draft(tmp_path / "file") as new:
        new.commit()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".file.0123abcd", "file"]


def test_a_saved_model_wipes_the_draft_of_one_that_was_killed(tmp_path):
    rng = np.random.default_rng(0)
    model = small().fit(rng.random((20, 2)), rng.random(20))
    (tmp_path / ".model.expunge.0123abcd").write_bytes(b"rows")
    model.save(tmp_path / "model.expunge")
    assert [path.name for path in tmp_path.iterdir()] == ["model.expunge"]
    assert isinstance(CodedRegressor.load(tmp_path / "model.expunge"), CodedRegressor)
