"""Ids: one or many as bytes, from Python, NumPy or Arrow, or as lines of text.

Those of Python need no pyarrow: one is found at once.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import InvalidInput, InvalidSetting, format_positions
from .messages import ID_NOT_UTF_8

# Id formats: what the ids of a vault look like, as a schema may declare it.
# Ids of another form are refused wherever they come in, so that a list of something else (line numbers, e-mail
# addresses, ids that a spreadsheet changed) is an error and not a list of people whom nobody knows.


_EMAIL_ATOM = rb'[^\x00-\x20\x7f@"(),:;<>\[\\\]]+'
_NAMED_FORMATS = {
    "integer": re.compile(rb"0|-?[1-9][0-9]*"),
    "uuid": re.compile(rb"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
    "email": re.compile(_EMAIL_ATOM + rb"@" + _EMAIL_ATOM),
}
_FORMAT_DESCRIPTIONS = {"integer": "whole numbers like 4711", "uuid": "UUIDs", "email": "e-mail addresses"}
_MAX_EXPRESSION_LENGTH = 1000  # characters of an expression

ID_FORMAT_NAMES: tuple[str, ...] = tuple(_NAMED_FORMATS)


def check_id_format(id_format: object) -> None:
    """Refuse what is neither a format's name nor a regular expression in ^ and $."""
    if id_format in ID_FORMAT_NAMES:
        return
    if not isinstance(id_format, str) or not (
        id_format.startswith("^") and id_format.endswith("$") and len(id_format) <= _MAX_EXPRESSION_LENGTH
    ):
        names = ", ".join(f'"{name}"' for name in ID_FORMAT_NAMES)
        expression = 'a regular expression that begins with ^ and ends with $, like "^C-[0-9]{6}$"'
        raise InvalidSetting(f"id_format must be {names}, or {expression}")


def describe_id_format(id_format: str) -> str:
    """Return what ids of this format are called in an error."""
    return _FORMAT_DESCRIPTIONS.get(id_format, "of the form that the schema's id_format gives")


def find_misfits(id_format: str, ids: Sequence[bytes], *, fold_case: bool) -> list[int]:
    """Return the places of the ids, in their one form, that are not of this format.

    An expression is RE2's, whose time grows with the length of an id and not faster, whoever sends the id. With
    ``fold_case`` it does not look at the case of letters either.
    """
    named = _NAMED_FORMATS.get(id_format)
    if named is not None:
        return [k for k, one in enumerate(ids) if not named.fullmatch(one)]
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        column = pa.array(ids, pa.large_string())
        fitting = pc.match_substring_regex(column, f"^(?:{id_format})$", ignore_case=fold_case)
    except pa.ArrowInvalid:
        raise InvalidSetting("id_format is not a regular expression as RE2 has them") from None
    return [k for k, fits in enumerate(fitting.to_pylist()) if not fits]


def find_fitting_formats(ids: Sequence[bytes], names: Sequence[str]) -> tuple[str, ...]:
    """Return those of the named formats that all of these ids have."""
    return tuple(name for name in names if all(map(_NAMED_FORMATS[name].fullmatch, ids)))


_BLANKS = b" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"  # the blanks of ASCII, as `str.strip` knows them
_LINE_END = re.compile(r"\r\n|\n|\r")
_JSON_START = re.compile(r'\s*(\{\s*"|\[)')


def id_bytes(ids: Any, *, name: str = "ids", fold_case: bool = False) -> list[bytes]:
    """Return ids as a vault knows them: without blanks at their ends, as UTF-8 in NFC.

    So texts which Unicode calls the same are one id, and a blank at the end of a cell makes nobody else of a person.

    Parameters
    ----------
    ids : str, int or many of them
        4711, "4711" and "4711 " are the same.
    name : str
        What errors call them.
    fold_case : bool
        Whether ids that differ only in case are the same, as ``fold_case`` in a schema says.
    """
    written = encode_ids(ids, name=name)
    joined = b"".join(written)
    if joined.isascii():
        blanks = len(joined.translate(None, _BLANKS)) < len(joined)
        known = [one.strip(_BLANKS) for one in written] if blanks else written
        known = [one.lower() for one in known] if fold_case else known
    else:
        form, ascii_form = (_fold_case, bytes.lower) if fold_case else (_compose, bytes)
        known = [ascii_form(one.strip(_BLANKS)) if one.isascii() else _normalise_text(form, one) for one in written]
    if b"" in known:
        empty = [k for k, one in enumerate(known) if not one]
        raise InvalidInput(
            f"{name} that are empty or only blanks: {len(empty):,} of {len(known):,}, {format_positions(empty)}"
        )
    return known


def parse_id_list(text: str) -> list[str]:
    """Return the ids in a text with one per line, without blanks around them; empty lines do not count."""
    refuse_json(text)
    if "\0" in text:  # of UTF-16, most likely
        raise InvalidInput("the ids must be in UTF-8, without zero characters")
    return [line for line in map(str.strip, _LINE_END.split(text)) if line]


def refuse_json(text: str) -> None:
    """Refuse a JSON document in the place of plain ids: it would be taken for people whom nobody knows."""
    if _JSON_START.match(text):
        raise InvalidInput("this is a JSON document, and plain ids are expected, one per line")


