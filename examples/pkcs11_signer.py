"""A signer for ``--sign-with``: an Ed25519 key in a PKCS #11 token signs what comes on standard input.

It needs python-pkcs11, and says where the key is by four variables: PKCS11_MODULE (the token's library), PKCS11_TOKEN
and PKCS11_KEY (labels), PKCS11_PIN. ``pkcs11-tool --sign`` does the same for inputs of up to 1,024 bytes only, and a
certificate is longer: beyond that it signs in parts, which tokens refuse for EdDSA.
"""

import os
import sys
from typing import Any

import pkcs11


def main() -> None:
    """Sign once."""
    token = pkcs11.lib(os.environ["PKCS11_MODULE"]).get_token(token_label=os.environ["PKCS11_TOKEN"])
    with token.open(user_pin=os.environ["PKCS11_PIN"]) as session:
        key: Any = session.get_key(pkcs11.ObjectClass.PRIVATE_KEY, pkcs11.KeyType.EC_EDWARDS, os.environ["PKCS11_KEY"])
        sys.stdout.buffer.write(key.sign(sys.stdin.buffer.read(), mechanism=pkcs11.Mechanism.EDDSA))


if __name__ == "__main__":
    main()
