"""DER, as much of it as this takes: the certificates in a timestamp, put in the order that the standard wants.

A set is sorted in DER. Many authorities (all that run ``openssl ts``) send theirs unsorted, and ``rfc3161-client``
refuses that. No signature covers the order, and sorting changes no length, so the bytes are only moved.
"""

from typing import NamedTuple

_CERTIFICATES = 0xA0  # the tag of that field in SignedData


class _Element(NamedTuple):
    start: int
    content: int
    end: int


def with_sorted_certificates(response: bytes) -> bytes:
    """A timestamp response with its certificates sorted; anything else as it is."""
    try:
        _, token = _children(response, _children(response, _Element(0, 0, len(response)))[0])
        _, content = _children(response, token)
        (signed,) = _children(response, content)
        certificates = next(one for one in _children(response, signed) if response[one.start] == _CERTIFICATES)
        found = _children(response, certificates)
    except (ValueError, IndexError, StopIteration):
        return response
    moved = b"".join(sorted(response[one.start : one.end] for one in found))
    return response[: certificates.content] + moved + response[certificates.end :]


def _children(data: bytes, parent: _Element) -> list[_Element]:
    """The elements within an element, which they must fill."""
    found, at = list[_Element](), parent.content
    while at < parent.end:
        content, size = at + 2, data[at + 1]
        if size >= 0x80:  # then it says how many bytes the length has
            content, size = content + size - 0x80, int.from_bytes(data[content : content + size - 0x80])
        if content + size > parent.end:
            raise ValueError("an element is longer than the one around it")
        found.append(_Element(at, content, content + size))
        at = content + size
    return found
