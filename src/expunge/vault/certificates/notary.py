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
from ...saving.ownership import SiblingPath
from ..disk.manifest import Manifest
from ..ledger.index import LedgerIndex
from ..ledger.ledger import Ledger
from ..ledger.records import SIGNATURE, Position, Record, compose_record
from .keys import KeyStore, compose_key_record, known_keys, thumbprint
from .payload import certificate_payload, check_state_commitment, compose_done_record

if TYPE_CHECKING:
    from .signers import VaultSigner


class Notary:
    """Certificates of one vault. A missing key never blocks a request: it is certified later."""

    def __init__(self, vault: str, ledger: Ledger, index: LedgerIndex, folder: SiblingPath, keys: KeyStore) -> None:
        self._vault, self._ledger, self._index, self._folder, self._keys = vault, ledger, index, folder, keys
        self.notes: list[str] = []
        self.known_keys: tuple[str, ...] = ()  # the keys of the vault, the newest first
        self.uncertified: list[int] = []  # requests that are done and not certified
        self.last_certificate: tuple[str | None, Path | None] = (None, None)  # the last certificate, and where it lies

    # Keys

    @property
    def has_leftover_draft(self) -> bool:
        """Whether somebody was stopped while a key was being changed."""
        return self._keys.has_leftover_draft()

    def require_signer(self) -> "VaultSigner":
        """Who signs; what only a signature makes worth having is refused without."""
        signer = self._keys.find_signer(self.known_keys)
        if signer is None:
            raise SigningFailed(f"there is nothing to sign with: {self._keys.problem}")
        return signer

    def compose_introduction(self, signer: "VaultSigner | None" = None, *, actor: str) -> Record | None:
        """The record of another key: the one given, one that lies in its place, or a new one, and who asked for it.

        It is for the end of the ledger as it is now; None if the key signs for this vault already.
        """
        before = self._keys.find_previous_signer(self.known_keys)
        key = signer or self._keys.prepare_next_key(self.known_keys)
        if not self.known_keys:
            self._keys.check_public_file(key.public.x)
        if key.public.x in self.known_keys:
            return None
        previous = thumbprint(self.known_keys[0]) if self.known_keys else ""
        return compose_key_record(self._vault, self._ledger.tip, current_time(), key, previous, before, actor)

    def adopt_key(self, signer: "VaultSigner | None" = None, *, actor: str) -> None:
        """Let another key sign from now on.

        If this fails and the key is among the known ones all the same, the next command goes on with it.
        """
        record = self.compose_introduction(signer, actor=actor)
        if record is not None:
            try:
                self._ledger.append(record)
            except files.SyncFailed:
                self.add_known_key(record)  # it was written: who comes next finds it there
                raise
            self.add_known_key(record)
        self.finish_key_change()

    def add_known_key(self, introduction: Record) -> None:
        """Know a key that is in the ledger now."""
        self.known_keys = known_keys(self.known_keys, [introduction])

    def finish_key_change(self) -> None:
        """Finish or undo a change of the key that was stopped half way."""
        try:
            self._keys.export_public_keys(self.known_keys)
        except (OSError, InvalidFile) as error:  # the ledger has them
            self.notes.append(f"the public keys could not be written: {error}")
        self._keys.wipe_retired_key(self.known_keys)
        self._keys.finish_change(self.known_keys)  # last: a draft says that there is something to be finished

    # Certificates

    def certify(self, record: Record, manifest: Manifest, digest: str) -> None:
        """Write into the ledger that a request is done, and its certificate."""
        done = compose_done_record(self._ledger.tip, record.request, manifest, digest)
        self.uncertified = [*self.uncertified, record.request]
        self.last_certificate = None, None
        jws = self._try_sign(certificate_payload(self._vault, record, done))
        if jws is None:
            self._ledger.append(done)
            self.notes.append(f"done, not certified: {self._keys.problem}; it will be once the signing key is there")
            return
        self.last_certificate = (
            jws,
            self._export(record.request, jws),
        )  # first: nobody exports what the ledger says is done
        self._ledger.append(done, _compose_signature(done.end, record.request, jws))
        self.uncertified.remove(record.request)
        self.sign_uncertified(manifest, digest)

    def sign_uncertified(self, manifest: Manifest, digest: str) -> None:
        """Certify what was done while the key was away."""
        if not self.uncertified or self._keys.find_signer(self.known_keys) is None:
            return
        for request, payload in self._uncertified_payloads(manifest, digest).items():
            jws = self._try_sign(payload)
            if jws is None:
                return
            self._export(request, jws)
            self._ledger.append(_compose_signature(self._ledger.tip, request, jws))
            self.uncertified.remove(request)

    def _uncertified_payloads(self, manifest: Manifest, digest: str) -> dict[int, str]:
        """What the certificates that wait have to say; before one is signed, all of it must fit."""
        # The index has verified one chain of hashes from the first record to the end, and the manifest vouches for the
        # end of it: so it vouches for every record before.
        if self._index.head[0] != self._ledger.tip:
            raise InvalidFile(f"{self._ledger.path} was changed before byte {manifest.before.offset:,}: put it back")
        records = {
            number: (self._index.read_request_record(number), self._index.read_done_record(number))
            for number in self.uncertified
        }
        newest = self._index.read_done_record(manifest.request)
        if newest is None or any(asked is None or done is None for asked, done in records.values()):
            raise InvalidFile(f"{self._ledger.path} was changed: it lacks requests that wait for their certificate")
        check_state_commitment(manifest, [newest], digest)
        return {
            number: certificate_payload(self._vault, asked, done)
            for number, (asked, done) in records.items()
            if asked is not None and done is not None
        }

    def _try_sign(self, payload: str) -> str | None:
        """A certificate, or None if nobody can sign it now."""
        signer = self._keys.find_signer(self.known_keys)
        try:
            return None if signer is None else signer.sign(payload)
        except SigningFailed as error:
            self._keys.problem = str(error)
            return None

    def certificate_path(self, request: int) -> Path:
        """Where the certificate of a request is, for people to take away; the ledger has it too."""
        return self._folder / f"{request:06}.jws"

    def is_exported(self, request: int, certificate: str) -> bool:
        """Whether the file that people take away is there and is this certificate."""
        from . import jws

        try:
            return jws.read_statement(self.certificate_path(request)) == certificate
        except (OSError, ExpungeError):
            return False

    def _export(self, request: int, jws: str) -> Path | None:
        """Write a certificate where people can take it away."""
        try:
            with files.keep_folder_open(self._folder) as held:
                if not held:
                    files.make_folder(self._folder, for_group=self._folder.for_group)
                path = self._export_path(request, jws)
                files.put(path, jws.encode() + b"\n")
        except (OSError, InvalidFile) as error:  # the ledger gets it: the request is done
            self.notes.append(f"the certificate could not be written to {self._folder}: {error}")
            return None
        return path

    def _export_path(self, request: int, certificate: str) -> Path:
        """Where a certificate goes: in no case over one of this vault that says something else."""
        from . import jws

        path = self.certificate_path(request)
        if not os.path.lexists(path):
            return path
        try:
            there, mine = jws.unverified_payload(jws.read_statement(path)), jws.unverified_payload(certificate)
        except (OSError, ExpungeError):
            return path
        if there == mine or there.get("iss") != mine["iss"]:
            return path
        self.notes.append(
            f"{path} is another certificate of request {request}, and stays: was an older copy of folder and ledger "
            "put back? Then people hold certificates that this ledger does not know"
        )
        return path.with_stem(f"{path.stem}-{hashlib.sha256(certificate.encode()).hexdigest()[:8]}")


def current_time() -> str:
    """The time, as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _compose_signature(after: Position, request: int, jws: str) -> Record:
    return compose_record(after, {"kind": SIGNATURE, "request": request, "certificate": jws})
