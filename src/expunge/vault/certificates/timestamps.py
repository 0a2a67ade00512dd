"""Timestamps (RFC 3161): an authority outside says that a text existed at a time. Asked for online, checked offline.

The ASN.1, the signature and the chain of certificates are the work of ``rfc3161-client``, which the extra
``timestamp`` brings.
"""

import hashlib
import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from rfc3161_client import (
    HashAlgorithm,
    TimestampRequestBuilder,
    TimeStampResponse,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)
from rfc3161_client.tsp import PKIStatus

from ...errors import InvalidCertificate, InvalidFile, InvalidSetting, SigningFailed
from ...saving import files
from .der import with_sorted_certificates

MOST_BYTES = 2**18  # of an answer: a few certificates
_MOST_ROOTS = 2**20
_PIECE = 2**12
_SHA256 = x509.ObjectIdentifier("2.16.840.1.101.3.4.2.1")


def ask(url: str, data: bytes, *, wait: float = 30.0) -> bytes:
    """Let an authority stamp data, of which it gets the SHA-256 only; returns its answer, which is of this request.

    Who signed it is not looked at: `checked` does that, with the roots that a person trusts.
    """
    request = TimestampRequestBuilder().data(data).hash_algorithm(HashAlgorithm.SHA256).build()
    answer, who = _posted(url, request.as_bytes(), wait)
    try:
        response = _decoded(answer)
        status = response.status
        if status != PKIStatus.GRANTED:
            raise SigningFailed(f"{who} refused: status {status}, where 0 means that a timestamp was granted")
        fits = _imprint_fits(response, data) and response.tst_info.nonce == request.nonce
    except ValueError:
        raise SigningFailed(f"{who} answered with {len(answer):,} bytes that are no RFC 3161 timestamp") from None
    if not fits:
        raise SigningFailed(f"{who} answered with a timestamp of something else, or with an old one")
    return answer


def checked(response: bytes, data: bytes, roots: Sequence[x509.Certificate]) -> datetime:
    """When data was stamped, if the stamp is of these data and an authority below one of the roots signed it; offline.

    The authority's certificates need to have been valid then, not now.
    """
    try:
        stamp = _decoded(response)
        fits = _imprint_fits(stamp, data)
    except ValueError:
        raise InvalidCertificate("this is not an RFC 3161 timestamp, or it is damaged") from None
    if not fits:
        raise InvalidCertificate("the timestamp is of something else")
    try:
        VerifierBuilder(roots=list(roots)).build().verify(stamp, hashlib.sha256(data).digest())
    except (VerificationError, ValueError):
        raise InvalidCertificate(
            "the timestamp is not signed by an authority below these roots, or its certificate was not valid then for "
            "timestamps"
        ) from None
    return stamp.tst_info.gen_time.replace(tzinfo=UTC)


def load_roots(path: Path) -> list[x509.Certificate]:
    """Read the certificates (PEM) that a person trusts."""
    try:
        return x509.load_pem_x509_certificates(files.read(path, most=_MOST_ROOTS))
    except ValueError:
        raise InvalidFile(f"{path} holds no certificates in PEM, or a damaged one") from None


def read(path: Path) -> bytes:
    """Read an answer that was stored."""
    return files.read(path, most=MOST_BYTES)


def _decoded(response: bytes) -> TimeStampResponse:
    return decode_timestamp_response(with_sorted_certificates(response))


def _imprint_fits(response: TimeStampResponse, data: bytes) -> bool:
    imprint = response.tst_info.message_imprint
    return imprint.hash_algorithm == _SHA256 and imprint.message == hashlib.sha256(data).digest()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A request that is redirected would lose its body, or end at another scheme."""

    def redirect_request(self, *_: object) -> None:
        return None


def _posted(url: str, body: bytes, wait: float) -> tuple[bytes, str]:
    """Send a request; returns the answer, and what to call the authority."""
    who, ends, said = f"the timestamp authority at {_host(url)}", time.monotonic() + wait, b""
    headers = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
    request = urllib.request.Request(url, body, headers)  # noqa: S310 - _host takes http and https only
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=wait) as answer:
            while piece := answer.read1(_PIECE):
                said += piece
                if len(said) > MOST_BYTES:
                    raise SigningFailed(f"{who} answered with more than {MOST_BYTES:,} bytes")
                if time.monotonic() > ends:
                    raise TimeoutError
    except urllib.error.HTTPError as error:
        error.close()
        raise SigningFailed(f"{who} answered with HTTP status {error.code}; redirects are not followed") from None
    except (OSError, http.client.HTTPException) as error:
        raise SigningFailed(f"{who} could not be asked: {_reason(error, wait)}") from None
    return said, who


def _host(url: str) -> str:
    """The host in an address, if it can be asked at all; a name and password in it would not be sent."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = (
            parts.hostname
            if "@" not in parts.netloc and url.isascii() and url.isprintable() and " " not in url
            else None
        )
        _ = parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https"):
        raise InvalidSetting("a timestamp authority needs an address like http://host/path or https://host/path")
    return host


def _reason(error: OSError | http.client.HTTPException, wait: float) -> str:
    """What went wrong, in words."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return f"no answer within {wait:g} seconds"
    return (cause.strerror if isinstance(cause, OSError) else None) or type(cause).__name__
