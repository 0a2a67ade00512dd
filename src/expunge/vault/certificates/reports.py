"""Reports: what an audit of a vault found and when, signed, for people who cannot run it themselves."""

from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InvalidSetting
from ...saving import files
from ...saving.drafts import drafted
from ..ledger.records import Position
from ..receipts import Verdict
from . import jws
from .notary import now
from .payload import SOFTWARE, statement

if TYPE_CHECKING:
    from .signers import Signer


def sign_report(vault: str, request: int, end: Position, verdict: Verdict, actor: str, signer: "Signer") -> str:
    """The report of a verdict on a vault as of a request, whose ledger ended at a position."""
    fields = {
        "ok": verdict.ok,
        "checks": [vars(check) for check in verdict.checks],
        "milliseconds": round(1e3 * verdict.seconds),
        "head": end.hash,
        "software": SOFTWARE,
        **({"actor": actor} if actor else {}),
    }
    return signer.sign(statement(vault, request, now(), fields), jws.REPORT)


def check_new(path: Path) -> None:
    """Refuse a path where a report cannot be written; one that is there is somebody's evidence."""
    if path.is_symlink() or path.exists():
        raise InvalidSetting(f"{path} exists already, and a report is not overwritten: name another file")
    if not path.parent.is_dir():
        raise InvalidSetting(f"there is no folder {path.parent} for the report")


def write_report(path: Path, report: str) -> None:
    """Write a report for others to read, in one step."""
    check_new(path)
    with drafted(path, shared=True) as new:
        files.write_all(new.fd, report.encode() + b"\n", 0)
        new.commit()
