"""Exact integers: moments by BLAS on one thread, and the ridge solve from them."""
