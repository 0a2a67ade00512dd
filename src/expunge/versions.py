"""Versions of this package and its dependencies, for bug reports and for comparing processes."""

import sys

from .exact.native import kernel_status

_PACKAGES = ("numpy", "scipy", "scikit-learn", "threadpoolctl", "pyarrow", "cryptography", "pyjwt", "pandas")


def version_line() -> str:
    """Return the version, and whether the native kernels are in use."""
    from . import __version__

    return f"expunge {__version__} (native kernels: {kernel_status()})"


def versions() -> dict[str, str]:
    """Return the versions of expunge, Python and the packages that bits depend on: equal versions give equal bits."""
    from importlib import metadata

    from . import __version__

    installed = {"expunge": __version__, "python": ".".join(map(str, sys.version_info[:2]))}
    for name in ("numpy", "scipy", "pyarrow"):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = "none"
    return installed


def show_versions() -> None:
    """Print the versions of expunge, Python and the dependencies, and whether native kernels are in use.

    Examples
    --------
    >>> show_versions()  # doctest: +ELLIPSIS
    expunge ... (native kernels: ...)
    python ...
    """
    import platform  # here, because every command imports this module and few need these
    from importlib import metadata

    lines = [version_line(), f"python {sys.version.split()[0]}, {platform.platform()}"]
    for name in _PACKAGES:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name} is not installed")
    sys.stdout.write("\n".join(lines) + "\n")
