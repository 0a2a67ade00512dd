"""Traces: what a vault's state could leave on a disk, in many forms, and the search for it.

A state is an `Oracle`: rows, and the model that they lead to.
"""

import base64
import io
import json
import zipfile
from functools import cache

import numpy as np


def number_forms(value):
    """A number as bytes and as text."""
    for form in ("<f8", ">f8", "<f4", ">f4"):
        yield form, np.array(value, dtype=form).tobytes()
    yield from text_forms(repr(value)[:12])  # the beginning is enough, however many digits were written
    if float(value).is_integer() and abs(value) > 2**24:
        yield from whole_forms(int(value))


def whole_forms(value):
    for form in ("<i8", ">i8") if abs(value) >= 2**31 else ("<i8", ">i8", "<i4", ">i4"):
        yield form, np.array(value, dtype=form).tobytes()
    yield from text_forms(str(value))


def text_forms(text):
    for form in ("utf-8", "utf-16-le", "utf-16-be"):
        yield form, text.encode(form)


def hash_forms(hexadecimal):
    yield "hex", hexadecimal.encode()
    yield "raw", bytes.fromhex(hexadecimal)


def windows(old, new):
    """Every 64 bytes of old limbs that the new ones have not in the same place: the difference *is* the row."""
    old, new = (moments.integers.ravel().astype("<i8") for moments in (old, new))
    for k in range(len(old) - 7):
        if not np.array_equal(old[k : k + 8], new[k : k + 8]) and np.count_nonzero(old[k : k + 8]) > 3:
            yield old[k : k + 8].tobytes()


def row_traces(oracle):
    """Of all rows: their values, as they are, scaled, and as the integers that are learned."""
    rows = np.array(oracle.values())
    encoder = oracle.ensemble.encoder
    for value in rows.ravel().tolist():
        yield from ((f"value {form}", data) for form, data in number_forms(value))
    X, y = rows[:, :2], rows[:, 2:]
    scaled = np.column_stack([encoder.scales.scale(X, encoder.inputs), encoder.targets.scale(y)])
    for value in scaled[(scaled != 0.0) & (scaled != 1.0)].tolist():
        yield from ((f"scaled {form}", data) for form, data in number_forms(value))
    yield from integer_traces("row as integers", encoder.integers(X, y))


def state_traces(oracle):
    """Of what was learned: coded rows, weights, moments, fingerprints of learners and of all."""
    ensemble = oracle.ensemble
    for j, (moments, weights) in enumerate(zip(ensemble.states, ensemble.models, strict=True)):
        for block in ensemble.store.shard(ensemble.encoder, j):
            yield from integer_traces("coded row", block.rows)
        for weight in weights.ravel().tolist():
            yield from ((f"weight {form}", np.array(weight, dtype=form).tobytes()) for form in ("<f8", ">f8", "<f4"))
        for limb in moments.integers.ravel().astype("<i8"):
            if len(set(limb.tobytes())) > 4:  # a small or round number may be anything
                yield "limb", limb.tobytes()
                yield "limb <f8", limb.astype("<f8").tobytes()
        yield from ((f"learner {form}", data) for form, data in hash_forms(ensemble.fingerprint(j).hex()))
    yield from ((f"digest {form}", data) for form, data in hash_forms(ensemble.digest()))


def integer_traces(name, Z):
    for value in Z[np.abs(Z) > 2**20].tolist():
        for form in ("<i8", ">i8", "<f8", ">f8"):
            yield f"{name} {form}", np.array(value, dtype=form).tobytes()


@cache
def traces(oracle):
    """Everything that a state could leave, by its bytes."""
    return {data: name for name, data in (*row_traces(oracle), *state_traces(oracle))} if oracle.rows else {}


@cache
def gone(old, new):
    """The traces of an old state that are not also those of the new one."""
    mine = {data: name for data, name in traces(old).items() if data not in traces(new)}
    if old.rows and new.rows:
        pairs = zip(old.ensemble.states, new.ensemble.states, strict=False)  # another plan has other learners
        pairs = [(a, b) for a, b in pairs if a.limbs.shape == b.limbs.shape]
        mine |= {window: "moments" for pair in pairs for window in windows(*pair)}
    return mine


def id_traces(*oracles):
    """Ids in clear, which are nowhere, whoever is in the vault."""
    ids = {one for oracle in oracles for one in (*oracle.rows, *oracle.erased)}
    return {data: f"id {form}" for one in ids for form, data in whole_forms(one)}


def contents(root):
    """All bytes below a folder, by name; what is packed is there unpacked, too."""
    found = {}
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        found[str(path.relative_to(root))] = data = path.read_bytes()
        if zipfile.is_zipfile(io.BytesIO(data)):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                found |= {f"{path.name}:{name}": archive.read(name) for name in archive.namelist()}
        if path.suffix == ".jws":
            found[f"{path.name}:payload"] = base64.urlsafe_b64decode(data.split(b".")[1] + b"==")
        if path.suffix == ".ledger":
            parts = [json.loads(line) for line in data.splitlines() if line.endswith(b"}")]
            found[f"{path.name}:payloads"] = "\n".join(part.get("payload", "") for part in parts).encode()
    return found


def survivors(root, wanted):
    """Which of these traces there are, and where."""
    files = contents(root)
    blob = b"\0\xff\0".join(files.values())
    there = [data for data in wanted if data in blob]
    return {f"{wanted[data]} in {name}" for data in there for name, held in files.items() if data in held}
