"""Certificates: what a vault did, signed, for anybody to check offline; they name nobody.

A missing key blocks no request: what was done meanwhile is certified once the key is back.
"""
