"""Kernels in plain words. This module imports no NumPy, so that commands that only read a vault start fast."""

from collections import Counter


def describe_kernels(kernel: str) -> str:
    """Return a phrase such as "gaussian kernel", "2 gaussian kernels" or "gaussian and laplacian kernels"."""
    counts = Counter(kernel.split("+"))
    alike = max(counts.values()) > 1
    *first, last = [f"{count} {name}" if alike else name for name, count in counts.items()]
    names = f"{', '.join(first)} and {last}" if first else last
    return f"{names} {'kernels' if counts.total() > 1 else 'kernel'}"
