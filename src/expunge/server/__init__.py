"""The service: erasure requests and predictions over HTTP, in front of one vault.

`service` accepts requests and carries them out when they are due; `queue` and `database` store them until then. Each
module of `protocols` speaks one system's protocol, `pages` is the dashboard, and `process` runs it all. Nothing here
computes a model or touches a file of the vault: `expunge.vault` does.
"""
