"""Versions: what this installation consists of, to be put into a report of a problem."""

import sys

from .exact.native import kernel_status

_PACKAGES = ("numpy", "scipy", "scikit-learn", "threadpoolctl", "pyarrow", "cryptography", "pyjwt", "pandas")


def version_line() -> str:
    """The version, and whether the native kernels are in use."""
    from . import __version__

    return f"expunge {__version__} (native kernels: {kernel_status()})"


def versions() -> dict[str, str]:
    """The versions of expunge, Python and what decides about bits, by name: two processes with the same agree."""
    from importlib import metadata

    from . import __version__

    there = {"expunge": __version__, "python": ".".join(map(str, sys.version_info[:2]))}
    for name in ("numpy", "scipy", "pyarrow"):
        try:
            there[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            there[name] = "none"
    return there


def show_versions() -> None:
    """Print the versions of expunge, Python and the packages it stands on, and whether native kernels are in use.

    Examples
    --------
    >>> show_versions()  # doctest: +ELLIPSIS
    expunge ... (native kernels: ...)
    python ...
    """
    import platform  # here, and what follows: every command asks for the version, few for these
    from importlib import metadata

    lines = [version_line(), f"python {sys.version.split()[0]}, {platform.platform()}"]
    for name in _PACKAGES:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name} is not installed")
    sys.stdout.write("\n".join(lines) + "\n")
