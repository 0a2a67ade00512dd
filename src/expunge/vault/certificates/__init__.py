"""Certificates: keys, signatures, and what is signed."""
