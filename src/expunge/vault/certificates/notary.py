"""The notary: says in the ledger that a request is done, signs that, and keeps count of what waits for the key.

It signs what it has computed itself, from the records of the ledger that the folder's manifest vouches for and from the
state: never a text that lies somewhere.
"""

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ExpungeError, InvalidFile, SigningFailed
from ...saving import files
from ...saving.own import Beside
from ..disk.manifest import Manifest
from ..ledger.index import LedgerIndex
from ..ledger.ledger import Ledger
from ..ledger.records import SIGNATURE, Position, Record, compose
from .committed import check_committed
from .keyring import key_record, known_keys, thumbprint
from .keys import Keys
from .payload import certificate_payload, done_record

if TYPE_CHECKING:
    from .signers import Signer


class Notary:
    """Certificates of one vault. A missing key never blocks a request: it is certified later."""

    def __init__(self, vault: str, ledger: Ledger, index: LedgerIndex, folder: Beside, keys: Keys) -> None:
        self._vault, self._ledger, self._index, self._folder, self._keys = vault, ledger, index, folder, keys
        self.notes: list[str] = []
        self.known: tuple[str, ...] = ()  # the keys of the vault, the newest first
        self.waiting: list[int] = []  # requests that are done and not certified
        self.last: tuple[str | None, Path | None] = (None, None)  # the last certificate, and where it lies

    # Keys

    @property
    def left_behind(self) -> bool:
        """Whether somebody was stopped while a key was being changed."""
        return self._keys.left_behind()

    def signer(self) -> "Signer":
        """Who signs; what only a signature makes worth having is refused without."""
        signer = self._keys.signing(self.known)
        if signer is None:
            raise SigningFailed(f"there is nothing to sign with: {self._keys.problem}")
        return signer

    def introduction(self, given: "Signer | None" = None, *, actor: str) -> Record | None:
        """The record of another key: the one given, one that lies in its place, or a new one, and who asked for it.

        It is for the end of the ledger as it is now; None if the key signs for this vault already.
        """
        before = self._keys.former(self.known)
        key = given or self._keys.next(self.known)
        if not self.known:
            self._keys.check_unused(key.public.x)
        if key.public.x in self.known:
            return None
        previous = thumbprint(self.known[0]) if self.known else ""
        return key_record(self._vault, self._ledger.tip, now(), key, previous, before, actor)

    def adopt(self, given: "Signer | None" = None, *, actor: str) -> None:
        """Let another key sign from now on.

        If this fails and the key is among the known ones all the same, the next command goes on with it.
        """
        record = self.introduction(given, actor=actor)
        if record is not None:
            try:
                self._ledger.append(record)
            except files.SyncFailed:
                self.learn(record)  # it was written: who comes next finds it there
                raise
            self.learn(record)
        self.settle()

    def learn(self, introduction: Record) -> None:
        """Know a key that is in the ledger now."""
        self.known = known_keys(self.known, [introduction])

    def settle(self) -> None:
        """Finish or undo a change of the key that was stopped half way."""
        try:
            self._keys.export(self.known)
        except (OSError, InvalidFile) as error:  # the ledger has them
            self.notes.append(f"the public keys could not be written: {error}")
        self._keys.retire(self.known)
        self._keys.settle(self.known)  # last: a draft says that there is something to be finished

    # Certificates

    def certify(self, record: Record, manifest: Manifest, digest: str) -> None:
        """Write into the ledger that a request is done, and its certificate."""
        done = done_record(self._ledger.tip, record.request, manifest, digest)
        self.waiting = [*self.waiting, record.request]
        self.last = None, None
        jws = self._signed(certificate_payload(self._vault, record, done))
        if jws is None:
            self._ledger.append(done)
            self.notes.append(f"done, not certified: {self._keys.problem}; it will be once the signing key is there")
            return
        self.last = jws, self._export(record.request, jws)  # first: nobody exports what the ledger says is done
        self._ledger.append(done, _signature(done.end, record.request, jws))
        self.waiting.remove(record.request)
        self.sign_waiting(manifest, digest)

    def sign_waiting(self, manifest: Manifest, digest: str) -> None:
        """Certify what was done while the key was away."""
        if not self.waiting or self._keys.signing(self.known) is None:
            return
        for request, payload in self._waiting_payloads(manifest, digest).items():
            jws = self._signed(payload)
            if jws is None:
                return
            self._export(request, jws)
            self._ledger.append(_signature(self._ledger.tip, request, jws))
            self.waiting.remove(request)

    def _waiting_payloads(self, manifest: Manifest, digest: str) -> dict[int, str]:
        """What the certificates that wait have to say; before one is signed, all of it must fit."""
        # The index has verified one chain of hashes from the first record to the end, and the manifest vouches for the
        # end of it: so it vouches for every record before.
        if self._index.head[0] != self._ledger.tip:
            raise InvalidFile(f"{self._ledger.path} was changed before byte {manifest.before.offset:,}: put it back")
        records = {number: (self._index.asked(number), self._index.done(number)) for number in self.waiting}
        newest = self._index.done(manifest.request)
        if newest is None or any(asked is None or done is None for asked, done in records.values()):
            raise InvalidFile(f"{self._ledger.path} was changed: it lacks requests that wait for their certificate")
        check_committed(manifest, [newest], digest)
        return {
            number: certificate_payload(self._vault, asked, done)
            for number, (asked, done) in records.items()
            if asked is not None and done is not None
        }

    def _signed(self, payload: str) -> str | None:
        """A certificate, or None if nobody can sign it now."""
        signer = self._keys.signing(self.known)
        try:
            return None if signer is None else signer.sign(payload)
        except SigningFailed as error:
            self._keys.problem = str(error)
            return None

    def path(self, request: int) -> Path:
        """Where the certificate of a request is, for people to take away; the ledger has it too."""
        return self._folder / f"{request:06}.jws"

    def is_exported(self, request: int, certificate: str) -> bool:
        """Whether the file that people take away is there and is this certificate."""
        from . import jws

        try:
            return jws.read(self.path(request)) == certificate
        except (OSError, ExpungeError):
            return False

    def _export(self, request: int, jws: str) -> Path | None:
        """Write a certificate where people can take it away."""
        try:
            with files.holding(self._folder) as held:
                if not held:
                    files.make_folder(self._folder, for_group=self._folder.for_group)
                path = self._place(request, jws)
                files.put(path, jws.encode() + b"\n")
        except (OSError, InvalidFile) as error:  # the ledger gets it: the request is done
            self.notes.append(f"the certificate could not be written to {self._folder}: {error}")
            return None
        return path

    def _place(self, request: int, certificate: str) -> Path:
        """Where a certificate goes: in no case over one of this vault that says something else."""
        from . import jws

        path = self.path(request)
        if not os.path.lexists(path):
            return path
        try:
            there, mine = jws.unchecked(jws.read(path)), jws.unchecked(certificate)
        except (OSError, ExpungeError):
            return path
        if there == mine or there.get("iss") != mine["iss"]:
            return path
        self.notes.append(
            f"{path} is another certificate of request {request}, and stays: was an older copy of folder and ledger "
            "put back? Then people hold certificates that this ledger does not know"
        )
        return path.with_stem(f"{path.stem}-{hashlib.sha256(certificate.encode()).hexdigest()[:8]}")


def now() -> str:
    """The time, as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _signature(after: Position, request: int, jws: str) -> Record:
    return compose(after, {"kind": SIGNATURE, "request": request, "certificate": jws})
