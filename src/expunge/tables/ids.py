"""Ids: their normal form as bytes, their declared format, and similar ids.

Ids come from Python, NumPy or Arrow, or as lines of text. Ids from Python need no pyarrow, so that looking up one
person does not wait for it to load.

A schema may declare a format. Ids of another form are refused wherever they come in: a list of something else (line
numbers, e-mail addresses, ids that a spreadsheet changed) is then an error instead of a list of unknown people.
"""

import hashlib
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput, InvalidSetting, format_positions
from .messages import ID_NOT_UTF_8

_BLANKS = b" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"  # the ASCII characters that `str.strip` removes
_LINE = re.compile(r"[^\r\n]+")
_JSON_START = re.compile(r'\s*(\{\s*"|\[)')

_EMAIL_ATOM = rb'[^\x00-\x20\x7f@"(),:;<>\[\\\]]+'
_NAMED_FORMATS = {
    "integer": re.compile(rb"0|-?[1-9][0-9]*"),
    "uuid": re.compile(rb"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
    "email": re.compile(_EMAIL_ATOM + rb"@" + _EMAIL_ATOM),
}
_FORMAT_DESCRIPTIONS = {"integer": "whole numbers like 4711", "uuid": "UUIDs", "email": "e-mail addresses"}
_MAX_EXPRESSION_LENGTH = 1000  # characters

ID_FORMAT_NAMES: tuple[str, ...] = tuple(_NAMED_FORMATS)

MAX_SIMILAR_IDS = 32  # variants of one id
_MAX_SIMILAR_LENGTH = 200  # characters; longer ids are rarely typed by hand
_MAX_PADDED_DIGITS = 12  # digits of a number padded with zeros
_BRACKET_PAIRS = dict(
    zip("\"'`([{<\u201c\u2018\u201e\u201a\u00ab\u2039", "\"'`)]}>\u201d\u2019\u201c\u2018\u00bb\u203a", strict=True)
)
_NUMBER = re.compile(r"([+-]?)(0*)([0-9]+)(\.0*)?")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}([ ,.'_\u2019])[0-9]{3}(\1[0-9]{3})*")
_HEX = re.compile(r"[0-9A-Fa-f]{32}")
_ODD_DASH = re.compile(r"[\u2010-\u2015\u2212\ufe58\ufe63\uff0d\u00ad]")


def check_id_format(id_format: object) -> None:
    """Refuse a value that is neither the name of a format nor a regular expression between ^ and $."""
    if id_format in ID_FORMAT_NAMES:
        return
    if not isinstance(id_format, str) or not (
        id_format.startswith("^") and id_format.endswith("$") and len(id_format) <= _MAX_EXPRESSION_LENGTH
    ):
        names = ", ".join(f'"{name}"' for name in ID_FORMAT_NAMES)
        expression = 'a regular expression that begins with ^ and ends with $, like "^C-[0-9]{6}$"'
        raise InvalidSetting(f"id_format must be {names}, or {expression}")


def describe_id_format(id_format: str) -> str:
    """Return the words for ids of this format in an error."""
    return _FORMAT_DESCRIPTIONS.get(id_format, "of the form declared as id_format in the schema")


def find_misfits(id_format: str, ids: Sequence[bytes], *, fold_case: bool) -> list[int]:
    """Return the positions of normalised ids that do not have this format.

    Expressions are matched by RE2, in time linear in the length of an id, so that an id from outside cannot stall the
    process. With ``fold_case`` the expression ignores case.
    """
    named = _NAMED_FORMATS.get(id_format)
    if named is not None:
        return [k for k, value in enumerate(ids) if not named.fullmatch(value)]
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        column = pa.array(ids, pa.large_string())
        matches = pc.match_substring_regex(column, f"^(?:{id_format})$", ignore_case=fold_case)
    except pa.ArrowInvalid:
        raise InvalidSetting("id_format is not a regular expression in RE2 syntax") from None
    return [k for k, fits in enumerate(matches.to_pylist()) if not fits]


def find_fitting_formats(ids: Sequence[bytes], names: Sequence[str]) -> tuple[str, ...]:
    """Return the named formats that all of these ids have."""
    return tuple(name for name in names if all(map(_NAMED_FORMATS[name].fullmatch, ids)))


def id_bytes(ids: Any, *, name: str = "ids", fold_case: bool = False) -> list[bytes]:
    """Return ids in the normal form that a vault stores: without surrounding blanks, as UTF-8 in NFC.

    Texts that Unicode considers equal become one id, and a blank at the end of a cell does not make another person.

    Parameters
    ----------
    ids : str, int, or an iterable or array of these
        4711, "4711" and "4711 " are the same id.
    name : str
        The name of the ids in errors.
    fold_case : bool
        Whether ids that differ only in case are the same (``fold_case`` in a schema).
    """
    raw = encode_ids(ids, name=name)
    joined = b"".join(raw)
    if joined.isascii():
        blanks = len(joined.translate(None, _BLANKS)) < len(joined)
        normal = [value.strip(_BLANKS) for value in raw] if blanks else raw
        normal = [value.lower() for value in normal] if fold_case else normal
    else:
        form, ascii_form = (_fold_case, bytes.lower) if fold_case else (_compose, bytes)
        normal = [
            ascii_form(value.strip(_BLANKS)) if value.isascii() else _normalise_text(form, value) for value in raw
        ]
    if b"" in normal:
        empty = [k for k, value in enumerate(normal) if not value]
        raise InvalidInput(
            f"{name} that are empty or only blanks: {len(empty):,} of {len(normal):,}, {format_positions(empty)}"
        )
    return normal


def parse_id_list(text: str) -> list[str]:
    """Return the ids in a text with one id per line, stripped; empty lines are skipped."""
    refuse_json(text)
    if "\0" in text:  # most likely UTF-16
        raise InvalidInput("the ids must be in UTF-8, without zero characters")
    return [line for match in _LINE.finditer(text) if (line := match.group().strip())]


def refuse_json(text: str) -> None:
    """Refuse a JSON document where plain ids are expected: its lines would be taken for unknown people."""
    if _JSON_START.match(text):
        raise InvalidInput("expected plain ids, one per line, but this is a JSON document")


def encode_ids(ids: Any, *, name: str = "ids") -> list[bytes]:
    """Return ids as UTF-8, as written."""
    if _is_arrow(ids) or (isinstance(ids, np.ndarray) and ids.dtype.kind in "iu"):
        from .cells import encode_id_column  # loads pyarrow

        return encode_id_column(ids, name)
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        ids = [ids]
    return [_encode_id(value) for value in ids]


def hash_ids(ids: Iterable[bytes], key: bytes) -> NDArray[np.uint64]:
    """Return a keyed 64-bit hash per id, by which samples of people are drawn: (n,)."""
    digests = b"".join(hashlib.blake2b(value, digest_size=8, key=key).digest() for value in ids)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def planning_key(seed: int) -> bytes:
    """Return the key of the hashes by which a plan with this seed chooses people."""
    return hashlib.blake2b(str(seed).encode(), person=b"expunge plan").digest()


def rank_ids(ids: Iterable[bytes], seed: int) -> NDArray[np.uint64]:
    """Return the hash of each id by which a plan with this seed chooses people: (n,)."""
    return hash_ids(ids, planning_key(seed))


def sample_positions(people: NDArray[np.uint64], max_rows: int) -> NDArray[np.intp]:
    """Return the positions of the first ``max_rows`` rows in the order of their people's hashes, then of the table.

    Of one person only the first eighth of so many rows counts, so that no sample is that of a few people alone. The
    sample is a function of the people in it: it stays the same when somebody with a larger hash leaves or comes.
    """
    order = np.argsort(people, kind="stable")
    ordered = people[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])  # of each person
    rank = np.arange(len(order)) - np.repeat(first, np.diff(np.r_[first, len(order)]))
    positions: NDArray[np.intp] = order[rank < max(1, max_rows // 8)][:max_rows]
    return positions


def id_texts(ids: Any) -> list[str]:
    """Return ids as text, as written."""
    try:
        return [value.decode() for value in encode_ids(ids)]
    except UnicodeDecodeError:
        raise InvalidInput(ID_NOT_UTF_8) from None


def _is_arrow(ids: object) -> bool:
    """Return whether these ids are a pyarrow array; if pyarrow was never loaded, they cannot be."""
    if "pyarrow" not in sys.modules:
        return False
    from pyarrow import Array, ChunkedArray  # waits if another thread is still loading pyarrow

    return isinstance(ids, (Array, ChunkedArray))


def _encode_id(value: object) -> bytes:
    if isinstance(value, (str, int, np.integer)) and not isinstance(value, bool) and value != "":
        try:
            return str(value).encode()
        except UnicodeEncodeError:
            raise InvalidInput(ID_NOT_UTF_8) from None
        except ValueError:  # Python refuses to format integers of thousands of digits
            raise InvalidInput("an id that is a whole number has too many digits; give it as text") from None
    raise InvalidInput(f"an id must be non-empty text or a whole number, got {type(value).__name__}")


def _normalise_text(form: Callable[[str], str], value: bytes) -> bytes:
    try:
        return form(value.decode().strip()).encode()
    except UnicodeDecodeError:  # Arrow does not check that strings are UTF-8
        raise InvalidInput(ID_NOT_UTF_8) from None


def _compose(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _fold_case(text: str) -> str:
    """Return one form for all texts that match by Unicode's canonical caseless matching (definition D145)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


def find_similar_ids(id_value: bytes, *, fold_case: bool) -> list[bytes]:
    """Return normalised ids that an unknown id may have been meant to be, at most `MAX_SIMILAR_IDS`.

    A spreadsheet writes 4713 as 4713.0 and drops the zeros of 0004715, a form adds quotes, a person types another case.
    A vault stores only hashes of ids and cannot search for similar ones, so the id is changed in the ways in which ids
    are usually altered, and the caller looks up each result.

    Parameters
    ----------
    id_value : bytes
        An id as `id_bytes` returns it.
    fold_case : bool
        Whether ids that differ only in case are the same anyway.
    """
    text = id_value.decode()
    if len(text) > _MAX_SIMILAR_LENGTH:
        return []
    similar = dict[bytes, None]()
    for variant in _id_variants(text):
        if variant.strip():
            similar.setdefault(id_bytes(variant, fold_case=fold_case)[0])
        if len(similar) > MAX_SIMILAR_IDS:
            break
    return [variant for variant in similar if variant != id_value][:MAX_SIMILAR_IDS]


def _id_variants(text: str) -> Iterator[str]:
    bare = _strip_brackets(text)
    plain = _simplify_text(bare)
    for base in dict.fromkeys((plain, bare, text)):
        yield base
        yield from _number_variants(base)
        yield from _uuid_variants(base)
        yield from (base.lower(), base.upper(), base.casefold(), base.title(), base[:1].upper() + base[1:].lower())
        yield base.replace(" ", "")


def _strip_brackets(text: str) -> str:
    """Remove quotes, brackets and list separators around a text."""
    while True:
        inner = text.strip().strip(",;").strip()
        inner = inner.removeprefix("'") if inner.count("'") == 1 else inner  # spreadsheets mark text like this
        if len(inner) > 2 and _BRACKET_PAIRS.get(inner[0]) == inner[-1]:
            inner = inner[1:-1]
        if inner == text:
            return text
        text = inner


def _simplify_text(text: str) -> str:
    """Return a text in NFKC, with plain dashes and without invisible characters."""
    text = _ODD_DASH.sub("-", unicodedata.normalize("NFKC", text.replace("\u00ad", "")))
    return "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Cc")).strip()


def _number_variants(text: str) -> Iterator[str]:
    """Yield other spellings of a whole number: without sign, zeros and thousands separators, or padded with zeros."""
    forms = [text, re.sub(r"[^0-9+-]", "", text)] if _GROUPED.fullmatch(text) else [text]
    numbers = [("-" if parts[1] == "-" else "") + parts[3] for parts in map(_NUMBER.fullmatch, forms) if parts]
    for number in numbers:
        yield number
        yield f"{number}.0"
    for number in numbers:
        yield from (number.zfill(width) for width in range(len(number) + 1, _MAX_PADDED_DIGITS + 1) if number[0] != "-")


def _uuid_variants(text: str) -> Iterator[str]:
    """Yield a UUID with and without dashes, in both cases."""
    digits = text.lower().removeprefix("urn:uuid:").replace("-", "")
    if _HEX.fullmatch(digits):
        dashed = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        yield from (dashed, dashed.upper(), digits, digits.upper())
