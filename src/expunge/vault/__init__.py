"""The vault: a trained model that lives on disk, answers erasure requests for years, and certifies them.

Its promises, and how they are kept, are in ``docs/vault.md``. It contains no mathematics: slots, coded rows, moments,
weights and digests are computed by the rooms below.
"""

from .ledger.history import LoggedRequest
from .receipts import Check, Receipt, Status, Verdict
from .requests.naming import Holding
from .tables.schema import Schema
from .vault import Vault

__all__ = ["Check", "Holding", "LoggedRequest", "Receipt", "Schema", "Status", "Vault", "Verdict"]
