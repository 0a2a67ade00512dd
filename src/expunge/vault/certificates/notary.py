"""The notary: records in the ledger that a request is done, signs its certificate, and tracks what is not signed yet.

It signs only what it has computed itself, from the state and from records of the ledger that the folder's manifest
vouches for: never a text that it finds somewhere.
"""

import hashlib
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ExpungeError, InvalidFile, SigningFailed
from ...saving import files
from ...saving.files import VaultDir
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
    """The certificates of a vault. A missing key never blocks a request: it is certified later."""

    def __init__(self, vault: str, ledger: Ledger, index: LedgerIndex, folder: SiblingPath, keys: KeyStore) -> None:
        self._vault, self._ledger, self._index, self._keys = vault, ledger, index, keys
        self._folder = VaultDir(folder)
        self.notes: list[str] = []
        self.known_keys: tuple[str, ...] = ()  # the newest first
        self.uncertified = 0  # the newest request that is done and not certified, 0 if all are certified
        self.last_certificate: tuple[str | None, Path | None] = (None, None)  # the last certificate, and its file

    # Keys

    def require_signer(self) -> "VaultSigner":
        """Return the signer; raise if there is none."""
        signer = self._keys.find_signer(self.known_keys)
        if signer is None:
            raise SigningFailed(f"there is no key to sign with: {self._keys.problem}")
        return signer

    def compose_introduction(self, signer: "VaultSigner | None" = None, *, actor: str) -> Record | None:
        """Return the record that introduces a key: the given one, one that lies in its place, or a new one.

        It fits the current end of the ledger. Return None if the key signs for this vault already.
        """
        previous_signer = self._keys.find_previous_signer(self.known_keys)
        key = signer or self._keys.prepare_next_key(self.known_keys)
        if not self.known_keys:
            self._keys.check_public_file(key.public.x)
        if key.public.x in self.known_keys:
            return None
        previous = thumbprint(self.known_keys[0]) if self.known_keys else ""
        return compose_key_record(self._vault, self._ledger.tip, current_time(), key, previous, previous_signer, actor)

    def adopt_key(self, signer: "VaultSigner | None" = None, *, actor: str) -> None:
        """Make another key the signing key.

        If this fails but the key is known afterwards, the next command completes the change.
        """
        record = self.compose_introduction(signer, actor=actor)
        if record is not None:
            try:
                self._ledger.append(record)
            except files.SyncFailed:
                self.add_known_key(record)  # it was written: the next command finds it
                raise
            self.add_known_key(record)
        self.finish_key_change()

    def add_known_key(self, introduction: Record) -> None:
        """Add a key that is in the ledger now to the known ones."""
        self.known_keys = known_keys(self.known_keys, [introduction])

    def finish_key_change(self) -> None:
        """Complete or undo an interrupted change of the key."""
        try:
            self._keys.export_public_keys(self.known_keys)
        except (OSError, InvalidFile) as error:  # the ledger has them
            self.notes.append(f"the public keys could not be written: {error}")
        self._keys.wipe_retired_key(self.known_keys)
        self._keys.finish_change(self.known_keys)  # last: a draft marks an unfinished change

    # Certificates

    def certify(self, record: Record, manifest: Manifest, digest: str) -> None:
        """Record in the ledger that a request is done, with its certificate."""
        done = compose_done_record(self._ledger.tip, record.request, manifest, digest)
        self.last_certificate = None, None
        jws = self._try_sign(certificate_payload(self._vault, record, done))
        if jws is None:
            self._ledger.append(done)
            self.uncertified = record.request
            problem = self._keys.problem
            self.notes.append(f"done, not certified: {problem}; it will be certified once the signing key is available")
            return
        # Exported before it is recorded: a request that the ledger says is certified is not exported again.
        self.last_certificate = jws, self._export(record.request, jws)
        self._ledger.append(done, _compose_signature(done.end, record.request, jws))
        self.sign_uncertified(manifest, digest)

    def sign_uncertified(self, manifest: Manifest, digest: str) -> None:
        """Certify the requests that were done while the key was missing, the oldest first."""
        if not self.uncertified or self._keys.find_signer(self.known_keys) is None:
            return
        # The index has verified one chain of hashes from the first record to the end, and the manifest vouches for the
        # end of it: so it vouches for every record before.
        if self._index.head[0] != self._ledger.tip:
            raise InvalidFile(f"{self._ledger.path} was changed before byte {manifest.before.offset:,}: restore it")
        waiting, newest = self._index.read_uncertified(self.uncertified), self._index.read_done_record(manifest.request)
        if newest is None:
            raise InvalidFile(f"{self._ledger.path} was changed: requests that are not certified yet are missing")
        check_state_commitment(manifest, [newest], digest)
        payloads = [(record.request, certificate_payload(self._vault, record, done)) for record, done in waiting]
        for request, payload in payloads:  # all of them are valid
            jws = self._try_sign(payload)
            if jws is None:
                return
            self._export(request, jws)
            self._ledger.append(_compose_signature(self._ledger.tip, request, jws))
        self.uncertified = 0

    def _try_sign(self, payload: str) -> str | None:
        """Return the signed certificate, or None if it cannot be signed now."""
        signer = self._keys.find_signer(self.known_keys)
        try:
            return None if signer is None else signer.sign(payload)
        except SigningFailed as error:
            self._keys.problem = str(error)
            return None

    def certificate_path(self, request: int) -> Path:
        """Return where the certificate of a request is exported; the ledger holds it too."""
        return Path(self._folder / f"{request:06}.jws")

    def is_exported(self, request: int, certificate: str) -> bool:
        """Return whether the exported file exists and is this certificate."""
        from . import jws

        try:
            return jws.read_statement(self._folder / f"{request:06}.jws") == certificate
        except (OSError, ExpungeError):
            return False

    def _export(self, request: int, jws: str) -> Path | None:
        """Write a certificate into its folder, but never over one of this vault that says something else."""
        from .jws import read_statement, unverified_payload

        try:
            if not self._folder.path.is_dir():
                self._folder.make()
            with self._folder.hold():
                file = self._folder / f"{request:06}.jws"
                if os.path.lexists(file):
                    with suppress(OSError, ExpungeError):  # what is no statement is overwritten
                        old, new = (unverified_payload(text) for text in (read_statement(file), jws))
                        if old != new and old.get("iss") == new["iss"]:
                            self.notes.append(
                                f"{file} is another certificate of request {request}, and is kept: if an older copy of "
                                "folder and ledger was put back, there are certificates that this ledger does not know"
                            )
                            file = self._folder / f"{request:06}-{hashlib.sha256(jws.encode()).hexdigest()[:8]}.jws"
                files.put(file, jws.encode() + b"\n")
        except (OSError, InvalidFile) as error:  # the ledger holds it, so the request is done
            self.notes.append(f"the certificate could not be written to {self._folder}: {error}")
            return None
        return Path(file)


def current_time() -> str:
    """Return the current time as records have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _compose_signature(after: Position, request: int, jws: str) -> Record:
    return compose_record(after, {"kind": SIGNATURE, "request": request, "certificate": jws})
