"""The engine: Dask, and how it is started, joined and checked. No other module knows it.

Whoever reaches a scheduler can run code on its workers. So a cluster of our own has certificates of its own, for itself
alone, listens on the loopback and has no dashboard; one that is joined must be reached by TLS, or lie on this machine.
"""

import ipaddress
import logging
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
import distributed
from distributed.comm.core import CommClosedError
from distributed.security import Security

from ..errors import ClusterFailed, InvalidSetting
from ..versions import versions
from .workers import ClusterWorkers

# MERGED addresses: Addresses of schedulers: which of them may be used.


def check_address(address: str, *, insecure: bool) -> None:
    """Refuse a scheduler that anybody on the network could take over."""
    parts = urlsplit(address)
    if parts.scheme == "inproc":
        return
    if parts.scheme not in ("tls", "tcp", "wss", "ws") or parts.port is None:
        raise InvalidSetting(
            f"an address of a scheduler is like tls://host:8786 or tcp://127.0.0.1:8786, got {address!r}"
        )
    if parts.scheme not in ("tls", "wss") and not insecure and not _is_loopback(parts.hostname or ""):
        raise InvalidSetting(
            f"{address} is not on this machine and not reached by TLS: whoever is on the network could run code on the "
            "workers. Use tls://, or insist (--insecure, Cluster(client, insecure=True))"
        )


def check_listening(address: str, timeout: float) -> None:
    """Refuse an address at which nobody listens; Dask would try again until its time is over."""
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname, parts.port), timeout).close()
    except OSError as error:
        raise ClusterFailed(f"no Dask scheduler answers at {address}: {error.strerror or error}") from None


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


# MERGED signals: Signals: how Ctrl-C meets workers of our own, and how these are started so that they do not hear it.


class _IsolatedStart:
    """While it lasts, new processes hear no Ctrl-C and do not know the script of this one. Several may last at once."""

    def __init__(self) -> None:
        self._depth = 0
        self._saved_main: tuple[Any, Any] = None, None

    def __enter__(self) -> None:
        main = sys.modules["__main__"]
        if not self._depth:
            self._saved_main = main.__spec__, main.__dict__.pop("__file__", None)
            main.__spec__ = None
            resource_tracker.ensure_running()  # which else unblocks signals as it starts
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            main = sys.modules["__main__"]
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            main.__spec__, file = self._saved_main
            if file is not None:
                main.__file__ = file


isolated_start = _IsolatedStart()


@contextmanager
def defer_interrupt() -> Iterator[list[bool]]:
    """Note Ctrl-C, and leave it to the caller to act upon it."""
    came: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)


_POLL_SECONDS = 1.0  # seconds between looks at whether the cluster is still there
_WORKER_TIMEOUT = 60.0  # seconds to wait for a worker, when there is none
_COMBINED_AT_ONCE = 8  # sums that are added at once
_DASK_CONFIG = {
    "distributed.worker.memory.target": False,  # nothing is spilled to a disk: it may be rows
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 128 * 2**20,  # Dask's own makes our blocks slow
    "distributed.scheduler.http.routes": [],  # no pages
    "distributed.worker.http.routes": [],
    "distributed.admin.log-length": 0,
}
_CONNECTION_ERRORS = (CommClosedError, distributed.CancelledError, TimeoutError, OSError)


