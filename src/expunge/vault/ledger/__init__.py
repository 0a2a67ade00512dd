"""The ledger: which requests were accepted, in order, forever.

Each record has a hash that covers the previous record. The lock of the ledger is the lock of the vault.
"""
