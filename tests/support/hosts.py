"""Two hosts, which are network namespaces: a cluster over TLS between them gives the bytes of one process.

Run as a program, by root. In the midst of the second training the cable to one of the hosts is cut.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from distributed.security import Security

from expunge.vault import Vault

from support.vaults import small, table, weights

HOSTS = {"expunge-a": "198.18.77.1", "expunge-b": "198.18.77.2"}  # addresses that RFC 2544 keeps for tests
ROWS = 120_000


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)  # noqa: S607 - whichever the machine has


@contextmanager
def cabled():
    """Two namespaces and a cable between them."""
    a, b = HOSTS
    try:
        for host in HOSTS:
            ip("netns", "add", host)
        ip("link", "add", "expunge0", "netns", a, "type", "veth", "peer", "name", "expunge0", "netns", b)
        for host, address in HOSTS.items():
            ip("-n", host, "addr", "add", f"{address}/24", "dev", "expunge0")
            ip("-n", host, "link", "set", "expunge0", "up")
            ip("-n", host, "link", "set", "lo", "up")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], stderr=subprocess.DEVNULL)  # noqa: S607


@contextmanager
def running(host: str, *words: str):
    """A program on a host, which is ended at the end."""
    command = ["ip", "netns", "exec", host, sys.executable, "-m", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def asked(folder: Path, name: str, tls: list[str], tasks: int) -> None:
    """Train a vault on the first host with all workers."""
    code = (
        "import sys; from expunge.distributed import joined_cluster, workers; from expunge.vault import Vault\n"
        "from support.vaults import small\n"
        f"workers.TASK_ROWS = {tasks}\n"
        "path, data, address, ca, cert, key = sys.argv[1:]\n"
        "with joined_cluster(address, ca=ca, cert=cert, key=key) as cluster:\n"
        "    Vault.create(path, data, target='y', id='who', model=small(), client=cluster)\n"
        "    print('workers lost:', cluster.lost_count)\n"
    )
    arguments = [str(folder / f"{name}.vault"), str(folder / "t.parquet"), f"tls://{HOSTS['expunge-a']}:8786", *tls]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = ["ip", "netns", "exec", "expunge-a", sys.executable, "-c", code, *arguments]
    subprocess.run(command, check=True, env=environment, timeout=300)


def cut_during(token: Path) -> None:
    """Cut the cable as soon as workers have begun to write."""
    end = time.monotonic() + 120
    while not token.exists() or not list(token.parent.glob("rows.*")):
        if time.monotonic() > end:
            return
        time.sleep(0.01)
    ip("-n", "expunge-b", "link", "set", "expunge0", "down")


def main() -> int:
    if os.geteuid() or shutil.which("ip") is None:
        sys.stdout.write("two hosts need root, and ip of iproute2 (apt-get install iproute2): nothing was tried\n")
        return 0
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="expunge-hosts-") as name, ExitStack() as stack:
        folder = Path(name)
        data = table([f"p{k}" for k in range(ROWS)], rng.uniform(-1, 1, (ROWS, 3)), rng.uniform(-1, 1, ROWS))
        pq.write_table(data, folder / "t.parquet", row_group_size=5_000)
        security = Security.temporary()
        tls = []
        for part, text in (
            ("ca", security.tls_ca_file),
            ("cert", security.tls_client_cert),
            ("key", security.tls_client_key),
        ):
            (folder / f"{part}.pem").write_text(text)
            (folder / f"{part}.pem").chmod(0o600)
            tls.append(str(folder / f"{part}.pem"))
        options = ["--tls-ca-file", tls[0], "--tls-cert", tls[1], "--tls-key", tls[2]]
        stack.enter_context(cabled())
        where = f"tls://{HOSTS['expunge-a']}:8786"
        scheduler = ["distributed.cli.dask_scheduler", "--host", where, "--no-dashboard", *options]
        stack.enter_context(running("expunge-a", *scheduler))
        for host, address in HOSTS.items():
            worker = ["distributed.cli.dask_worker", where, "--host", address, "--nthreads", "1", "--no-dashboard"]
            stack.enter_context(running(host, *worker, "--local-directory", str(folder / host), *options))
        time.sleep(12)  # until they have found each other; nothing depends on it but who gets which task
        alone = Vault.create(folder / "alone.vault", folder / "t.parquet", target="y", id="who", model=small())
        asked(folder, "both", tls, 10_000)
        cutting = threading.Thread(target=cut_during, args=(folder / "cut.vault" / "training.1",))
        cutting.start()
        asked(folder, "cut", tls, 1_000)
        cutting.join()
        for one in ("both", "cut"):
            vault = Vault.open(folder / f"{one}.vault")
            assert (vault.digest(), weights(vault)) == (alone.digest(), weights(alone)), one
            assert vault.verify().ok, one
            sys.stdout.write(f"{one}: {ROWS:,} rows, the digest and weights of one process\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
