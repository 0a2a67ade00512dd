"""Learners, their ensemble and its digest; what a fit draws, and the state that it leads to."""
