"""Fuzzing: files that were changed byte by byte or value by value, for readers that must refuse them in plain words."""

import io
import json
import random
import zipfile

import numpy as np

from expunge.saving.archive import array_parts

ODD = [None, True, False, 0, 1, -1, 2, 3, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400]
ODD += [0.5, -0.0, 1e308, -1e308, float("inf"), float("-inf"), float("nan")]
ODD += ["", "x", "inf", "nan", "../x", "a/b", "\0", "\ud800", "1970-01-01", "0001-01-01", "9999-12-31T23:59:59.999999"]
ODD += ["manifest.1", "rows.1", "00" * 32, "0g" * 32]
ODD += [[], [None], [[]], [0], ["x"], ["x", "x"], {}, {"x": 1}, {"kind": "number"}, [[[[[[]]]]]]]


def flipped(rng: random.Random, data: bytes) -> bytes:
    """The same bytes with some of them changed, cut, doubled or put elsewhere."""
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        k = rng.randrange(len(made)) if made else 0
        match rng.randrange(8):
            case 0 | 1 if made:
                made[k] ^= 1 << rng.randrange(8)
            case 2 if made:
                made[k] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            case 3:
                made[k : k + 8] = rng.choice([b"\xff" * 8, b"\0" * 8, (2**62).to_bytes(8, "little"), b"\x7f" * 8])
            case 4:
                made[k : k + 4] = rng.choice([b"\xff\xff\xff\x7f", b"\xff" * 4, b"\0\0\0\x80", b"\0" * 4])
            case 5:
                del made[k : k + rng.choice([1, 2, 8, 64])]
            case 6:
                made[k:k] = made[k : k + rng.choice([1, 2, 8, 64])]
            case _:
                del made[k + 1 :]
    return bytes(made)


def _places(value, path=()):
    """Where the values of a JSON document are."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _places(value[key], (*path, key))


def _changed(value, path, change):
    """A document with the value at a place replaced by what ``change`` makes of it, or removed."""
    if not path:
        return change(value)
    copy = value.copy()
    key, *rest = path
    if rest or change is not None:
        copy[key] = _changed(copy[key], rest, change)
    else:
        del copy[key]
    return copy


def odd_document(rng: random.Random, document):
    """The same JSON document with a few values that are odd, missing, doubled, or taken from elsewhere in it."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = list(_places(document))[1:]
        if not places:
            return document
        place = rng.choice(places)
        match rng.randrange(6):
            case 0:
                document = _changed(document, place, None)
            case 1:
                value = _at(document, rng.choice(places))
                document = _changed(document, place, lambda _, value=value: value)
            case 2:
                document = _changed(document, place, _twice)
            case _:
                odd = rng.choice(ODD)
                document = _changed(document, place, lambda _, odd=odd: odd)
    return document


def _at(value, path):
    for key in path:
        value = value[key]
    return value


def _twice(value):
    if isinstance(value, list | str):
        return value + value
    if isinstance(value, dict):
        return {**value, "more": 1}
    return [value, value] if value is None or isinstance(value, bool) else value * 2 + 1


def odd_archive(rng: random.Random, data: bytes) -> bytes:
    """A saved model with an odd header or odd arrays, and whole checksums."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(["model.json", *members])
        if name not in members:
            continue
        if name == "model.json":
            members[name] = json.dumps(odd_document(rng, json.loads(members[name]))).encode()
        elif rng.random() < 0.1:
            del members[name]
        else:
            members[name] = b"".join(array_parts(odd_array(rng, np.load(io.BytesIO(members[name])))))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


def odd_array(rng: random.Random, array):
    """An array with odd values, or of another shape."""
    array = array.copy()
    match rng.randrange(7):
        case 0 if array.ndim:
            return array[: rng.randrange(len(array) + 1)]
        case 1 if array.ndim:
            return np.concatenate([array, array])
        case 2:
            return array[..., :0]
        case 3:
            return np.zeros(array.shape, rng.choice(["<f8", "<i8", "<u8", "|b1", "<f4", ">f8", "<U3"]))
        case 4:
            return np.zeros_like(array)
    if array.size and array.dtype.kind in "iuf":
        limits = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
        odd = [limits.max, limits.min, 0, 1]
        if array.dtype.kind == "f":
            odd += [np.nan, np.inf, -np.inf, limits.tiny, -1]
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice(odd)
    elif array.size and array.dtype.kind == "b":
        array.reshape(-1)[rng.randrange(array.size)] ^= True
    return array
