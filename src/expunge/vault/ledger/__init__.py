"""The ledger: which requests were accepted, in order, for ever.

Each record has a hash over the one before. The ledger's lock is the vault's.
"""
