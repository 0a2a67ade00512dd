"""Types of the extension; `_native.pyx` documents each function."""

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats, Integers
from .limbs import Limbs

class Map:
    def __init__(self, turns: Floats, terms: Floats, linear: bool, unit: float) -> None: ...
    @property
    def n_out(self) -> int: ...
    def features(self, scaled: Floats) -> Floats: ...
    def coded(
        self, scaled: Floats, targets: Floats, owner: Integers, weights: Floats, m: int, ones: bool
    ) -> Floats: ...

def cosines(turns: Floats, terms: Floats) -> None: ...

class Predictor:
    def __init__(self, features: Map, weights: Floats, intercept: bool) -> None: ...
    def predict(self, scaled: Floats) -> Floats: ...

class Column:
    def __init__(
        self,
        features: Map,
        lanes: Integers,
        weights: Floats,
        inputs: Floats | None,
        targets: Floats | None,
        t: int,
        ones: bool,
    ) -> None: ...
    def relearned(
        self,
        X: Floats,
        y: Floats,
        live: NDArray[np.bool_],
        first: int,
        lane: int,
        new_X: Floats | None,
        new_y: Floats | None,
        limbs: Limbs,
        bits: int,
        alpha: float,
        large: float,
    ) -> tuple[Limbs, Floats | None, int, int]: ...
    def add(
        self,
        X: Floats,
        y: Floats,
        live: NDArray[np.bool_],
        shards: int,
        first: int,
        last: int,
        sums: Floats,
        room: Floats,
    ) -> tuple[int, int]: ...

def clear(sums: Floats) -> None: ...
def scaled(values: Floats, low: Floats, high: Floats, clamp: bool) -> Floats: ...
def unscale(values: Floats, low: Floats, high: Floats, least: Floats, most: Floats) -> None: ...
def inside(values: Floats, low: Floats, high: Floats) -> bool: ...
def finite(values: Floats) -> bool: ...
def slices(q: Floats, out: Floats) -> None: ...
def exchanged(limbs: Limbs, before: Floats, after: Floats, kind: type[np.generic]) -> Limbs: ...
def packed(sums: Floats) -> Floats: ...
def multiplies() -> bool: ...
def room(m: int, w: int) -> Floats: ...
def multiply(q: Floats, sign: float, sums: Floats, room: Floats) -> None: ...
def middle(sums: Floats) -> None: ...
def matrix(limbs: Limbs, scales: Floats, w: int) -> Floats: ...
def ridge(
    limbs: Limbs, scales: Floats, w: int, targets: int, alpha: float, intercept: bool, large: float, room: Floats | None
) -> Floats | None: ...
def shuffled(
    rounds: NDArray[np.uint64],
    kind: np.uint64,
    tweak: NDArray[np.uint64],
    size: NDArray[np.uint64],
    x: NDArray[np.uint64],
    backward: bool,
) -> NDArray[np.uint64]: ...
