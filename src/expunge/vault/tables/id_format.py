"""Id formats: what the ids of a vault look like, as a schema may declare it.

Ids of another form are refused wherever they come in, so that a list of something else (line numbers, e-mail addresses,
ids that a spreadsheet changed) is an error and not a list of people whom nobody knows.
"""

import re
from collections.abc import Sequence

from ...errors import InvalidSetting

_ATOM = rb'[^\x00-\x20\x7f@"(),:;<>\[\\\]]+'
_NAMED = {
    "integer": re.compile(rb"0|-?[1-9][0-9]*"),
    "uuid": re.compile(rb"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
    "email": re.compile(_ATOM + rb"@" + _ATOM),
}
_WORDS = {"integer": "whole numbers like 4711", "uuid": "UUIDs", "email": "e-mail addresses"}
_LONGEST = 1000  # characters of an expression

NAMES: tuple[str, ...] = tuple(_NAMED)


def check_format(text: object) -> None:
    """Refuse what is neither a format's name nor a regular expression in ^ and $."""
    if text in NAMES:
        return
    if not isinstance(text, str) or not (text.startswith("^") and text.endswith("$") and len(text) <= _LONGEST):
        names = ", ".join(f'"{name}"' for name in NAMES)
        expression = 'a regular expression that begins with ^ and ends with $, like "^C-[0-9]{6}$"'
        raise InvalidSetting(f"id_format must be {names}, or {expression}")


def describe_format(text: str) -> str:
    """Return what ids of this format are called in an error."""
    return _WORDS.get(text, "of the form that the schema's id_format gives")


def find_misfits(text: str, ids: Sequence[bytes], *, fold_case: bool) -> list[int]:
    """Return the places of the ids, in their one form, that are not of this format.

    An expression is RE2's, whose time grows with the length of an id and not faster, whoever sends the id. With
    ``fold_case`` it does not look at the case of letters either.
    """
    named = _NAMED.get(text)
    if named is not None:
        return [k for k, one in enumerate(ids) if not named.fullmatch(one)]
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        column = pa.array(ids, pa.large_string())
        fitting = pc.match_substring_regex(column, f"^(?:{text})$", ignore_case=fold_case)
    except pa.ArrowInvalid:
        raise InvalidSetting("id_format is not a regular expression as RE2 has them") from None
    return [k for k, fits in enumerate(fitting.to_pylist()) if not fits]


def fitting_formats(ids: Sequence[bytes], names: Sequence[str]) -> tuple[str, ...]:
    """Return those of the named formats that all of these ids have."""
    return tuple(name for name in names if all(map(_NAMED[name].fullmatch, ids)))
