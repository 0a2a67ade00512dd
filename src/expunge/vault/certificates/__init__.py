"""Certificates: signed statements of what a vault did, which anyone can check offline. They name no person.

A missing key blocks no request: what was done meanwhile is certified once the key is back.
"""
