"""The vault: a trained model that lives on disk, answers erasure requests for years, and certifies them.

``docs/vault.md`` describes its guarantees and how they are kept. This package contains no mathematics: slots, coded
rows, moments, weights and digests are computed by the packages below. Names are imported on first use.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import lazy_attributes

if TYPE_CHECKING:
    from ..tables.schema import Schema
    from .backup import Backup
    from .certificates.personal_receipts import PersonalReceipt, check_receipt
    from .certificates.statements import Anchor
    from .disk.manifest import Planning
    from .evaluation.evaluation import Evaluation, TargetScores
    from .evaluation.scores import Score, Scores
    from .ledger.records import LoggedCaller, LoggedRequest
    from .requests.lookup import Holding
    from .requests.replan import PreparedPlan
    from .requests.request import Caller, Erasure
    from .restoration import RestoreResult
    from .results import Check, PersonOutcome, Predictions, Receipt, Status, Verdict, WrittenPredictions
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
    "Planning",
    "Predictions",
    "PreparedPlan",
    "Receipt",
    "RestoreResult",
    "Schema",
    "Score",
    "Scores",
    "Status",
    "TargetScores",
    "Vault",
    "Verdict",
    "WrittenPredictions",
    "check_receipt",
]

_HOMES = {
    "Anchor": "certificates.statements",
    "Backup": "backup",
    "Evaluation": "evaluation.evaluation",
    "TargetScores": "evaluation.evaluation",
    "Score": "evaluation.scores",
    "Scores": "evaluation.scores",
    "LoggedCaller": "ledger.records",
    "LoggedRequest": "ledger.records",
    "PersonalReceipt": "certificates.personal_receipts",
    "check_receipt": "certificates.personal_receipts",
    "Check": "results",
    "PersonOutcome": "results",
    "Planning": "disk.manifest",
    "Predictions": "results",
    "Receipt": "results",
    "Status": "results",
    "Verdict": "results",
    "WrittenPredictions": "results",
    "Caller": "requests.request",
    "Erasure": "requests.request",
    "Holding": "requests.lookup",
    "PreparedPlan": "requests.replan",
    "RestoreResult": "restoration",
    "Schema": ".tables.schema",
    "Vault": "vault",
}

__getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
