"""The digest: one hash of everything that predictions follow from, the same on every machine."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..encoding.encoder import Encoder
from ..stores.bits import Live, hash_of_slots

DIGEST_VERSION = 5


def digest(encoder: Encoder, described: dict[str, Any], live: Live, fingerprints: Sequence[bytes]) -> str:
    """SHA-256 over the public parameters, the slots in use and each learner's fingerprint: 64 hex characters.

    ``described`` is what is public of aggregate and rule, as plain JSON values.
    """
    if (known := _known.get(encoder)) is None:
        arrays = [f"{array.dtype.str}{array.shape}".encode() + array.tobytes() for array in _public_arrays(encoder)]
        known = _known[encoder] = _public_values(encoder), b"".join(map(_hash, arrays))
    values, arrays_hashed = known
    header = json.dumps(values | described, sort_keys=True).encode()
    # A hash per part: no byte can move from one to the next.
    return _hash(b"".join([_hash(header), arrays_hashed, hash_of_slots(live), *map(_hash, fingerprints)])).hex()


def _hash(part: bytes) -> bytes:
    return hashlib.sha256(part).digest()


# What is public of an encoder, and the hashes of its arrays, as long as it is in use.
_known: WeakKeyDictionary[Encoder, tuple[dict[str, Any], bytes]] = WeakKeyDictionary()


def _public_values(encoder: Encoder) -> dict[str, Any]:
    return {
        "version": DIGEST_VERSION,
        "bits": encoder.bits,
        "intercept": encoder.intercept,
        "unit": [encoder.inputs.unit, encoder.targets.unit],
        "features": encoder.features.describe(),
        "scales": encoder.scales.spec(),
        "target_scales": encoder.target_scales.spec(),
        "outside": encoder.outside,
    }


def _public_arrays(encoder: Encoder) -> list[NDArray[Any]]:
    bounds = (encoder.inputs.low, encoder.inputs.high, encoder.targets.low, encoder.targets.high)
    drawn = [array for _, array in sorted(encoder.features.arrays().items())]
    return [
        np.ascontiguousarray(encoder.code.G, dtype="<i8"),
        *(np.ascontiguousarray(array, dtype="<i8") for array in drawn),
        *(np.ascontiguousarray(side, dtype="<f8") for side in bounds),
    ]
