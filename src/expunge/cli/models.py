"""Models on the command line: the options that shape one, and the settings that they come to."""

import math
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .arguments import Parser, whole

if TYPE_CHECKING:
    from ..encoding.features import FeatureMap
    from ..learning.settings import Settings

_SHAPE = ("shards", "rate", "features", "alpha")  # with none of these given the model is planned
_FOURIER = "kernel=NAME, scale=NUMBER, linear and order=NUMBER"


class Features(NamedTuple):
    """A feature map as it is named on the command line."""

    name: str
    size: int
    options: dict[str, Any]

    def map(self) -> "FeatureMap | None":
        """The feature map; None is identity."""
        from ..encoding.features import PowersMap
        from ..encoding.fourier import RandomFourierMap

        if self.name == "fourier":
            return RandomFourierMap(self.size, **self.options)
        return PowersMap(self.size) if self.name == "powers" else None


def add_model(added: Parser) -> None:
    """The options that shape a model."""
    added.add_argument(
        "--shards", metavar="S", type=whole(1), help="Lanes, s: the rows of a coded stripe (default: 5)."
    )
    added.add_argument(
        "--rate",
        metavar="TAU",
        type=float,
        help="Rows per coded row, tau; there are shards / rate learners (default: 5).",
    )
    added.add_argument(
        "--features",
        metavar="MAP",
        type=features,
        help=f"fourier:D, powers:D or identity (default: identity). After fourier:D, with commas: {_FOURIER}.",
    )
    added.add_argument("--alpha", metavar="ALPHA", type=float, help="The ridge penalty (default: 1e-3).")
    added.add_argument(
        "--plan", metavar="FILE", type=Path, help="A plan that expunge plan has made; the options above win over it."
    )
    added.add_argument(
        "--outside",
        choices=("clamp", "extrapolate"),
        help="What is predicted for rows outside the bounds: as for the nearest point inside (clamp), or what the "
        "formula gives there (default: what the plan says, else clamp).",
    )
    added.add_argument(
        "--seed",
        metavar="NUMBER",
        type=whole(0),
        help="The seed of the code, the features and the slots; default: 0 with a plan, else drawn.",
    )


def settings(args: Namespace) -> "tuple[Settings, str]":
    """The settings of the model, and what its plan promised.

    They are what the options say, with what a plan says (``--plan``) or `CodedRegressor`'s defaults beside it; if there
    is no such option, a small plan is made.
    """
    from dataclasses import replace

    from ..learning.settings import Settings
    from .planning import read_plan, small_plan

    given = {name: getattr(args, name) for name in _SHAPE if getattr(args, name) is not None}
    if "features" in given:
        given["features"] = given["features"].map()
    document, same = read_plan(args) if args.plan is not None else (None if given else small_plan(args), True)
    chosen = Settings(shards=1, rate=1) if document is None and not given else Settings()
    if document is not None:
        chosen = document.settings
    seed = {} if args.seed is None else {"random_state": args.seed}
    outside = {} if args.outside is None else {"outside": args.outside}
    made = replace(chosen, **given, **seed, **outside, clip=args.clip)
    return made, "" if document is None or not same else document.promise(made)


def features(text: str) -> Features:
    """Read ``identity``, ``powers:3`` or ``fourier:300,kernel=laplacian,scale=2,linear,order=3``."""
    first, *rest = text.split(",")
    name, _, size = first.partition(":")
    if first == "identity" and not rest:
        return Features("identity", 0, {})
    if name not in ("fourier", "powers") or not (size.isdecimal() and size.isascii() and int(size)):
        raise ArgumentTypeError(f"must be fourier:D, powers:D or identity, D at least 1, got {text!r}")
    if rest and name == "powers":
        raise ArgumentTypeError(f"powers:D has no options, got {text!r}")
    options = dict[str, Any]()
    for part in rest:
        key, value = _option(part)
        if key in options:
            raise ArgumentTypeError(f"{key} is given twice: give it once")
        options[key] = value
    return Features(name, int(size), options)


def _option(text: str) -> tuple[str, Any]:
    """Read an option of ``fourier``."""
    key, equals, value = text.partition("=")
    if key == "linear" and not equals:
        return key, True
    if key == "kernel" and value:
        return key, value
    if key == "scale":
        return key, _scale(value)
    if key == "order" and equals:
        return key, _order(value)
    raise ArgumentTypeError(f"after fourier:D there may be {_FOURIER}, got {text!r}")


def _scale(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        advice = "one per input, or a matrix, comes from a plan or from Python"
        raise ArgumentTypeError(f"scale must be a number above 0, got {text!r}; {advice}")
    return number


def _order(text: str) -> int:
    try:
        return whole(1)(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"order {error}") from None
