"""Keys: the private key that signs, in a file or behind a program, and the file in which people find the public ones.

Cryptography is imported when a key is asked for: who only looks at a vault does not wait for it.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InvalidFile, InvalidSetting, SigningFailed
from ...saving import files
from ...saving.ownership import ExternalKeyPath, GuardedPath
from ..disk.folder import VaultPaths
from ..ledger.records import KEY, Position, Record, compose_record
from . import encodings
from .payload import statement_payload

# MERGED keyring: The keyring: which keys sign for a vault, as its ledger tells. `spend.pub` is a copy for people.
# MERGED keyring:
# MERGED keyring: A key is named by a record that the key itself signs, and the one before it, if it is still there. Keys are kept as the
# MERGED keyring: ``x`` of their JWK (RFC 8037), the newest first. No cryptography is imported here.


if TYPE_CHECKING:
    from .signers import VaultSigner

KEY_TYPE = "expunge-key+jws"
_SPKI_PREFIX = bytes.fromhex("302a300506032b6570032100")  # what precedes an Ed25519 key in DER
_PUBLIC_KEY_BYTES = 32


def known_keys(earlier: Sequence[str], records: Sequence[Record]) -> tuple[str, ...]:
    """The keys that a ledger knows after these records, the newest first."""
    return (*(str(record.body["x"]) for record in reversed(records) if record.kind == KEY), *earlier)


def thumbprint(x: str) -> str:
    """A key's thumbprint (RFC 7638), by which it is known."""
    jwk = json.dumps({"crv": "Ed25519", "kty": "OKP", "x": x}, separators=(",", ":"), sort_keys=True)
    return encodings.encode_base64url(hashlib.sha256(jwk.encode()).digest())


def public_pem(x: str) -> bytes:
    """A key as text (RFC 8410)."""
    try:
        raw = encodings.decode_base64url(x)
    except ValueError:
        raw = b""
    if len(raw) != _PUBLIC_KEY_BYTES:
        raise InvalidFile("the ledger names a public key that is none")
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
    """The record that a key signs from now on, with the word of the key before, if that is there, and who asked."""
    payload = key_payload(vault, after, time, key.public.x, previous)
    said = {"statement": key.sign(payload, KEY_TYPE), "endorsed": ""}
    if previous_signer is not None:
        with suppress(SigningFailed):  # a program may hold the new key already, and not the one before
            said["endorsed"] = previous_signer.sign(payload, KEY_TYPE)
    return compose_record(
        after, {"kind": KEY, "x": key.public.x, "time": time, "previous": previous, "actor": actor, **said}
    )


def key_payload(vault: str, after: Position, time: str, x: str, previous: str) -> str:
    """What a key and the one before it sign: that it signs for this vault from this place of the ledger on."""
    fields: dict[str, Any] = {"kind": KEY, "key": thumbprint(x), "x": x, "replaces": previous, "previous": after.hash}
    return statement_payload(vault, 0, time, fields)


if TYPE_CHECKING:
    from .jws import SigningKey
    from .signers import VaultSigner


_MAX_PUBLIC_FILE_BYTES = 2**20
_KEY_HINT = "name the key with --key, or what signs with --sign-with"


