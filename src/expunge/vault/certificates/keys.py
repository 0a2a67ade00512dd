"""Keys: the pair that signs certificates and checks them, beside the folder.

Cryptography is imported when a key is asked for: who only looks at a vault does not wait for it.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InvalidFile, InvalidSetting
from ...saving import files

if TYPE_CHECKING:
    from .jws import SigningKey


def signing_key(path: Path) -> "SigningKey":
    """Read a private key."""
    from .jws import SigningKey

    return SigningKey.load(path)


class Keys:
    """A private key in one file, and in another its public half and those that were there before."""

    def __init__(self, private: Path, public: Path) -> None:
        self._private, self._public = private, public
        self.problem = ""  # why there was no key to sign with, when it was last asked for

    def signing(self) -> "SigningKey | None":
        """The private key, if it is there, can be read and is one of the vault's."""
        from .jws import SigningKey, load_public

        try:
            key = SigningKey.load(self._private)
            known = {public.name for public in load_public(self._public)}
        except FileNotFoundError as missing:
            self.problem = f"{missing.filename} is not there"
        except (OSError, InvalidFile) as error:
            self.problem = str(error)
        else:
            if key.public.name in known:
                return key
            self.problem = f"{self._private} is not a key of this vault"
        return None

    def make(self, signing: "SigningKey | None" = None) -> "SigningKey":
        """Write the pair, or the half that is not there; keys that were there before stay known."""
        from .jws import SigningKey, load_public

        made = signing is None and not self._private.exists()
        if signing is None:
            signing = SigningKey.generate() if made else SigningKey.load(self._private)
        known = load_public(self._public) if self._public.exists() else []
        if signing.public.name not in {key.name for key in known}:
            files.put(self._public, *(key.pem() for key in (signing.public, *known)))
        files.sync_folder(self._public.parent)
        if made:  # last: nothing is signed with a key whose other half a power cut could take
            files.put(self._private, signing.pem())
        return signing

    def renew(self) -> "SigningKey":
        """Make a new pair in place of a private key that is lost."""
        from .jws import SigningKey

        if self.signing() is not None:
            raise InvalidSetting(f"{self._private} is there: nothing to renew")
        # A key that is there and was unknown is taken, not overwritten: it may be another vault's.
        return self.make(SigningKey.load(self._private) if self._private.exists() else None)
