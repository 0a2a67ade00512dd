"""The ledger: which requests were accepted, in order, for ever."""
