"""History: what a vault costs after years of requests: ``python -m benchmarks.history [--largest 100000]``.

People are erased one by one, through a service, and the vault and its queue are copied after 10, 1,000 and 100,000
requests: real ones, each with an Idempotency-Key and sent to a webhook, with a history that passes ``verify``. The
copies are then measured in turns: the first erasure after a start, an erasure by the library, the command line and
HTTP, opening, status, a receipt, readiness, metrics and keys, and the memory of the service. Each cost at the longest
history is shown as a multiple of that at the shortest, in the table of ``docs/service.md``.
"""

import argparse
import http.client
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from expunge import CodedRegressor
from expunge.server.database import Database, queue_path
from expunge.server.queue import NewJob
from expunge.server.service import Service
from expunge.vault import Vault

COSTS, MEMORY = 1.3, 1.1  # the goals: times as much at the longest history
SPARE = 2_000  # people who are left to be erased while the copies are measured
BESIDE = (".ledger", ".key", ".pub", ".certificates", ".leaves", ".lists", ".index", ".queue")


def main() -> None:
    """Make the histories, measure, print, and fail if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument("--largest", type=int, default=100_000, help="requests of the longest history")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--folder", type=Path, help="where the vaults are made; a folder in memory hides the disk")
    parser.add_argument("--keep", action="store_true", help="do not remove the vaults afterwards")
    parser.add_argument("--reuse", type=Path, metavar="FOLDER", help="measure the vaults that --keep left here")
    parser.add_argument("--verify", action="store_true", help="verify the longest history as well; takes minutes")
    args = parser.parse_args()
    lengths = sorted({10, min(1_000, args.largest), args.largest})
    folder = args.reuse or Path(tempfile.mkdtemp(dir=args.folder))
    try:
        if args.reuse:
            copies = {length: folder / str(length) / "spend.vault" for length in lengths}
        else:
            copies = _histories(folder, lengths)
        missed = _measure(copies, args.rounds)
        if args.verify:
            verdict = Vault.open(copies[args.largest]).verify()
            print(f"verify after {args.largest:,} requests: {'ok' if verdict.ok else 'FAILED'}")
            missed += not verdict.ok
    finally:
        if args.keep or args.reuse:
            print(f"kept in {folder}")
        else:
            shutil.rmtree(folder)
    sys.exit(bool(missed))


def _histories(folder: Path, lengths: list[int]) -> dict[int, Path]:
    """Make a vault with so many people and erase them one by one; return a copy after each length."""
    rng, people = np.random.default_rng(0), lengths[-1] + SPARE
    columns = {name: rng.random(people) for name in ("age", "visits", "spend")}
    table = pa.table({"who": [f"p{k}" for k in range(people)], **columns})
    path = folder / "spend.vault"
    model = CodedRegressor(shards=5, rate=5, random_state=0)
    Vault.create(path, table, target="spend", id="who", model=model)
    copies, started, done = dict[int, Path](), time.monotonic(), 1  # the training is the first request
    for length in lengths:
        make_history(path, range(done, length))
        done = length
        copies[length] = _copy(path, folder / str(length))
        print(f"{length:>9,} requests after {time.monotonic() - started:,.0f} s", flush=True)
    return copies


def make_history(path: Path, numbers: range) -> None:
    """Erase these people one by one, as a service does, and let it end as it does."""
    database = Database(queue_path(path))
    service = Service(Vault.open(path), database)
    hook, _ = service.hooks.create("https://example.com/")
    for k in numbers:
        answers = (
            service.keyed_hash(f"key {k}".encode()),
            service.keyed_hash(f"body {k}".encode()),
        )  # an Idempotency-Key
        asked = NewJob("erasure", "api", "gdpr", reference=f"DSR-{k}", actor="benchmark", idempotency=answers)
        service.erase([f"p{k}"], asked)
        if k % 100 == 0:
            service.run_due()
    service.hooks.remove(hook.id)  # nothing is sent: its deliveries stay in the queue, as given up
    service.stop()


def _copy(path: Path, to: Path) -> Path:
    to.mkdir()
    for part in (path, *(path.with_suffix(suffix) for suffix in BESIDE)):
        if part.is_dir():
            shutil.copytree(part, to / part.name)
        elif part.exists():
            shutil.copy2(part, to / part.name)
    return to / path.name


def _measure(copies: dict[int, Path], rounds: int) -> int:
    took = dict[str, dict[int, list[float]]]()
    memory = dict[int, float]()
    with ExitStack() as stack:
        services = {length: stack.enter_context(_serve(path)) for length, path in copies.items()}
        calls = {length: _calls(path, services[length]) for length, path in copies.items()}
        for length in copies:  # the first of all, in a service that has just started
            started = time.perf_counter()
            calls[length]["erase, /erasures"]()
            first = time.perf_counter() - started
            took.setdefault("first erasure, /erasures", {})[length] = [first]
        for k in range(rounds):
            for length in copies:
                for name, call in calls[length].items():
                    if name.startswith("command line") and k >= rounds // 4:  # half a second each
                        continue
                    if "/" in name:
                        services[length].get("/healthz")  # connected again, if it was idle for long
                    started = time.perf_counter()
                    call()
                    took.setdefault(name, {}).setdefault(length, []).append(time.perf_counter() - started)
        for length, service in services.items():
            memory[length] = service.memory()
    shortest, *_, longest = copies
    print("\n| " + " | ".join(("", *(f"{length:,} requests" for length in copies), "ratio")) + " |")
    print("|" + "---|" * (len(copies) + 2))
    missed = 0
    for name, by_length in took.items():
        medians = {length: statistics.median(times) for length, times in by_length.items()}
        ratio = medians[longest] / medians[shortest]
        missed += ratio > COSTS
        cells = " | ".join(f"{1e3 * medians[length]:.1f} ms" for length in copies)
        print(f"| {name} | {cells} | {ratio:.2f}{'' if ratio <= COSTS else ', missed'} |")
    ratio = memory[longest] / memory[shortest]
    missed += ratio > MEMORY
    cells = " | ".join(f"{memory[length] / 2**20:.0f} MB" for length in copies)
    print(f"| memory of the service | {cells} | {ratio:.2f}{'' if ratio <= MEMORY else ', missed'} |")
    return missed


def _calls(path: Path, service: "Served") -> dict[str, Callable[[], object]]:
    """What is measured. Everybody who is erased comes from the end of the table, which no history has reached."""
    vault = Vault.open(path)
    left = iter(range(vault.status().people + vault.status().erased_ids - 1, 0, -1))
    command = [sys.executable, "-m", "expunge"]

    def run(*words: str) -> None:
        subprocess.run([*command, *words, "--vault", str(path)], check=True, capture_output=True)

    return {
        "erase, library": lambda: vault.unlearn(f"p{next(left)}", receipts=True),
        "erase, /erasures": lambda: service.post("/api/v1/erasures", {"ids": [f"p{next(left)}"]}),
        "erase, command line": lambda: run("unlearn", "--id", f"p{next(left)}"),
        "open": lambda: Vault.open(path),
        "status": lambda: vault.status(),
        "command line: status": lambda: run("status"),
        "receipt": lambda: vault.personal_receipts("p5"),
        "/receipt": lambda: service.post("/api/v1/receipts", {"ids": ["p5"]}),
        "/status": lambda: service.get("/api/v1/status"),
        "/readyz": lambda: service.get("/readyz"),
        "/metrics": lambda: service.get("/metrics"),
        "/jwks.json": lambda: service.get("/.well-known/jwks.json"),
    }


class Served:
    """A service in a process of its own, and a connection to it."""

    def __init__(self, pid: int, port: int) -> None:
        self._pid = pid
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def get(self, path: str) -> None:
        """Ask for something that must be there."""
        self._ask("GET", path)

    def post(self, path: str, body: object) -> None:
        """Send JSON; it must be taken."""
        self._ask("POST", path, json.dumps(body), {"Content-Type": "application/json"})

    def _ask(self, *words: Any) -> None:
        try:
            self._connection.request(*words)
            answer = self._connection.getresponse()
        except (OSError, http.client.RemoteDisconnected):  # the service closes what is idle for long
            self._connection.close()
            self._connection.request(*words)
            answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{words[1]} answered {answer.status}: {text[:200]!r}")

    def memory(self) -> float:
        """Return how much memory the process has in use, in bytes."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        return 1024 * float(status.split("VmRSS:")[1].split()[0])


@contextmanager
def _serve(path: Path) -> Iterator[Served]:
    command = [sys.executable, "-m", "expunge", "serve", "--vault", str(path), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        port = 0
        for line in process.stderr:
            if b'"serving"' in line:
                port = urlsplit(json.loads(line)["address"]).port or 0
                break
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield Served(process.pid, port)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


if __name__ == "__main__":
    main()
