"""Similar ids: how else the id of somebody who is not known may be written.

A spreadsheet writes 4713 as 4713.0 and loses the zeros of 0004715, a form adds quotes, a person types another case. The
vault has hashes of ids only, and no index by which it could search for similar ones; so the id that was asked for is
changed in the ways in which ids are usually mistaken, and each result is looked up.
"""

import re
import unicodedata
from collections.abc import Iterator

from .ids import id_bytes

MOST = 32  # variants of one id
_LONGEST = 200  # characters: longer ids are no slips of a keyboard

_PAIRS = dict(
    zip("\"'`([{<\u201c\u2018\u201e\u201a\u00ab\u2039", "\"'`)]}>\u201d\u2019\u201c\u2018\u00bb\u203a", strict=True)
)
_NUMBER = re.compile(r"([+-]?)(0*)([0-9]+)(\.0*)?")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}([ ,.'_\u2019])[0-9]{3}(\1[0-9]{3})*")
_HEX = re.compile(r"[0-9A-Fa-f]{32}")
_ODD_DASH = re.compile(r"[\u2010-\u2015\u2212\ufe58\ufe63\uff0d\u00ad]")
_WIDEST = 12  # digits of a number that was filled with zeros


def similar_ids(known: bytes, *, fold_case: bool) -> list[bytes]:
    """Return other ids, in a vault's one form, that may have been meant by this one: at most `MOST`.

    Parameters
    ----------
    known : bytes
        An id as `id_bytes` gives it.
    fold_case : bool
        Whether ids that differ only in case are the same anyway.
    """
    text = known.decode()
    if len(text) > _LONGEST:
        return []
    found = dict[bytes, None]()
    for variant in _variants(text):
        if variant.strip():
            found.setdefault(id_bytes(variant, fold_case=fold_case)[0])
        if len(found) > MOST:
            break
    return [variant for variant in found if variant != known][:MOST]


def _variants(text: str) -> Iterator[str]:
    bare = _bare(text)
    plain = _plain(bare)
    for base in dict.fromkeys((plain, bare, text)):
        yield base
        yield from _numbers(base)
        yield from _uuids(base)
        yield from (base.lower(), base.upper(), base.casefold(), base.title(), base[:1].upper() + base[1:].lower())
        yield base.replace(" ", "")


def _bare(text: str) -> str:
    """Return a text without quotes, brackets and marks of lists around it."""
    while True:
        inner = text.strip().strip(",;").strip()
        inner = inner.removeprefix("'") if inner.count("'") == 1 else inner  # as spreadsheets mark text
        if len(inner) > 2 and _PAIRS.get(inner[0]) == inner[-1]:
            inner = inner[1:-1]
        if inner == text:
            return text
        text = inner


def _plain(text: str) -> str:
    """Return a text in Unicode's form NFKC, with plain dashes and without characters that do not show."""
    text = _ODD_DASH.sub("-", unicodedata.normalize("NFKC", text.replace("\u00ad", "")))
    return "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Cc")).strip()


def _numbers(text: str) -> Iterator[str]:
    """Yield a whole number as others write it: without sign, zeros and thousands marks, or filled with zeros."""
    forms = [text, re.sub(r"[^0-9+-]", "", text)] if _GROUPED.fullmatch(text) else [text]
    numbers = [("-" if parts[1] == "-" else "") + parts[3] for parts in map(_NUMBER.fullmatch, forms) if parts]
    for number in numbers:
        yield number
        yield f"{number}.0"
    for number in numbers:
        yield from (number.zfill(width) for width in range(len(number) + 1, _WIDEST + 1) if number[0] != "-")


def _uuids(text: str) -> Iterator[str]:
    """Yield a UUID with dashes in their places, and without."""
    digits = text.lower().removeprefix("urn:uuid:").replace("-", "")
    if _HEX.fullmatch(digits):
        dashed = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        yield from (dashed, dashed.upper(), digits, digits.upper())
