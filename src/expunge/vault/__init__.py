"""The vault: a trained model that lives on disk, answers erasure requests for years, and certifies them.

Its promises, and how they are kept, are in ``docs/vault.md``. It contains no mathematics: slots, coded rows, moments,
weights and digests are the rooms' below.
"""

from .audit import Check, Verdict
from .ledger.history import Request
from .receipts import Receipt, Status
from .tables.schema import Schema
from .vault import Vault

__all__ = ["Check", "Receipt", "Request", "Schema", "Status", "Vault", "Verdict"]
