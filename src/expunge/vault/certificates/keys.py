"""Keys of a vault: the private key that signs, in a file or behind a program, and the file with the public keys.

The ledger says which keys sign for a vault; ``spend.pub`` is a copy for people. A record introduces a key. The key
itself signs that record, and so does its predecessor if it is still available. Keys are stored as the ``x`` of their
JWK (RFC 8037), the newest first. Cryptography is imported only when a key is loaded: reading a vault does not wait for
it.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...errors import InvalidFile, InvalidSetting, SigningFailed
from ...saving import files
from ...saving.ownership import ExternalKeyPath, GuardedPath
from ..disk.folder import VaultPaths
from ..ledger.records import KEY, Position, Record, compose_record
from . import encodings
from .payload import statement_payload

if TYPE_CHECKING:
    from .jws import SigningKey
    from .signers import VaultSigner

KEY_TYPE = "expunge-key+jws"
_SPKI_PREFIX = bytes.fromhex("302a300506032b6570032100")  # DER before the bytes of an Ed25519 key
_PUBLIC_KEY_BYTES = 32


def known_keys(earlier: Sequence[str], records: Sequence[Record]) -> tuple[str, ...]:
    """Return the keys that a ledger knows after these records, the newest first."""
    return (*(str(record.body["x"]) for record in reversed(records) if record.kind == KEY), *earlier)


def thumbprint(x: str) -> str:
    """Return a key's thumbprint (RFC 7638)."""
    jwk = json.dumps({"crv": "Ed25519", "kty": "OKP", "x": x}, separators=(",", ":"), sort_keys=True)
    return encodings.encode_base64url(hashlib.sha256(jwk.encode()).digest())


def public_pem(x: str) -> bytes:
    """Return a public key in PEM (RFC 8410)."""
    try:
        raw = encodings.decode_base64url(x)
    except ValueError:
        raw = b""
    if len(raw) != _PUBLIC_KEY_BYTES:
        raise InvalidFile("the ledger names an invalid public key")
    text = base64.b64encode(_SPKI_PREFIX + raw).decode()
    return f"-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n".encode()


def compose_key_record(
    vault: str,
    after: Position,
    time: str,
    key: "VaultSigner",
    previous: str,
    previous_signer: "VaultSigner | None",
    actor: str,
) -> Record:
    """Return the record that introduces a signing key, endorsed by the previous key if that is available."""
    payload = key_payload(vault, after, time, key.public.x, previous)
    signatures = {"statement": key.sign(payload, KEY_TYPE), "endorsed": ""}
    if previous_signer is not None:
        with suppress(SigningFailed):  # a program may already hold the new key, and not the previous one
            signatures["endorsed"] = previous_signer.sign(payload, KEY_TYPE)
    body = {"kind": KEY, "x": key.public.x, "time": time, "previous": previous, "actor": actor, **signatures}
    return compose_record(after, body)


def key_payload(vault: str, after: Position, time: str, x: str, previous: str) -> str:
    """Return what a key and its predecessor sign: that it signs for this vault from this position of the ledger on."""
    fields: dict[str, Any] = {"kind": KEY, "key": thumbprint(x), "x": x, "replaces": previous, "previous": after.hash}
    return statement_payload(vault, 0, time, fields)


_MAX_PUBLIC_FILE_BYTES = 2**20
_KEY_HINT = "name the key with --key, or what signs with --sign-with"


