"""Wording: kernels in plain words. No NumPy is imported: who only looks at a vault does not wait for it."""

from collections import Counter


def describe_kernels(kernel: str) -> str:
    """Kernels for people: "gaussian kernel", "2 gaussian kernels", "gaussian and laplacian kernels"."""
    counts = Counter(kernel.split("+"))
    alike = max(counts.values()) > 1
    *first, last = [f"{count} {name}" if alike else name for name, count in counts.items()]
    names = f"{', '.join(first)} and {last}" if first else last
    return f"{names} {'kernels' if counts.total() > 1 else 'kernel'}"
