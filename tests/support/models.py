"""The inside of a fitted model: the only place where tests of models name private attributes."""

from expunge import CodedRegressor
from expunge.learning.state import ModelState
from expunge.stores.ids import IdIndex


def state_of(model: CodedRegressor) -> ModelState:
    """Return what a model has learned: blueprint, ensemble (encoder, store, states, models) and extents."""
    return model._state


def index_of(model: CodedRegressor) -> IdIndex:
    """Return the index of a model's ids."""
    return model._fitted_model.index


def weights_of(model: CodedRegressor) -> list[bytes | None]:
    """Return the bytes of each learner's weights, None for a learner without rows."""
    return [None if W is None else W.tobytes() for W in state_of(model).ensemble.models]
