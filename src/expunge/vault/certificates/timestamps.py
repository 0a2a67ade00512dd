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

# MERGED der: DER, as much of it as this takes: the certificates in a timestamp, put in the order that the standard wants.
# MERGED der:
# MERGED der: A set is sorted in DER. Many authorities (all that run ``openssl ts``) send theirs unsorted, and ``rfc3161-client``
# MERGED der: refuses that. No signature covers the order, and sorting changes no length, so the bytes are only moved.


_CERTIFICATES_TAG = 0xA0  # the tag of that field in SignedData


class _DerElement(NamedTuple):
    start: int
    content: int
    end: int


def sort_certificates(response: bytes) -> bytes:
    """A timestamp response with its certificates sorted; anything else as it is."""
    try:
        _, token = _parse_children(response, _parse_children(response, _DerElement(0, 0, len(response)))[0])
        _, content = _parse_children(response, token)
        (signed,) = _parse_children(response, content)
        certificates = next(
            one for one in _parse_children(response, signed) if response[one.start] == _CERTIFICATES_TAG
        )
        found = _parse_children(response, certificates)
    except (ValueError, IndexError, StopIteration):
        return response
    moved = b"".join(sorted(response[one.start : one.end] for one in found))
    return response[: certificates.content] + moved + response[certificates.end :]


def _parse_children(data: bytes, parent: _DerElement) -> list[_DerElement]:
    """The elements within an element, which they must fill."""
    found, at = list[_DerElement](), parent.content
    while at < parent.end:
        content, size = at + 2, data[at + 1]
        if size >= 0x80:  # then it says how many bytes the length has
            content, size = content + size - 0x80, int.from_bytes(data[content : content + size - 0x80])
        if content + size > parent.end:
            raise ValueError("an element is longer than the one around it")
        found.append(_DerElement(at, content, content + size))
        at = content + size
    return found


MAX_RESPONSE_BYTES = 2**18  # of an answer: a few certificates
_MAX_ROOTS_BYTES = 2**20
_CHUNK_BYTES = 2**12
_SHA256 = x509.ObjectIdentifier("2.16.840.1.101.3.4.2.1")


def request_timestamp(url: str, data: bytes, *, timeout: float = 30.0) -> bytes:
    """Let an authority stamp data, of which it gets the SHA-256 only; returns its answer, which is of this request.

    Who signed it is not looked at: `checked` does that, with the roots that a person trusts.
    """
    request = TimestampRequestBuilder().data(data).hash_algorithm(HashAlgorithm.SHA256).build()
    answer, who = _post_request(url, request.as_bytes(), timeout)
    try:
        response = _decode_response(answer)
        status = response.status
        if status != PKIStatus.GRANTED:
            raise SigningFailed(f"{who} refused: status {status}, where 0 means that a timestamp was granted")
        fits = _imprint_matches(response, data) and response.tst_info.nonce == request.nonce
    except ValueError:
        raise SigningFailed(f"{who} answered with {len(answer):,} bytes that are no RFC 3161 timestamp") from None
    if not fits:
        raise SigningFailed(f"{who} answered with a timestamp of something else, or with an old one")
    return answer


def verify_timestamp(response: bytes, data: bytes, roots: Sequence[x509.Certificate]) -> datetime:
    """When data was stamped, if the stamp is of these data and an authority below one of the roots signed it; offline.

    The authority's certificates need to have been valid then, not now.
    """
    try:
        stamp = _decode_response(response)
        fits = _imprint_matches(stamp, data)
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
        return x509.load_pem_x509_certificates(files.read(path, max_bytes=_MAX_ROOTS_BYTES))
    except ValueError:
        raise InvalidFile(f"{path} holds no certificates in PEM, or a damaged one") from None


def read_timestamp(path: Path) -> bytes:
    """Read an answer that was stored."""
    return files.read(path, max_bytes=MAX_RESPONSE_BYTES)


def _decode_response(response: bytes) -> TimeStampResponse:
    return decode_timestamp_response(sort_certificates(response))


def _imprint_matches(response: TimeStampResponse, data: bytes) -> bool:
    imprint = response.tst_info.message_imprint
    return imprint.hash_algorithm == _SHA256 and imprint.message == hashlib.sha256(data).digest()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A request that is redirected would lose its body, or end at another scheme."""

    def redirect_request(self, *_: object) -> None:
        return None


def _post_request(url: str, body: bytes, timeout: float) -> tuple[bytes, str]:
    """Send a request; returns the answer, and what to call the authority."""
    who, ends, said = f"the timestamp authority at {_parse_host(url)}", time.monotonic() + timeout, b""
    headers = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
    request = urllib.request.Request(url, body, headers)  # noqa: S310 - _host takes http and https only
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout) as answer:
            while piece := answer.read1(_CHUNK_BYTES):
                said += piece
                if len(said) > MAX_RESPONSE_BYTES:
                    raise SigningFailed(f"{who} answered with more than {MAX_RESPONSE_BYTES:,} bytes")
                if time.monotonic() > ends:
                    raise TimeoutError
    except urllib.error.HTTPError as error:
        error.close()
        raise SigningFailed(f"{who} answered with HTTP status {error.code}; redirects are not followed") from None
    except (OSError, http.client.HTTPException) as error:
        raise SigningFailed(f"{who} could not be asked: {_describe_failure(error, timeout)}") from None
    return said, who


def _parse_host(url: str) -> str:
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


def _describe_failure(error: OSError | http.client.HTTPException, timeout: float) -> str:
    """What went wrong, in words."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return f"no answer within {timeout:g} seconds"
    return (cause.strerror if isinstance(cause, OSError) else None) or type(cause).__name__