class Cluster:
    """A Dask client as an `Executor`.

    Parameters
    ----------
    client : distributed.Client
        A client of a cluster whose workers see the vault under the same path, and have the same versions of expunge and
        of what it stands on.
    insecure : bool
        Whether a scheduler on another machine may be reached without TLS. Then whoever is on the network can run code
        on the workers, and read rows.
    """

    def __init__(self, client: distributed.Client, *, insecure: bool = False) -> None:
        if not isinstance(client, distributed.Client) or client.asynchronous:
            raise InvalidSetting("client must be a distributed.Client that is not asynchronous, or a Cluster")
        self._client = client
        self.check_open()
        address = str(client.scheduler.address) if client.scheduler is not None else ""
        check_address(address, insecure=insecure)
        self._last_workers: set[str] = set()
        self._no_workers_since: float | None = None
        self.lost_count = 0
        self._check_versions()

    @cached_property
    def workers(self) -> ClusterWorkers:
        """What a vault asks for."""
        return ClusterWorkers(self)

    def run(self, task: Callable[..., Any], calls: Sequence[tuple[Any, ...]], done: Callable[[int], None]) -> list[Any]:
        results: dict[int, Any] = {}

        def take(k: int, future: Any) -> None:
            results[k] = _get_result(future)
            future.release()  # else Dask would run it again, should the worker that has the result be lost
            done(k)

        with self._submit(task, calls) as futures:
            self._wait(dict(enumerate(futures)), take)
        return [results[k] for k in range(len(calls))]

    def run_and_combine(
        self,
        task: Callable[..., Any],
        calls: Sequence[tuple[Any, ...]],
        combine: Callable[[Sequence[Any]], Any],
        done: Callable[[int], None],
    ) -> Any:
        found: list[Any] = []

        def take(k: int, future: Any) -> None:
            if future.status != "finished":
                _get_result(future)  # says why
            future.release()  # whoever combines it keeps it for as long as it is needed
            done(k)

        with self._submit(task, calls) as futures, self._submit_combining(combine, futures) as last:
            self._wait(dict(enumerate(futures)), take)
            self._wait({0: last}, lambda _, future: found.append(_get_result(future)))
        return found[0]

    @contextmanager
    def _submit_combining(self, combine: Callable[[Sequence[Any]], Any], futures: Sequence[Any]) -> Iterator[Any]:
        """Have results combined, a few at a time, before others are computed: few of them are there at once."""
        layer, every = list(futures), list[Any]()
        try:
            while len(layer) > 1:
                groups = [layer[k : k + _COMBINED_AT_ONCE] for k in range(0, len(layer), _COMBINED_AT_ONCE)]
                layer = [self._client.submit(combine, group, pure=False, priority=1) for group in groups]
                every += layer
            yield layer[0]
        finally:
            self._release(every)

    def run_everywhere(self, task: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """What each worker answers; one that is lost meanwhile does not count."""
        with _translate_errors():
            answers: dict[str, Any] = self._client.run(task, *arguments, on_error="return")
        lost = (OSError, TimeoutError)
        for answer in answers.values():
            if isinstance(answer, Exception) and not isinstance(answer, lost):
                raise answer
        return {worker: answer for worker, answer in answers.items() if not isinstance(answer, Exception)}

    @contextmanager
    def _submit(self, task: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[list[Any]]:
        """Submit calls; however this ends, nothing of them goes on."""
        self.check_open()
        self._last_workers, self._no_workers_since = self._worker_addresses(), None
        with _translate_errors():
            futures = [self._client.submit(task, *call, pure=False) for call in calls]
        try:
            yield futures
        finally:
            self._release(futures)

    def _release(self, futures: Sequence[Any]) -> None:
        with suppress(Exception):  # a cluster that is gone has nothing to release
            unfinished = [future for future in futures if not future.done()]
            if unfinished:
                self._client.cancel(unfinished, force=True)
            for future in futures:
                future.release()

    def _wait(self, futures: dict[int, Any], take: Callable[[int, Any], None]) -> None:
        """Take results as they come, and look now and then whether there is anybody left who could bring more."""
        waiting = dict(futures)
        while waiting:
            with _translate_errors(), suppress(TimeoutError), self._client.as_current():
                distributed.wait(list(waiting.values()), timeout=_POLL_SECONDS, return_when="FIRST_COMPLETED")
            for k in [k for k, future in waiting.items() if future.done()]:
                take(k, waiting.pop(k))
            self._check_workers()

    def check_open(self) -> None:
        """Refuse a cluster that was closed, or whose scheduler is lost."""
        if self._client.status != "running":
            raise ClusterFailed("there is no connection to the Dask scheduler any more; nothing was changed")

    def _check_workers(self) -> None:
        """Count the workers that are lost; refuse to wait for ever."""
        self.check_open()
        there = self._worker_addresses()
        self.lost_count += len(self._last_workers - there)
        self._last_workers = there
        if there:
            self._no_workers_since = None
        elif self._no_workers_since is None:
            self._no_workers_since = time.monotonic()
        elif time.monotonic() - self._no_workers_since > _WORKER_TIMEOUT:
            raise ClusterFailed(f"there has been no worker for {_WORKER_TIMEOUT:.0f} seconds; nothing was changed")

    def _worker_addresses(self) -> set[str]:
        """The addresses of the workers."""
        with _translate_errors():
            return set(self._client.scheduler_info(n_workers=-1)["workers"])

    def _check_versions(self) -> None:
        """Refuse workers with other versions than this process: they could compute other bits, or not understand."""
        mine = versions()
        others = self.run_everywhere(versions)
        if not others:
            raise ClusterFailed("the cluster has no workers")
        for theirs in others.values():
            if different := [name for name in mine if theirs.get(name) != mine[name]]:
                told = ", ".join(f"{name} {theirs.get(name)} instead of {mine[name]}" for name in different)
                raise ClusterFailed(f"a worker has other versions than this process: {told}; install the same")


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Replace errors of Dask's own calls by what they mean for a vault."""
    try:
        yield
    except _CONNECTION_ERRORS as error:
        raise ClusterFailed(f"the cluster is gone ({type(error).__name__}); nothing was changed") from None


def _get_result(future: Any) -> Any:
    """The result of a task that has ended; an error of the task is raised as it is."""
    try:
        return future.result()
    except distributed.KilledWorker:
        raise ClusterFailed(
            "a task was lost with its worker again and again: workers may have too little memory; nothing was changed"
        ) from None
    except (CommClosedError, distributed.CancelledError) as error:
        raise ClusterFailed(f"the cluster is gone ({type(error).__name__}); nothing was changed") from None


def workers_of(client: Any) -> ClusterWorkers:
    """What a vault asks of a cluster: of a `Cluster` (or whatever else has helpers), or of a client of Dask."""
    if isinstance(client, Cluster):
        client.check_open()
    found: ClusterWorkers = (client if hasattr(client, "workers") else Cluster(client)).workers
    return found


class _WorkerNanny(distributed.Nanny):
    """What starts a worker, and starts it again.

    The worker has no dashboard, even where one is installed. It hears no Ctrl-C, which a terminal sends to it as well,
    because a process inherits which signals are blocked; who asked ends it. And it does not run the script that asked
    once more, as new processes of Python do: it needs nothing of it.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "dashboard": False})

    async def instantiate(self) -> Any:
        with isolated_start:
            return await super().instantiate()


@contextmanager
def own_cluster(workers: int) -> Iterator[Cluster]:
    """Start so many processes on this machine, which end with this.

    They speak TLS with certificates that are made for the occasion, listen on the loopback, spill nothing to the disk
    and have no dashboard.
    """
    if type(workers) is not int or workers < 1:
        raise InvalidSetting(f"workers must be a whole number, at least 1, got {workers!r}")
    with (
        tempfile.TemporaryDirectory(prefix="expunge-workers-") as scratch,
        dask.config.set({**_DASK_CONFIG, "temporary-directory": scratch}),
        _start_local_cluster(workers, scratch) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield Cluster(client)


@contextmanager
def _start_local_cluster(workers: int, scratch: str) -> Iterator[distributed.LocalCluster]:
    """Start a cluster; Ctrl-C waits for that, because what was started half cannot be ended in peace."""
    with defer_interrupt() as interrupted:
        try:
            cluster = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                protocol="tls://",
                security=Security.temporary(),
                dashboard_address="127.0.0.1:0",  # without an address it would listen on all of the machine's
                worker_dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                worker_class=_WorkerNanny,
                memory_limit=0,
                local_directory=scratch,
                silence_logs=logging.CRITICAL + 1,
            )
        except (RuntimeError, OSError, TimeoutError):
            raise ClusterFailed("the workers could not be started: is there memory for so many?") from None
    with cluster:
        if interrupted:
            raise KeyboardInterrupt
        yield cluster


@contextmanager
def joined_cluster(
    address: str,
    *,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    insecure: bool = False,
    timeout: float = 30.0,
) -> Iterator[Cluster]:
    """Join a cluster that is there, by the address of its scheduler, such as ``tls://host:8786``.

    Parameters
    ----------
    address : str
        Of the scheduler. One that begins with ``tcp://`` and is not on this machine is refused.
    ca, cert, key : path
        The certificate authority, and this process' own certificate and key (PEM), for ``tls://``.
    insecure : bool
        As in `Cluster`.
    timeout : float
        Seconds to wait for the scheduler.
    """
    security = make_security(address, ca=ca, cert=cert, key=key, insecure=insecure)
    check_listening(address, timeout)
    try:
        client = distributed.Client(address, security=security, timeout=timeout, set_as_default=False)
    except CommClosedError:
        raise ClusterFailed(
            f"the scheduler at {address} closed the connection: it has another certificate authority, or speaks TLS "
            "where the address says tcp://, or the other way round"
        ) from None
    except (OSError, ValueError) as error:
        raise ClusterFailed(f"no Dask scheduler answers at {address} ({type(error).__name__})") from None
    with client:
        yield Cluster(client, insecure=insecure)


def make_security(
    address: str, *, ca: str | Path | None, cert: str | Path | None, key: str | Path | None, insecure: bool
) -> Security | None:
    """Check how a scheduler is to be reached; what TLS needs, or None."""
    check_address(address, insecure=insecure)
    if urlsplit(address).scheme != "tls":
        return None
    if ca is None or cert is None or key is None:
        raise InvalidSetting("tls:// needs an authority, a certificate and its key: --tls-ca, --tls-cert, --tls-key")
    if missing := [str(file) for file in (ca, cert, key) if not Path(file).is_file()]:
        raise InvalidSetting(f"no such file: {', '.join(missing)}")
    try:
        ssl.create_default_context(cafile=str(ca)).load_cert_chain(str(cert), str(key))
    except (ssl.SSLError, OSError) as error:
        raise InvalidSetting(f"{ca}, {cert} and {key} are no authority, certificate and its key: {error}") from None
    files = {"tls_ca_file": str(ca), "tls_client_cert": str(cert), "tls_client_key": str(key)}
    return Security(require_encryption=True, **files)
