"""The notary: says in the ledger that a request is done, signs that, and keeps count of what waits for the key."""

from pathlib import Path

from ...errors import InvalidFile
from ...saving import files
from ...saving.own import Beside
from ..disk.manifest import Manifest
from ..ledger.ledger import Ledger
from ..ledger.records import DONE, SIGNATURE, Position, Record, compose
from .keys import Keys
from .payload import payload_of


class Notary:
    """Certificates of one vault. A missing key never blocks a request: it is certified later."""

    def __init__(self, ledger: Ledger, folder: Beside, keys: Keys) -> None:
        self._ledger, self._folder, self._keys = ledger, folder, keys
        self.notes: list[str] = []
        self.waiting: list[int] = []  # requests that are done and not certified
        self.last: tuple[str | None, Path | None] = (None, None)  # the last certificate, and where it lies

    def certify(self, record: Record, manifest: Manifest, digest: str) -> None:
        """Write into the ledger that a request is done, and its certificate."""
        payload = payload_of(record, manifest, digest)
        done = compose(self._ledger.tip, {"kind": DONE, "request": record.request, "payload": payload})
        self.waiting = [*self.waiting, record.request]
        key = self._keys.signing()
        self.last = None, None
        if key is None:
            self._ledger.append(done)
            self.notes.append(f"done, not certified: {self._keys.problem}; it will be once the signing key is there")
            return
        jws = key.sign(payload)
        self.last = jws, self._export(record.request, jws)  # first: nobody exports what the ledger says is done
        self._ledger.append(done, _signature(done.end, record.request, jws))
        self.waiting.remove(record.request)
        self.sign_waiting()

    def sign_waiting(self) -> None:
        """Certify what was done while the key was away."""
        key = self._keys.signing() if self.waiting else None
        if key is None:
            return
        payloads = {r.request: r.body["payload"] for r in self._ledger.read()[0] if r.kind == DONE}
        for request in list(self.waiting):
            jws = key.sign(payloads[request])
            self._export(request, jws)
            self._ledger.append(_signature(self._ledger.tip, request, jws))
            self.waiting.remove(request)

    def path(self, request: int) -> Path:
        """Where the certificate of a request is, for people to take away; the ledger has it too."""
        return self._folder / f"{request:06}.jws"

    def _export(self, request: int, jws: str) -> Path | None:
        """Write a certificate where people can take it away."""
        path = self.path(request)
        try:
            files.make_folder(self._folder, for_group=self._folder.for_group)
            files.put(path, jws.encode() + b"\n")
        except (OSError, InvalidFile) as error:  # the ledger gets it: the request is done
            self.notes.append(f"the certificate could not be written to {self._folder}: {error}")
            return None
        return path


def _signature(after: Position, request: int, jws: str) -> Record:
    return compose(after, {"kind": SIGNATURE, "request": request, "certificate": jws})
