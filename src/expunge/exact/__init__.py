"""Exact integers: moments of coded rows by BLAS on one thread, and the ridge solve from them.

A row that was added and is subtracted again leaves no trace.
"""
