"""Dask clusters: start, join and check them. No other module knows Dask.

Anyone who can reach a scheduler can run code on its workers. So a cluster started here has its own certificates,
listens on the loopback interface and has no dashboard; a cluster that is joined must be reached over TLS, or run on
this machine.
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
from .tasks import compare_versions
from .workers import ClusterWorkers


def check_address(address: str, *, insecure: bool) -> None:
    """Refuse a scheduler that anyone on the network could take over."""
    parts = urlsplit(address)
    if parts.scheme == "inproc":
        return
    if parts.scheme not in ("tls", "tcp", "wss", "ws") or parts.port is None:
        raise InvalidSetting(
            f"the address of a scheduler must look like tls://host:8786 or tcp://127.0.0.1:8786, got {address!r}"
        )
    if parts.scheme not in ("tls", "wss") and not insecure and not _is_loopback(parts.hostname or ""):
        raise InvalidSetting(
            f"{address} is on another machine and does not use TLS: anyone on the network could run code on the "
            "workers. Use tls://, or allow it with --insecure (Cluster(client, insecure=True))"
        )


def check_listening(address: str, timeout: float) -> None:
    """Refuse an address at which nothing listens; Dask itself would retry until its timeout."""
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname, parts.port), timeout).close()
    except OSError as error:
        raise ClusterFailed(f"no Dask scheduler answers at {address}: {error.strerror or error}") from None


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class _IsolatedStart:
    """A context in which new processes ignore Ctrl-C and do not run this process' script; it can be nested."""

    def __init__(self) -> None:
        self._depth = 0
        self._saved_main: tuple[Any, Any] = None, None

    def __enter__(self) -> None:
        main = sys.modules["__main__"]
        if not self._depth:
            self._saved_main = main.__spec__, main.__dict__.pop("__file__", None)
            main.__spec__ = None
            resource_tracker.ensure_running()  # it would unblock signals if it started later
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
    """Yield a list that is empty until Ctrl-C is pressed; the caller acts on it."""
    interrupts: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    handler = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True))
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, handler or signal.default_int_handler)


_POLL_SECONDS = 1.0  # between checks whether the cluster is still there
_WORKER_TIMEOUT = 60.0  # seconds to wait for a worker when there is none
_COMBINED_AT_ONCE = 8  # sums that are added at once
_DASK_CONFIG = {
    "distributed.worker.memory.target": False,  # nothing is spilled to disk: it may be rows
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 128 * 2**20,  # Dask's own makes our blocks slow
    "distributed.scheduler.http.routes": [],  # no pages
    "distributed.worker.http.routes": [],
    "distributed.admin.log-length": 0,
}
_CONNECTION_LOST = "the connection to the cluster was lost ({}); nothing was changed"
_CONNECTION_ERRORS = (CommClosedError, distributed.CancelledError, TimeoutError, OSError)


