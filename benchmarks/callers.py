"""Callers: erasures per second over HTTP by several callers, beside one alone: ``python -m benchmarks.callers``.

Each sync of the service's process takes 4 ms longer, as on a disk without a cache. A library that is loaded before libc
sees to that, for the vault and for SQLite alike; it needs Linux and a C compiler. One caller and several take turns. In
the end every acknowledged erasure is looked up in the vault.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from expunge.vault import Vault

from .load import Client, make_vault, serve

_SLOW_SYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static int slow(const char *name, int fd) {
    struct timespec wait = {0, NANOSECONDS};
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    nanosleep(&wait, 0);
    return real(fd);
}
int fsync(int fd) { return slow("fsync", fd); }
int fdatasync(int fd) { return slow("fdatasync", fd); }
"""


def main() -> None:
    """Measure, print the ratio, and fail if it is too low or an acknowledged erasure was lost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.callers", description=__doc__)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sync", type=float, default=4.0, help="milliseconds that a sync takes longer")
    parser.add_argument("--least", type=float, default=5.0, help="the ratio that is expected")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = make_vault(Path(folder) / "spend.vault")
        library = _compile(Path(folder), args.sync)
        erased, rates = list[str](), dict[int, list[float]]({1: [], args.callers: []})
        with serve(path, 0, env=os.environ | {"LD_PRELOAD": str(library)}) as (port, _):
            _erase(port, 1, 1.0, erased)  # to warm up
            for _ in range(args.rounds):
                for callers, measured in rates.items():
                    measured.append(_erase(port, callers, args.seconds, erased))
        vault = Vault.open(path)
        lost = sum(holding.state != "erased" for holding in vault.find(erased))
        requests = sum(request.kind == "unlearn" for request in vault.requests)
    one, several = (statistics.median(measured) for measured in rates.values())
    print(f"{args.sync:g} ms per sync: 1 caller {one:.1f}, {args.callers} callers {several:.1f} erasures per second")
    print(f"{several / one:.2f} times; {len(erased)} erasures in {requests} requests of the vault; lost: {lost}")
    if lost or several / one < args.least:
        raise SystemExit(1)


def _erase(port: int, callers: int, seconds: float, erased: list[str]) -> float:
    """Let callers erase one person after the other; return how many per second were acknowledged as done."""
    lock, end, started = threading.Lock(), time.monotonic() + seconds, time.monotonic()
    first = len(erased)
    people = iter(range(first, 10**9))

    def call() -> None:
        client = Client(port)
        while time.monotonic() < end:
            with lock:
                who = f"p{next(people)}"
            status, answer = client.post("/api/v1/erasures", {"ids": [who]})
            assert (status, answer["state"], len(answer["receipts"])) == (200, "done", 1), answer
            with lock:
                erased.append(who)

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (len(erased) - first) / (time.monotonic() - started)


def _compile(folder: Path, milliseconds: float) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SystemExit("this needs a C compiler")
    source, made = folder / "sync.c", folder / "sync.so"
    source.write_text(_SLOW_SYNC.replace("NANOSECONDS", f"{int(milliseconds * 1e6)}L"))
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl"], check=True)
    return made


if __name__ == "__main__":
    main()
