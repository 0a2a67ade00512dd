"""Addresses of schedulers: which of them may be used."""

import ipaddress
import socket
from contextlib import suppress
from urllib.parse import urlsplit

from ..errors import ClusterFailed, InvalidSetting


def check_address(address: str, *, insecure: bool) -> None:
    """Refuse a scheduler that anybody on the network could take over."""
    parts = urlsplit(address)
    if parts.scheme == "inproc":
        return
    if parts.scheme not in ("tls", "tcp", "wss", "ws") or parts.port is None:
        raise InvalidSetting(
            f"an address of a scheduler is like tls://host:8786 or tcp://127.0.0.1:8786, got {address!r}"
        )
    if parts.scheme not in ("tls", "wss") and not insecure and not _on_this_machine(parts.hostname or ""):
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


def _on_this_machine(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