class KeyStore:
    """Who signs for a vault. Which keys are the vault's own the ledger says; callers hand them in, the newest first.

    Parameters
    ----------
    places : Places
        Of the vault.
    named : path, optional
        The file of a private key that lies elsewhere than beside the vault.
    sign_with : str, optional
        A program or a socket that signs instead (`signers`).
    """

    def __init__(self, places: VaultPaths, key_path: str | Path | None, sign_with: str | None) -> None:
        if key_path is not None and sign_with is not None:
            raise InvalidSetting("a key in a file or one that a program holds: name one of them")
        if sign_with is not None:
            from .signers import check_signer_address

            check_signer_address(sign_with)  # at once: a request that was accepted could not be finished
        self._private, self._beside = places.key if key_path is None else ExternalKeyPath(key_path), places.key
        self._elsewhere, self._public, self._sign_with = key_path is not None, places.public, sign_with
        self._stem = places.vault.stem
        self._draft_paths = self._draft_path, files.draft_path(self._public)
        self.problem = ""  # why there was nothing to sign with, when it was last asked for

    def load_named_signer(self, public: str | Path | None) -> "VaultSigner | None":
        """The key that the caller named, which is to sign from now on; ``public`` is the half of one that is held."""
        from .jws import SigningKey

        return SigningKey.load(self._private) if self._elsewhere else self.load_held_signer(public)

    def load_held_signer(self, public: str | Path | None) -> "VaultSigner | None":
        """The key that a program holds, if its public half is named."""
        if public is None:
            return None
        if self._sign_with is None:
            raise InvalidSetting("a public key says nothing without what signs: name that too (--sign-with)")
        from .jws import load_public_keys
        from .signers import make_external_signer

        return make_external_signer(self._sign_with, load_public_keys(Path(public))[0])

    def find_signer(self, known: Sequence[str]) -> "VaultSigner | None":
        """Who signs, if it can be asked and its key is the vault's newest."""
        from .jws import PublicKey
        from .signers import make_external_signer

        if self._sign_with is not None and known:
            return make_external_signer(self._sign_with, PublicKey.from_x(known[0]))
        return self._load_if_newest(self._private, known)

    def find_previous_signer(self, known: Sequence[str]) -> "VaultSigner | None":
        """Who signed until now, if it can be asked: a new key is worth more with the word of the one before."""
        return self._load_if_newest(self._beside, known) or self.find_signer(known)

    def _load_if_newest(self, path: Path, known: Sequence[str]) -> "SigningKey | None":
        """The key in a file, if it is the vault's newest."""
        from .jws import SigningKey

        try:
            key = SigningKey.load(path)
        except FileNotFoundError as missing:
            self.problem = f"{missing.filename} is not there: {_KEY_HINT}"
        except (OSError, InvalidFile) as error:
            self.problem = str(error)
        else:
            if key.public.x in known[:1]:
                return key
            what = "the key that signs for this vault now" if key.public.x in known else "a key of this vault"
            self.problem = f"{path} is not {what}: {_KEY_HINT}"
        return None

    def prepare_next_key(self, known: Sequence[str]) -> "SigningKey":
        """The key that is to sign from now on: one that lies in its place and is unknown yet, or a new one."""
        from .jws import SigningKey

        if self._sign_with is not None:
            changed = "a key that a program holds is changed there; " if known else ""
            way_out = "name the public half of the key that --sign-with holds with --public-key"
            raise InvalidSetting(changed + way_out)
        if self._private.exists():
            key = SigningKey.load(self._private)
            if key.public.x not in known:  # it may be another vault's, so it is taken and never overwritten
                return key
            if self._elsewhere:
                raise InvalidSetting(f"{self._private} signs for this vault already; name another key to change it")
        key = SigningKey.generate()
        files.wipe_draft(self._draft_path)
        files.create(self._draft_path, key.pem())
        files.sync_folder(self._draft_path.parent)
        return key

    def finish_change(self, known: Sequence[str]) -> None:
        """Put a new key into its place if the ledger knows it, and wipe the old; else wipe the draft of it."""
        from .jws import SigningKey

        for draft in filter(files.is_draft, (files.draft_path(self._public), self._draft_path)):
            key = None
            with suppress(InvalidFile):  # a crash may have cut it short: then nobody knows it
                key = SigningKey.load(draft) if draft == self._draft_path else None
            if key is not None and key.public.x in known:
                files.wipe(self._private)
                files.system.rename(draft, self._private)
            else:
                with suppress(InvalidFile, PermissionError):  # another user's, then: nobody reads it
                    files.wipe(draft)
            files.sync_folder(draft.parent)

    def wipe_retired_key(self, known: Sequence[str]) -> None:
        """Wipe the key beside the vault once another signs: who found it could sign in the vault's name."""
        if len(known) < 2 or not self._beside.exists():
            return
        from .jws import SigningKey

        with suppress(InvalidFile, PermissionError):  # another's, or none of ours: then it is not to be touched
            if SigningKey.load(self._beside).public.x in known[1:]:
                files.wipe(self._beside)
                files.sync_folder(self._beside.parent)

    def has_leftover_draft(self) -> bool:
        """Whether somebody was stopped while a key was being changed."""
        return any(map(_is_own_draft, self._draft_paths))

    def check_public_file(self, x: str) -> None:
        """Refuse to make a vault where public keys lie that would not be its own."""
        if self._public.exists() and files.read(self._public, max_bytes=_MAX_PUBLIC_FILE_BYTES) != public_pem(x):
            raise InvalidFile(f"{self._public} is there, and holds something else than this vault's key: remove it")

    def export_public_keys(self, known: Sequence[str]) -> None:
        """Write the public keys where people find them, unless somebody put something else there: the audit tells."""
        texts = [public_pem(x) for x in known]
        there = files.read(self._public, max_bytes=_MAX_PUBLIC_FILE_BYTES) if self._public.exists() else b""
        if there in [b"".join(texts[k:]) for k in range(1, len(texts) + 1)]:
            files.put(self._public, *texts)

    @property
    def created_files(self) -> tuple[Path, ...]:
        """What may be made when a vault is made: keys, and drafts of them."""
        return self._beside, self._public, files.draft_path(self._beside), files.draft_path(self._public)

    @property
    def _draft_path(self) -> Path:
        """Where a new key is written first; elsewhere by a name that nobody gives: k.new may be somebody's next key."""
        if self._elsewhere:
            return self._private.with_name(f".{self._private.name}.{self._stem}.new")
        return files.draft_path(self._private)


def _is_own_draft(draft: Path) -> bool:
    """Whether a draft is there, and not one that another user planted: that would be there for ever."""
    assert isinstance(draft, GuardedPath)
    if not files.is_draft(draft):
        return False
    try:
        draft.check_existing()
    except InvalidFile:
        return False
    return True
