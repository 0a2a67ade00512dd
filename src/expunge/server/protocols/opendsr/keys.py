"""The key that signs what is said in OpenDSR: RSA with SHA-256 (PKCS #1 v1.5), and its X.509 certificate.

Both lie beside the vault, `spend.opendsr.key` and `spend.opendsr.crt`. They are made when they are first needed. The
specification wants a certificate of a trusted authority: put yours, and its key, in their place.
"""

import base64
import ipaddress
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....errors import InvalidFile
from ....saving import files
from ....saving.own import Beside, PrivateBeside
from ...clocks import Clock, utc_now

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.x509 import Certificate, GeneralName

_BITS = 3072
_MOST_BYTES = 2**16
_LIFETIME, _RENEWAL = timedelta(days=730), timedelta(days=30)
_LONGEST_NAME = 64  # characters of a common name


@dataclass(frozen=True)
class Signer:
    """A key with its certificate."""

    key: "RSAPrivateKey"
    certificate: "Certificate"
    pem: bytes  # of the certificate, and of those that come with it

    @property
    def domain(self) -> str:
        """Whom the certificate is about."""
        return _domain(self.certificate)

    def sign(self, body: bytes) -> str:
        """The signature of a body, in base64."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        return base64.b64encode(self.key.sign(body, padding.PKCS1v15(), hashes.SHA256())).decode()


class SigningFiles:
    """The two files beside a vault, read or made when somebody has to sign."""

    def __init__(self, vault: Path, domain: str, clock: Clock = utc_now) -> None:
        self.key = PrivateBeside(vault.with_suffix(".opendsr.key"))
        self.certificate = Beside(vault.with_suffix(".opendsr.crt"))
        self._wanted, self._clock, self._lock = domain, clock, threading.Lock()
        self._signer: Signer | None = None

    def signer(self) -> Signer:
        """Who signs; a certificate of our own that is of another name, or at its end, is made again."""
        with self._lock:
            if self._signer is None or self._outdated(self._signer.certificate):
                key = self._read_key() or self._made_key()
                self._signer = self._read_certificate(key) or self._made_certificate(key)
            return self._signer

    def _read_key(self) -> "RSAPrivateKey | None":
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        if (pem := _content(self.key)) is None:
            return None
        try:
            found = load_pem_private_key(pem, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            found = None
        if not isinstance(found, RSAPrivateKey):
            raise InvalidFile(f"{self.key} is no RSA key in PEM without a password: remove it, and one is made")
        return found

    def _made_key(self) -> "RSAPrivateKey":
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(65537, _BITS)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        files.put(self.key, pem)
        return key

    def _read_certificate(self, key: "RSAPrivateKey") -> Signer | None:
        """The certificate that is there, unless it is one of ours that has to be made again."""
        from cryptography.x509 import load_pem_x509_certificates

        if (pem := _content(self.certificate)) is None:
            return None
        try:
            found = load_pem_x509_certificates(pem)[0]
        except ValueError:
            raise InvalidFile(f"{self.certificate} is no certificate in PEM: remove it, and one is made") from None
        if found.public_key() == key.public_key():
            return None if self._outdated(found) else Signer(key, found, pem)
        if found.issuer != found.subject:
            raise InvalidFile(f"{self.certificate} is the certificate of another key than {self.key}: put both there")
        return None

    def _outdated(self, found: "Certificate") -> bool:
        """Whether we have to make it again; one that an authority issued is its owner's to renew."""
        if found.issuer != found.subject:
            return False
        return _domain(found) != self._wanted or found.not_valid_after_utc - self._clock() < _RENEWAL

    def _made_certificate(self, key: "RSAPrivateKey") -> Signer:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, self._wanted[:_LONGEST_NAME])])
        now = self._clock()
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))  # for clocks that are behind
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.SubjectAlternativeName([_alternative(self._wanted)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = made.public_bytes(serialization.Encoding.PEM)
        files.put(self.certificate, pem)
        return Signer(key, made, pem)


def _content(path: Path) -> bytes | None:
    try:
        return files.read(path, most=_MOST_BYTES)
    except FileNotFoundError:
        return None


def _alternative(domain: str) -> "GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(domain))
    except ValueError:
        return x509.DNSName(domain)


def _domain(certificate: "Certificate") -> str:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        for kind in (x509.DNSName, x509.IPAddress):
            found: list[Any] = names.get_values_for_type(kind)
            if found:
                return str(found[0])
    except x509.ExtensionNotFound:
        pass
    common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(common[0].value) if common else ""
