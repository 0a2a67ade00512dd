"""Evidence: what is kept of a failure that may never come again, in a folder that the output names.

The vault is copied before a worker is let loose on it (`before`), once it is killed (`struck`), and as the failure left
it (`after`): the folder and all that lies beside it. Of earlier strikes nothing is kept. Timing is no part of the seed:
the same command may well pass the next time.
"""

import os
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Evidence:
    """What is going on with one vault after another, noted as it happens."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "evidence"
        self._folder.mkdir()
        self._vault: Path | None = None
        self._notes: list[str] = []
        self.stderr = self._folder / "stderr.txt"  # of the processes that are killed

    def begin(self, vault: Path, *notes: object) -> None:
        """Forget the strike before, and note what is about to happen."""
        shutil.rmtree(self._folder)
        self._folder.mkdir()
        self._vault, self._notes = vault, []
        self.note(*notes)
        self.copy("before")

    def note(self, *notes: object) -> None:
        self._notes += map(str, notes)

    def copy(self, name: str) -> None:
        """Copy all that is there of the vault."""
        assert self._vault is not None
        shutil.copytree(self._vault.parent, self._folder / name)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """If something fails, put the evidence where nobody clears up, and say where."""
        try:
            yield
        except Exception:
            place = Path(tempfile.mkdtemp(prefix="expunge-evidence-"))
            self._write(place)
            sys.stdout.write(f"the evidence is in {place}\n{(place / 'stderr.txt').read_text()}")
            raise

    def _write(self, place: Path) -> None:
        if self._vault is not None:
            self.copy("after")
        self.stderr.touch()
        shutil.copytree(self._folder, place, dirs_exist_ok=True)
        (place / "message.txt").write_text(traceback.format_exc())
        (place / "command.txt").write_text(f"cd {shlex.quote(os.getcwd())}; {shlex.join(sys.orig_argv)}\n")
        (place / "notes.txt").write_text("".join(f"{note}\n" for note in self._notes))
