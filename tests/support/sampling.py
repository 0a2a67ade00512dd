"""How much of a product of cases is tried: a sample by `make test`, the whole or far more by `make torture`."""

from typing import Any

import pytest
from hypothesis import settings

MORE = 20  # times as many examples in torture


def examples(count: int, **more: Any) -> settings:
    """Settings of a test of Hypothesis: so many examples, always the same; in torture far more, and drawn anew."""
    tortured = not settings.default.derandomize  # that profile alone draws anew; old versions cannot tell its name
    return settings(max_examples=count * (MORE if tortured else 1), **more)


def sampled(name: str, sample: Any, whole: Any) -> pytest.MarkDecorator:
    """A parameter with two values: one that makes a sample of the cases, and one for torture that makes all."""
    return pytest.mark.parametrize(
        name, [pytest.param(sample, id="sample"), pytest.param(whole, id="whole", marks=pytest.mark.torture)]
    )
