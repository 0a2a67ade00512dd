"""The command line on a disk whose calls fail: not an object of ours in place of another, but libc's own functions.

    cd tests; python -m support.preloaded --every 1

`faults.c` is compiled and loaded before libc. This process imports everything once, then forks for each trial: the
child arms the faults and runs the program as a shell would, exit code and all. Then the vault is opened without faults
and must hold what the oracle says: all that was asked for after the codes 0 and 14 (carried out) and 12 (will be),
nothing of it after any other, and all or nothing if the process was ended.
"""

import argparse
import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyarrow.parquet import write_table

from expunge.cli import entry
from expunge.vault.requests import choice

from support.killing import ONE_THREAD
from support.planning import QuickPlanner
from support.trials import COMMANDS, NAME, Command, State, World, settled, told

SOURCE = Path(__file__).with_name("faults.c")
DONE, UNFINISHED = (0, 14), 12  # exit codes; any other says that nothing has changed
ONCE, LASTING, SHORT, STOP, TORN = range(5)  # as in faults.c
NEEDS_ROOM = ("create", "mkdir", "rename", "write", "sync", "close")
SHAPE = ("--shards", "4", "--rate", "2", "--features", "identity", "--alpha", "0.001")
TRAIN = ("--target", "y", "--id-column", "who", *SHAPE)
ANYTHING = ("--new-schema", "--fewer-rows", "--accept-worse")
WORDS = {
    "create": ("train", "first", *TRAIN, "--seed", "0"),
    "replace": ("train", "new", *TRAIN, "--seed", "1", "--replace", "--skip-erased", *ANYTHING),
    "add": ("add", "more"),
    "rectify": ("rectify", "righter"),
    "unlearn": ("unlearn", "--id", "0", "--id", "9"),
    "readmit": ("readmit", "--id", "5"),
    "replan": ("replan",),
    "rebound": ("rebound", "--bounds", "x0", "-1", "3", "--bounds", "y", "0", "2"),
    "renew_key": ("key", "--new"),
}


def compiled(folder: Path) -> Path | None:
    """The library of faults, if there is a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        return None
    made = folder / "faults.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-o", made, SOURCE, "-ldl"], check=True)
    return made


@dataclass(frozen=True)
class Fault:
    """What goes wrong from a call on, and the error that is given."""

    kind: int
    error: int = 0

    @property
    def ends(self) -> bool:
        """Whether the process ends by it."""
        return self.kind in (STOP, TORN)

    def __str__(self) -> str:
        return f"{('once', 'lasting', 'short', 'stop', 'torn')[self.kind]} {errno.errorcode.get(self.error, '')}"


def faults(call: str) -> Iterator[Fault]:
    """What can go wrong in a call."""
    for kind in (ONCE, LASTING):
        yield Fault(kind, errno.EIO)
        if call in NEEDS_ROOM:
            yield Fault(kind, errno.ENOSPC)
    yield Fault(ONCE, errno.EINTR)
    if call in NEEDS_ROOM:
        yield Fault(ONCE, errno.EDQUOT)
    yield Fault(STOP)
    if call == "write":
        yield from (Fault(SHORT, errno.ENOSPC), Fault(TORN))


class Shell:
    """Runs commands on copies of vaults, with a fault or without."""

    def __init__(self, folder: Path) -> None:
        self.world, self.folder = World("observed", folder), folder
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])
        choice.load_planner = QuickPlanner  # in this process, which does nothing else
        for name, request in self.world.requests.items():
            if request.rows:
                write_table(request.table, folder / f"{name}.parquet")

    def words(self, command: Command, root: Path) -> list[str]:
        """What to type."""
        tables = {name: str(self.folder / f"{name}.parquet") for name in self.world.requests}
        first, *rest = WORDS[command.name]
        return [first, *(tables.get(word, word) for word in rest), "--vault", str(root / NAME)]

    def run(self, command: Command, root: Path, fault: Fault, at: int) -> tuple[int, list[str]]:
        """The exit code of a command, and the calls that it made."""
        log, said = self.folder / "calls", self.folder / "said"
        if not (child := os.fork()):
            code = 70
            try:
                for fd in (1, 2):
                    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
                sys.argv = ["expunge", *self.words(command, root)]
                to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                self._library.arm(os.fsencode(root), to, ctypes.c_long(at), fault.kind, fault.error)
                entry()
            except SystemExit as ended:
                code = ended.code or 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, log.read_text().splitlines()

    def calls(self, command: Command) -> list[str]:
        """The calls of a command if all goes well."""
        root = self.world.copy(command.scene)
        code, calls = self.run(command, root, Fault(ONCE), -1)
        assert code == 0, (self.folder / "said").read_text()
        settled(root, {self.world.states(command)[1]}, certified=True)
        shutil.rmtree(root)
        return calls

    def try_out(self, command: Command, fault: Fault, at: int) -> int:
        """Run a command with a fault, then look at the vault without; returns the exit code."""
        root = self.world.copy(command.scene)
        code, _ = self.run(command, root, fault, at)
        assert code != 70, f"a traceback: {(self.folder / 'said').read_text()}"
        assert code != -signal.SIGKILL or fault.ends
        with told(f"after exit code {code}"):
            settled(root, {settled(root, self.allowed(command, code))})
        shutil.rmtree(root)
        return code

    def allowed(self, command: Command, code: int) -> set[State]:
        """The states that are right after an exit code."""
        before, after = self.world.states(command)
        if code in (*DONE, UNFINISHED):
            return {after}
        return {before, after} if code == -signal.SIGKILL else {before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="try one of so many faults")
    parser.add_argument("--share", type=int, default=0, help="which of them")
    parser.add_argument("--call", action="append", help="only at calls that begin so, like 'sync small.ledger'")
    parser.add_argument("--command", choices=WORDS, action="append", help="only these commands")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="expunge-preloaded-") as folder:
        if "LD_PRELOAD" not in os.environ:
            library = compiled(Path(folder))
            if library is None:
                sys.exit("there is no C compiler, or this is not Linux")
            ran = subprocess.run(sys.orig_argv, env=os.environ | ONE_THREAD | {"LD_PRELOAD": str(library)}, check=False)
            sys.exit(ran.returncode)
        sys.exit(bool(tried(Shell(Path(folder)), asked)))


def tried(shell: Shell, asked: argparse.Namespace) -> int:
    """Try faults, tell what was seen, and return how many did harm."""
    harm, codes = 0, Counter[str]()
    for command in [command for command in COMMANDS if command.name in (asked.command or WORDS)]:
        wanted = tuple(asked.call or [""])
        calls = [(at, call) for at, call in enumerate(shell.calls(command)) if call.startswith(wanted)]
        trials = [(fault, at, call) for at, call in calls for fault in faults(call.split()[0])]
        for fault, at, call in trials[asked.share :: asked.every]:
            try:
                codes[f"exit code {shell.try_out(command, fault, at)}"] += 1
            except Exception as error:
                harm += 1
                said = (shell.folder / "said").read_text()
                why = " ".join(traceback.format_exception_only(error)).replace("\n", " ")
                sys.stdout.write(f"{command}: {fault} at call {at}, {call}: {why}; it said: {said}")
    told = "".join(f"\n  {n:6,} {code}" for code, n in codes.most_common())
    sys.stdout.write(f"{codes.total() + harm:,} faults, {harm:,} did harm{told}\n")
    return harm


if __name__ == "__main__":
    main()