def encode_ids(ids: Any, *, name: str = "ids") -> list[bytes]:
    """Return ids as UTF-8, as they are written."""
    if _is_arrow(ids) or (isinstance(ids, np.ndarray) and ids.dtype.kind in "iu"):
        from .cells import encode_id_column  # loads pyarrow

        return encode_id_column(ids, name)
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        ids = [ids]
    return [_encode_id(one) for one in ids]


def id_texts(ids: Any) -> list[str]:
    """Return ids as text, as they are written."""
    try:
        return [one.decode() for one in encode_ids(ids)]
    except UnicodeDecodeError:
        raise InvalidInput(ID_NOT_UTF_8) from None


def _is_arrow(ids: object) -> bool:
    """Return whether these are in an array of pyarrow, which cannot be if pyarrow was never loaded."""
    if "pyarrow" not in sys.modules:
        return False
    from pyarrow import Array, ChunkedArray  # waits for another thread that is still loading it

    return isinstance(ids, (Array, ChunkedArray))


def _encode_id(value: object) -> bytes:
    if isinstance(value, (str, int, np.integer)) and not isinstance(value, bool) and value != "":
        try:
            return str(value).encode()
        except UnicodeEncodeError:
            raise InvalidInput(ID_NOT_UTF_8) from None
        except ValueError:  # Python does not write numbers of thousands of digits
            raise InvalidInput("an id that is a whole number has too many digits; give it as text") from None
    raise InvalidInput(f"an id must be text that is not empty, or a whole number, got {type(value).__name__}")


def _normalise_text(form: Callable[[str], str], value: bytes) -> bytes:
    try:
        return form(value.decode().strip()).encode()
    except UnicodeDecodeError:  # Arrow does not check what others say is text
        raise InvalidInput(ID_NOT_UTF_8) from None


def _compose(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _fold_case(text: str) -> str:
    """Return the same text for all that match it by Unicode's canonical caseless matching (definition D145)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


# Similar ids: how else the id of somebody who is not known may be written.
# A spreadsheet writes 4713 as 4713.0 and loses the zeros of 0004715, a form adds quotes, a person types another case.
# The vault has hashes of ids only, and no index by which it could search for similar ones; so the id that was asked
# for is changed in the ways in which ids are usually mistaken, and each result is looked up.


MAX_SIMILAR_IDS = 32  # variants of one id
_MAX_SIMILAR_LENGTH = 200  # characters: longer ids are no slips of a keyboard

_BRACKET_PAIRS = dict(
    zip("\"'`([{<\u201c\u2018\u201e\u201a\u00ab\u2039", "\"'`)]}>\u201d\u2019\u201c\u2018\u00bb\u203a", strict=True)
)
_NUMBER = re.compile(r"([+-]?)(0*)([0-9]+)(\.0*)?")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}([ ,.'_\u2019])[0-9]{3}(\1[0-9]{3})*")
_HEX = re.compile(r"[0-9A-Fa-f]{32}")
_ODD_DASH = re.compile(r"[\u2010-\u2015\u2212\ufe58\ufe63\uff0d\u00ad]")
_MAX_PADDED_DIGITS = 12  # digits of a number that was filled with zeros


def find_similar_ids(id_value: bytes, *, fold_case: bool) -> list[bytes]:
    """Return other ids, in a vault's one form, that may have been meant by this one: at most `MOST`.

    Parameters
    ----------
    id_value : bytes
        An id as `id_bytes` gives it.
    fold_case : bool
        Whether ids that differ only in case are the same anyway.
    """
    text = id_value.decode()
    if len(text) > _MAX_SIMILAR_LENGTH:
        return []
    found = dict[bytes, None]()
    for variant in _id_variants(text):
        if variant.strip():
            found.setdefault(id_bytes(variant, fold_case=fold_case)[0])
        if len(found) > MAX_SIMILAR_IDS:
            break
    return [variant for variant in found if variant != id_value][:MAX_SIMILAR_IDS]


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
    """Return a text without quotes, brackets and marks of lists around it."""
    while True:
        inner = text.strip().strip(",;").strip()
        inner = inner.removeprefix("'") if inner.count("'") == 1 else inner  # as spreadsheets mark text
        if len(inner) > 2 and _BRACKET_PAIRS.get(inner[0]) == inner[-1]:
            inner = inner[1:-1]
        if inner == text:
            return text
        text = inner


def _simplify_text(text: str) -> str:
    """Return a text in Unicode's form NFKC, with plain dashes and without characters that do not show."""
    text = _ODD_DASH.sub("-", unicodedata.normalize("NFKC", text.replace("\u00ad", "")))
    return "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Cc")).strip()


def _number_variants(text: str) -> Iterator[str]:
    """Yield a whole number as others write it: without sign, zeros and thousands marks, or filled with zeros."""
    forms = [text, re.sub(r"[^0-9+-]", "", text)] if _GROUPED.fullmatch(text) else [text]
    numbers = [("-" if parts[1] == "-" else "") + parts[3] for parts in map(_NUMBER.fullmatch, forms) if parts]
    for number in numbers:
        yield number
        yield f"{number}.0"
    for number in numbers:
        yield from (number.zfill(width) for width in range(len(number) + 1, _MAX_PADDED_DIGITS + 1) if number[0] != "-")


def _uuid_variants(text: str) -> Iterator[str]:
    """Yield a UUID with dashes in their places, and without."""
    digits = text.lower().removeprefix("urn:uuid:").replace("-", "")
    if _HEX.fullmatch(digits):
        dashed = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        yield from (dashed, dashed.upper(), digits, digits.upper())
