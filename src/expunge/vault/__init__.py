"""The vault: a trained model that lives on disk, answers erasure requests for years, and certifies them.

Its promises, and how they are kept, are in ``docs/vault.md``. It contains no mathematics: slots, coded rows, moments,
weights and digests are computed by the rooms below. Names are loaded when they are used.
"""

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .certificates.anchors import Anchor
    from .certificates.personal import PersonalReceipt, check_receipt
    from .evaluation.evaluation import Evaluation, TargetScores
    from .evaluation.scores import Score, Scores
    from .ledger.history import LoggedRequest
    from .receipts import Check, Predictions, Receipt, Status, Verdict, Written
    from .requests.naming import Holding
    from .tables.schema import Schema
    from .vault import Vault

__all__ = [
    "Anchor",
    "Check",
    "Evaluation",
    "Holding",
    "LoggedRequest",
    "PersonalReceipt",
    "Predictions",
    "Receipt",
    "Schema",
    "Score",
    "Scores",
    "Status",
    "TargetScores",
    "Vault",
    "Verdict",
    "Written",
    "check_receipt",
]

_HOMES = {
    "Anchor": "certificates.anchors",
    "Evaluation": "evaluation.evaluation",
    "TargetScores": "evaluation.evaluation",
    "Score": "evaluation.scores",
    "Scores": "evaluation.scores",
    "LoggedRequest": "ledger.history",
    "PersonalReceipt": "certificates.personal",
    "check_receipt": "certificates.personal",
    "Check": "receipts",
    "Predictions": "receipts",
    "Receipt": "receipts",
    "Status": "receipts",
    "Verdict": "receipts",
    "Written": "receipts",
    "Holding": "requests.naming",
    "Schema": "tables.schema",
    "Vault": "vault",
}

__getattr__, __dir__ = door(__name__, _HOMES)
