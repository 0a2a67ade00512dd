"""The service: erasure requests and predictions over HTTP, in front of one vault.

`service` carries requests out and keeps their clocks, `database` keeps what waits, and each of `protocols` speaks what
some system out there speaks. Nothing here computes a model or touches a file of the vault: `expunge.vault` does.
"""