class Cluster:
    """A Dask client as an `Executor`.

    Parameters
    ----------
    client : distributed.Client
        A client of a cluster whose workers see the vault under the same path, and have the same versions of expunge and
        its dependencies.
    insecure : bool
        Whether a scheduler on another machine may be reached without TLS. Then anyone on the network can run code on
        the workers, and read rows.
    """

    def __init__(self, client: distributed.Client, *, insecure: bool = False) -> None:
        if not isinstance(client, distributed.Client) or client.asynchronous:
            raise InvalidSetting("client must be a synchronous distributed.Client, or a Cluster")
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
        """The interface for a vault."""
        return ClusterWorkers(self)

    def run(self, task: Callable[..., Any], calls: Sequence[tuple[Any, ...]], done: Callable[[int], None]) -> list[Any]:
        results: dict[int, Any] = {}

        def take(k: int, future: Any) -> None:
            results[k] = _get_result(future)
            future.release()  # otherwise Dask would run it again if the worker that holds the result were lost
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
        results: list[Any] = []

        def take(k: int, future: Any) -> None:
            if future.status != "finished":
                _get_result(future)  # raises the error
            future.release()  # the combining task keeps the result while it is needed
            done(k)

        with self._submit(task, calls) as futures, self._submit_combining(combine, futures) as last:
            self._wait(dict(enumerate(futures)), take)
            self._wait({0: last}, lambda _, future: results.append(_get_result(future)))
        return results[0]

    @contextmanager
    def _submit_combining(self, combine: Callable[[Sequence[Any]], Any], futures: Sequence[Any]) -> Iterator[Any]:
        """Combine results a few at a time, before others are computed, so that few of them are held at once."""
        layer, submitted = list(futures), list[Any]()
        try:
            while len(layer) > 1:
                groups = [layer[k : k + _COMBINED_AT_ONCE] for k in range(0, len(layer), _COMBINED_AT_ONCE)]
                layer = [self._client.submit(combine, group, pure=False, priority=1) for group in groups]
                submitted += layer
            yield layer[0]
        finally:
            self._release(submitted)

    def run_everywhere(self, task: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Run a task on every worker and return each result, except of workers that are lost meanwhile."""
        with _translate_errors():
            answers: dict[str, Any] = self._client.run(task, *arguments, on_error="return")
        lost = (OSError, TimeoutError)
        for answer in answers.values():
            if isinstance(answer, Exception) and not isinstance(answer, lost):
                raise answer
        return {worker: answer for worker, answer in answers.items() if not isinstance(answer, Exception)}

    @contextmanager
    def _submit(self, task: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterator[list[Any]]:
        """Submit calls, and cancel those that are unfinished at the end."""
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
        """Pass results to ``take`` as they come, and check regularly that there are workers left."""
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
            raise ClusterFailed("the connection to the Dask scheduler is lost; nothing was changed")

    def _check_workers(self) -> None:
        """Count lost workers, and give up if there has been none for too long."""
        self.check_open()
        present = self._worker_addresses()
        self.lost_count += len(self._last_workers - present)
        self._last_workers = present
        if present:
            self._no_workers_since = None
        elif self._no_workers_since is None:
            self._no_workers_since = time.monotonic()
        elif time.monotonic() - self._no_workers_since > _WORKER_TIMEOUT:
            raise ClusterFailed(f"there has been no worker for {_WORKER_TIMEOUT:.0f} seconds; nothing was changed")

    def _worker_addresses(self) -> set[str]:
        with _translate_errors():
            return set(self._client.scheduler_info(n_workers=-1)["workers"])

    def _check_versions(self) -> None:
        """Refuse workers whose versions differ from this process: they could compute different bits, or fail."""
        by_worker = self.run_everywhere(versions)
        if not by_worker:
            raise ClusterFailed("the cluster has no workers")
        for actual in by_worker.values():
            compare_versions(actual, versions())


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn connection errors of Dask into a message for the vault's user."""
    try:
        yield
    except _CONNECTION_ERRORS as error:
        raise ClusterFailed(_CONNECTION_LOST.format(type(error).__name__)) from None


def _get_result(future: Any) -> Any:
    """Return the result of a finished task, or raise its error."""
    try:
        return future.result()
    except distributed.KilledWorker:
        raise ClusterFailed(
            "a task repeatedly lost its worker: workers may have too little memory; nothing was changed"
        ) from None
    except (CommClosedError, distributed.CancelledError) as error:
        raise ClusterFailed(_CONNECTION_LOST.format(type(error).__name__)) from None


def workers_of(client: Any) -> ClusterWorkers:
    """Return the workers of a `Cluster` (or anything else with ``workers``), or of a Dask client."""
    if isinstance(client, Cluster):
        client.check_open()
    workers: ClusterWorkers = (client if hasattr(client, "workers") else Cluster(client)).workers
    return workers


class _WorkerNanny(distributed.Nanny):
    """Starts a worker, and restarts it when it dies.

    The worker has no dashboard, even if one is installed. It ignores Ctrl-C, which a terminal sends to it as well,
    because a process inherits blocked signals; the calling process ends it. It does not run the calling script again,
    as new Python processes do, because it needs nothing from it.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "dashboard": False})

    async def instantiate(self) -> Any:
        with isolated_start:
            return await super().instantiate()


@contextmanager
def own_cluster(workers: int) -> Iterator[Cluster]:
    """Start worker processes on this machine, which end with the context.

    They use TLS with temporary certificates, listen on the loopback interface, spill nothing to disk and have no
    dashboard.
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
    """Start a cluster; Ctrl-C is deferred until then, because a half-started cluster cannot be stopped cleanly."""
    with defer_interrupt() as interrupted:
        try:
            cluster = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                protocol="tls://",
                security=Security.temporary(),
                dashboard_address="127.0.0.1:0",  # without an address it would listen on all interfaces
                worker_dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                worker_class=_WorkerNanny,
                memory_limit=0,
                local_directory=scratch,
                silence_logs=logging.CRITICAL + 1,
            )
        except (RuntimeError, OSError, TimeoutError):
            raise ClusterFailed("the workers could not be started: is there enough memory?") from None
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
    """Join an existing cluster by the address of its scheduler, for example ``tls://host:8786``.

    Parameters
    ----------
    address : str
        Address of the scheduler. A ``tcp://`` address on another machine is refused.
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
            f"the scheduler at {address} closed the connection: it uses another certificate authority, or one side "
            "uses TLS and the other does not"
        ) from None
    except (OSError, ValueError) as error:
        raise ClusterFailed(f"no Dask scheduler answers at {address} ({type(error).__name__})") from None
    with client:
        yield Cluster(client, insecure=insecure)


def make_security(
    address: str, *, ca: str | Path | None, cert: str | Path | None, key: str | Path | None, insecure: bool
) -> Security | None:
    """Check the address and the TLS files; return Dask's TLS settings, or None without TLS."""
    check_address(address, insecure=insecure)
    if urlsplit(address).scheme != "tls":
        return None
    if ca is None or cert is None or key is None:
        raise InvalidSetting(
            "tls:// needs a certificate authority, a certificate and its key: --tls-ca, --tls-cert, --tls-key"
        )
    if missing := [str(file) for file in (ca, cert, key) if not Path(file).is_file()]:
        raise InvalidSetting(f"no such file: {', '.join(missing)}")
    try:
        ssl.create_default_context(cafile=str(ca)).load_cert_chain(str(cert), str(key))
    except (ssl.SSLError, OSError) as error:
        raise InvalidSetting(f"cannot use {ca} as authority with certificate {cert} and key {key}: {error}") from None
    files = {"tls_ca_file": str(ca), "tls_client_cert": str(cert), "tls_client_key": str(key)}
    return Security(require_encryption=True, **files)