class KeyStore:
    """The signer of a vault, and its key files. Callers pass in the keys that the ledger knows, the newest first.

    Parameters
    ----------
    places : VaultPaths
        The paths of the vault.
    key_path : path, optional
        The file of a private key that does not lie beside the vault.
    sign_with : str, optional
        A program or a socket that signs instead (`signers`).
    """

    def __init__(self, places: VaultPaths, key_path: str | Path | None, sign_with: str | None) -> None:
        if key_path is not None and sign_with is not None:
            raise InvalidSetting("give either a key file or a program that signs, not both")
        if sign_with is not None:
            from .signers import check_signer_address

            check_signer_address(sign_with)  # now: later, an accepted request could not be finished
        self._private, self._beside = places.key if key_path is None else ExternalKeyPath(key_path), places.key
        self._elsewhere, self._public, self._sign_with = key_path is not None, places.public, sign_with
        self._draft = files.draft_path(self._private)
        if self._elsewhere:  # there it has a name that no one else uses
            self._draft = self._private.with_name(f".{self._private.name}.{places.vault.stem}.new")
        self._drafts = files.draft_path(self._public), self._draft
        self.problem = ""  # why there was no signer when one was last needed

    def load_named_signer(self, public: str | Path | None) -> "VaultSigner | None":
        """Return the new signer that the caller named; ``public`` is the public key of one that a program holds."""
        from .jws import SigningKey

        return SigningKey.load(self._private) if self._elsewhere else self.load_held_signer(public)

    def load_held_signer(self, public: str | Path | None) -> "VaultSigner | None":
        """Return the signer that a program holds, if its public key is given."""
        if public is None:
            return None
        if self._sign_with is None:
            raise InvalidSetting("a public key alone cannot sign: name the program that signs too (--sign-with)")
        from .jws import load_public_keys
        from .signers import make_external_signer

        return make_external_signer(self._sign_with, load_public_keys(Path(public))[0])

    def find_signer(self, known: Sequence[str]) -> "VaultSigner | None":
        """Return the signer with the vault's newest key, if it is available."""
        from .jws import PublicKey
        from .signers import make_external_signer

        if self._sign_with is not None and known:
            return make_external_signer(self._sign_with, PublicKey.from_x(known[0]))
        return self._load_if_newest(self._private, known)

    def find_previous_signer(self, known: Sequence[str]) -> "VaultSigner | None":
        """Return the signer so far, if it is available, to endorse a new key."""
        return self._load_if_newest(self._beside, known) or self.find_signer(known)

    def _load_if_newest(self, path: Path, known: Sequence[str]) -> "SigningKey | None":
        """Return the key in a file if it is the vault's newest."""
        from .jws import SigningKey

        try:
            key = SigningKey.load(path)
        except FileNotFoundError as missing:
            self.problem = f"{missing.filename} is missing: {_KEY_HINT}"
        except (OSError, InvalidFile) as error:
            self.problem = str(error)
        else:
            if key.public.x in known[:1]:
                return key
            expected = "the key that signs for this vault now" if key.public.x in known else "a key of this vault"
            self.problem = f"{path} is not {expected}: {_KEY_HINT}"
        return None

    def prepare_next_key(self, known: Sequence[str]) -> "SigningKey":
        """Return the next signing key: an unknown one that lies in its place, or a new one."""
        from .jws import SigningKey

        if self._sign_with is not None:
            reason = "a key that a program holds is changed there; " if known else ""
            raise InvalidSetting(f"{reason}name the public half of the key that --sign-with holds with --public-key")
        if self._private.exists():
            key = SigningKey.load(self._private)
            if key.public.x not in known:  # it may be another vault's, so it is used and never overwritten
                return key
            if self._elsewhere:
                raise InvalidSetting(f"{self._private} already signs for this vault; name another key")
        key = SigningKey.generate()
        files.wipe_draft(self._draft)
        files.create(self._draft, key.pem())
        files.sync_folder(self._draft.parent)
        return key

    def finish_change(self, known: Sequence[str]) -> None:
        """Move a new key into its place if the ledger knows it, and wipe the old one; otherwise wipe its draft."""
        from .jws import SigningKey

        for draft in filter(files.is_draft, self._drafts):
            key = None
            with suppress(InvalidFile):  # a crash may have cut it short: then the ledger does not know it
                key = SigningKey.load(draft) if draft == self._draft else None
            if key is not None and key.public.x in known:
                files.wipe(self._private)
                files.rename(draft, self._private)
            else:
                with suppress(InvalidFile, PermissionError):  # another user's file: it is never read
                    files.wipe(draft)
            files.sync_folder(draft.parent)

    def wipe_retired_key(self, known: Sequence[str]) -> None:
        """Wipe the key beside the vault once another one signs, so that nobody can find and use it."""
        if len(known) < 2 or not self._beside.exists():
            return
        from .jws import SigningKey

        with suppress(InvalidFile, PermissionError):  # not a key of this vault: leave it alone
            if SigningKey.load(self._beside).public.x in known[1:]:
                files.wipe(self._beside)
                files.sync_folder(self._beside.parent)

    def has_leftover_draft(self) -> bool:
        """Return whether a change of the key was interrupted."""
        for draft in filter(files.is_draft, self._drafts):
            with suppress(InvalidFile):  # planted by another user, whose file would stay forever
                cast("GuardedPath", draft).check_existing()
                return True
        return False

    def check_public_file(self, x: str) -> None:
        """Refuse to create a vault beside a file with other public keys."""
        if self._public.exists() and files.read(self._public, max_bytes=_MAX_PUBLIC_FILE_BYTES) != public_pem(x):
            raise InvalidFile(f"{self._public} exists, but does not hold this vault's key: remove it")

    def export_public_keys(self, known: Sequence[str]) -> None:
        """Update the file with the public keys, unless it holds something else, which the audit reports."""
        texts = [public_pem(x) for x in known]
        current = files.read(self._public, max_bytes=_MAX_PUBLIC_FILE_BYTES) if self._public.exists() else b""
        if current in [b"".join(texts[k:]) for k in range(1, len(texts) + 1)]:
            files.put(self._public, *texts)

    @property
    def created_files(self) -> tuple[Path, ...]:
        """The files that creating a vault may make: keys, and their drafts."""
        return self._beside, self._public, files.draft_path(self._beside), files.draft_path(self._public)
