"""The vault: a trained model that lives on disk, answers erasure requests for years, and certifies them.

Its promises, and how they are kept, are in ``docs/vault.md``. It contains no mathematics: slots, coded rows, moments,
weights and digests are computed by the rooms below. Names are loaded when they are used.
"""

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .backup import Backup
    from .certificates.anchors import Anchor
    from .certificates.personal import PersonalReceipt, check_receipt
    from .evaluation.evaluation import Evaluation, TargetScores
    from .evaluation.scores import Score, Scores
    from .ledger.history import LoggedCaller, LoggedRequest
    from .receipts import Check, PersonOutcome, Predictions, Receipt, Status, Verdict, Written
    from .requests.caller import Caller, Erasure
    from .requests.naming import Holding
    from .restoration import Restored
    from .tables.schema import Schema
    from .vault import Vault

__all__ = [
    "Anchor",
    "Backup",
    "Caller",
    "Check",
    "Erasure",
    "Evaluation",
    "Holding",
    "LoggedCaller",
    "LoggedRequest",
    "PersonOutcome",
    "PersonalReceipt",
    "Predictions",
    "Receipt",
    "Restored",
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
    "Backup": "backup",
    "Evaluation": "evaluation.evaluation",
    "TargetScores": "evaluation.evaluation",
    "Score": "evaluation.scores",
    "Scores": "evaluation.scores",
    "LoggedCaller": "ledger.history",
    "LoggedRequest": "ledger.history",
    "PersonalReceipt": "certificates.personal",
    "check_receipt": "certificates.personal",
    "Check": "receipts",
    "PersonOutcome": "receipts",
    "Predictions": "receipts",
    "Receipt": "receipts",
    "Status": "receipts",
    "Verdict": "receipts",
    "Written": "receipts",
    "Caller": "requests.caller",
    "Erasure": "requests.caller",
    "Holding": "requests.naming",
    "Restored": "restoration",
    "Schema": "tables.schema",
    "Vault": "vault",
}

__getattr__, __dir__ = door(__name__, _HOMES)
