"""Keys: the private key that signs, in a file or behind a program, and the file in which people find the public ones.

Cryptography is imported when a key is asked for: who only looks at a vault does not wait for it.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InvalidFile, InvalidSetting
from ...saving import files
from ...saving.own import Guarded, KeyElsewhere
from ..disk.folder import Places
from .keyring import public_pem

if TYPE_CHECKING:
    from .jws import SigningKey
    from .signers import Signer


_MOST_BYTES = 2**20
_NAME_IT = "name the key with --key, or what signs with --sign-with"


class Keys:
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

    def __init__(self, places: Places, named: str | Path | None, sign_with: str | None) -> None:
        if named is not None and sign_with is not None:
            raise InvalidSetting("a key in a file or one that a program holds: name one of them")
        if sign_with is not None:
            from .talking import check_named

            check_named(sign_with)  # at once: a request that was accepted could not be finished
        self._private, self._beside = places.key if named is None else KeyElsewhere(named), places.key
        self._elsewhere, self._public, self._sign_with = named is not None, places.public, sign_with
        self._stem = places.vault.stem
        self._drafts = self._draft, files.draft_of(self._public)
        self.problem = ""  # why there was nothing to sign with, when it was last asked for

    def given(self, public: str | Path | None) -> "Signer | None":
        """The key that the caller named, which is to sign from now on; ``public`` is the half of one that is held."""
        from .jws import SigningKey

        return SigningKey.load(self._private) if self._elsewhere else self.held(public)

    def held(self, public: str | Path | None) -> "Signer | None":
        """The key that a program holds, if its public half is named."""
        if public is None:
            return None
        if self._sign_with is None:
            raise InvalidSetting("a public key says nothing without what signs: name that too (--sign-with)")
        from .jws import load_public
        from .signers import signer_of

        return signer_of(self._sign_with, load_public(Path(public))[0])

    def signing(self, known: Sequence[str]) -> "Signer | None":
        """Who signs, if it can be asked and its key is the vault's newest."""
        from .jws import PublicKey
        from .signers import signer_of

        if self._sign_with is not None and known:
            return signer_of(self._sign_with, PublicKey.of(known[0]))
        return self._newest(self._private, known)

    def former(self, known: Sequence[str]) -> "Signer | None":
        """Who signed until now, if it can be asked: a new key is worth more with the word of the one before."""
        return self._newest(self._beside, known) or self.signing(known)

    def _newest(self, path: Path, known: Sequence[str]) -> "SigningKey | None":
        """The key in a file, if it is the vault's newest."""
        from .jws import SigningKey

        try:
            key = SigningKey.load(path)
        except FileNotFoundError as missing:
            self.problem = f"{missing.filename} is not there: {_NAME_IT}"
        except (OSError, InvalidFile) as error:
            self.problem = str(error)
        else:
            if key.public.x in known[:1]:
                return key
            what = "the key that signs for this vault now" if key.public.x in known else "a key of this vault"
            self.problem = f"{path} is not {what}: {_NAME_IT}"
        return None

    def next(self, known: Sequence[str]) -> "SigningKey":
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
        files.wipe_draft(self._draft)
        files.create(self._draft, key.pem())
        files.sync_folder(self._draft.parent)
        return key

    def settle(self, known: Sequence[str]) -> None:
        """Put a new key into its place if the ledger knows it, and wipe the old; else wipe the draft of it."""
        from .jws import SigningKey

        for draft in filter(files.is_draft, (files.draft_of(self._public), self._draft)):
            key = None
            with suppress(InvalidFile):  # a crash may have cut it short: then nobody knows it
                key = SigningKey.load(draft) if draft == self._draft else None
            if key is not None and key.public.x in known:
                files.wipe(self._private)
                files.system.rename(draft, self._private)
            else:
                with suppress(InvalidFile, PermissionError):  # another user's, then: nobody reads it
                    files.wipe(draft)
            files.sync_folder(draft.parent)

    def retire(self, known: Sequence[str]) -> None:
        """Wipe the key beside the vault once another signs: who found it could sign in the vault's name."""
        if len(known) < 2 or not self._beside.exists():
            return
        from .jws import SigningKey

        with suppress(InvalidFile, PermissionError):  # another's, or none of ours: then it is not to be touched
            if SigningKey.load(self._beside).public.x in known[1:]:
                files.wipe(self._beside)
                files.sync_folder(self._beside.parent)

    def left_behind(self) -> bool:
        """Whether somebody was stopped while a key was being changed."""
        return any(map(_is_ours, self._drafts))

    def check_unused(self, x: str) -> None:
        """Refuse to make a vault where public keys lie that would not be its own."""
        if self._public.exists() and files.read(self._public, most=_MOST_BYTES) != public_pem(x):
            raise InvalidFile(f"{self._public} is there, and holds something else than this vault's key: remove it")

    def export(self, known: Sequence[str]) -> None:
        """Write the public keys where people find them, unless somebody put something else there: the audit tells."""
        texts = [public_pem(x) for x in known]
        there = files.read(self._public, most=_MOST_BYTES) if self._public.exists() else b""
        if there in [b"".join(texts[k:]) for k in range(1, len(texts) + 1)]:
            files.put(self._public, *texts)

    @property
    def files(self) -> tuple[Path, ...]:
        """What may be made when a vault is made: keys, and drafts of them."""
        return self._beside, self._public, files.draft_of(self._beside), files.draft_of(self._public)

    @property
    def _draft(self) -> Path:
        """Where a new key is written first; elsewhere by a name that nobody gives: k.new may be somebody's next key."""
        if self._elsewhere:
            return self._private.with_name(f".{self._private.name}.{self._stem}.new")
        return files.draft_of(self._private)


def _is_ours(draft: Path) -> bool:
    """Whether a draft is there, and not one that another user planted: that would be there for ever."""
    assert isinstance(draft, Guarded)
    if not files.is_draft(draft):
        return False
    try:
        draft.look()
    except InvalidFile:
        return False
    return True
