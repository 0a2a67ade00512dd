"""Timestamps (RFC 3161): an external authority confirms that data existed at a time. Requested online, checked offline.

``rfc3161-client``, which the extra ``timestamp`` installs, does the ASN.1, the signature and the chain of certificates.
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
from typing import NamedTuple

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

_CERTIFICATES_TAG = 0xA0  # tag of this field in SignedData


class _DerElement(NamedTuple):
    start: int
    content: int
    end: int


def sort_certificates(response: bytes) -> bytes:
    """Return a timestamp response with its certificates sorted; return anything else unchanged.

    DER requires sorted sets. Many authorities (all that run ``openssl ts``) send certificates unsorted, which
    ``rfc3161-client`` refuses. No signature covers their order, and sorting changes no length, so bytes are only moved.
    """
    try:
        _, token = _parse_children(response, _parse_children(response, _DerElement(0, 0, len(response)))[0])
        _, content = _parse_children(response, token)
        (signed,) = _parse_children(response, content)
        fields = _parse_children(response, signed)
        certificates = next(field for field in fields if response[field.start] == _CERTIFICATES_TAG)
        elements = _parse_children(response, certificates)
    except (ValueError, IndexError, StopIteration):
        return response
    sorted_bytes = b"".join(sorted(response[element.start : element.end] for element in elements))
    return response[: certificates.content] + sorted_bytes + response[certificates.end :]


def _parse_children(data: bytes, parent: _DerElement) -> list[_DerElement]:
    """Return the elements within an element, which must fill it."""
    children, start = list[_DerElement](), parent.content
    while start < parent.end:
        content, size = start + 2, data[start + 1]
        if size >= 0x80:  # then it is the number of bytes of the length
            content, size = content + size - 0x80, int.from_bytes(data[content : content + size - 0x80])
        if content + size > parent.end:
            raise ValueError("an element is longer than the one around it")
        children.append(_DerElement(start, content, content + size))
        start = content + size
    return children


MAX_RESPONSE_BYTES = 2**18  # a few certificates
_MAX_ROOTS_BYTES = 2**20
_CHUNK_BYTES = 2**12
_SHA256 = x509.ObjectIdentifier("2.16.840.1.101.3.4.2.1")


def request_timestamp(url: str, data: bytes, *, timeout: float = 30.0) -> bytes:
    """Let an authority stamp data, of which it gets only the SHA-256; return its response to this request.

    The signature is not checked here, but by `verify_timestamp`, with the roots that the user trusts.
    """
    request = TimestampRequestBuilder().data(data).hash_algorithm(HashAlgorithm.SHA256).build()
    answer, authority = _post_request(url, request.as_bytes(), timeout)
    try:
        response = _decode_response(answer)
        status = response.status
        if status != PKIStatus.GRANTED:
            raise SigningFailed(f"{authority} refused: status {status}, where 0 means that a timestamp was granted")
        matches = _imprint_matches(response, data) and response.tst_info.nonce == request.nonce
    except ValueError:
        raise SigningFailed(
            f"{authority} answered with {len(answer):,} bytes that are not an RFC 3161 timestamp"
        ) from None
    if not matches:
        raise SigningFailed(f"{authority} answered with a timestamp of other data, or with an old one")
    return answer


def verify_timestamp(response: bytes, data: bytes, roots: Sequence[x509.Certificate]) -> datetime:
    """Return when data was stamped, if the timestamp fits and an authority below one of the roots signed it; offline.

    The authority's certificates must have been valid then, not now.
    """
    try:
        stamp = _decode_response(response)
        matches = _imprint_matches(stamp, data)
    except ValueError:
        raise InvalidCertificate("this is not an RFC 3161 timestamp, or it is damaged") from None
    if not matches:
        raise InvalidCertificate("the timestamp is of other data")
    try:
        VerifierBuilder(roots=list(roots)).build().verify(stamp, hashlib.sha256(data).digest())
    except (VerificationError, ValueError):
        raise InvalidCertificate(
            "the timestamp is not signed by an authority below these roots, or its certificate was not valid then for "
            "timestamps"
        ) from None
    return stamp.tst_info.gen_time.replace(tzinfo=UTC)


def load_roots(path: Path) -> list[x509.Certificate]:
    """Read the root certificates (PEM) that the user trusts."""
    try:
        return x509.load_pem_x509_certificates(files.read(path, max_bytes=_MAX_ROOTS_BYTES))
    except ValueError:
        raise InvalidFile(f"{path} has no certificates in PEM, or a damaged one") from None


def read_timestamp(path: Path) -> bytes:
    """Read a stored timestamp response."""
    return files.read(path, max_bytes=MAX_RESPONSE_BYTES)


def _decode_response(response: bytes) -> TimeStampResponse:
    return decode_timestamp_response(sort_certificates(response))


def _imprint_matches(response: TimeStampResponse, data: bytes) -> bool:
    imprint = response.tst_info.message_imprint
    return imprint.hash_algorithm == _SHA256 and imprint.message == hashlib.sha256(data).digest()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: a redirected request would lose its body, or change its scheme."""

    def redirect_request(self, *_: object) -> None:
        return None


def _post_request(url: str, body: bytes, timeout: float) -> tuple[bytes, str]:
    """Send a request; return the answer, and the name of the authority for messages."""
    authority = f"the timestamp authority at {_parse_host(url)}"
    deadline, content = time.monotonic() + timeout, b""
    headers = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
    request = urllib.request.Request(url, body, headers)  # noqa: S310 - _parse_host takes http and https only
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout) as answer:
            while piece := answer.read1(_CHUNK_BYTES):
                content += piece
                if len(content) > MAX_RESPONSE_BYTES:
                    raise SigningFailed(f"{authority} answered with more than {MAX_RESPONSE_BYTES:,} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError
    except urllib.error.HTTPError as error:
        error.close()
        raise SigningFailed(f"{authority} answered with HTTP status {error.code}; redirects are not followed") from None
    except (OSError, http.client.HTTPException) as error:
        raise SigningFailed(f"{authority} could not be reached: {_describe_failure(error, timeout)}") from None
    return content, authority


def _parse_host(url: str) -> str:
    """Return the host of an address; refuse an address with a user name or password, which would not be sent."""
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


def _describe_failure(error: OSError | http.client.HTTPException, timeout: float) -> str:
    """Describe a failed request."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return f"no answer within {timeout:g} seconds"
    return (cause.strerror if isinstance(cause, OSError) else None) or type(cause).__name__
