"""The key that signs OpenDSR responses, RSA with SHA-256 (PKCS #1 v1.5), and its X.509 certificate.

The files are beside the vault, for example `spend.opendsr.key` and `spend.opendsr.crt`, and are created when they are
first needed. The specification asks for a certificate of a trusted authority: replace the files with yours.
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
from ....saving.ownership import PrivateSiblingPath, SiblingPath
from ...clocks import Clock, utc_now

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.x509 import Certificate, GeneralName

_KEY_BITS = 3072
_MAX_FILE_BYTES = 2**16
_LIFETIME, _RENEWAL = timedelta(days=730), timedelta(days=30)
_MAX_NAME_LENGTH = 64  # of a common name


@dataclass(frozen=True)
class OpenDsrSigner:
    """A signing key with its certificate."""

    key: "RSAPrivateKey"
    certificate: "Certificate"
    pem: bytes  # of the certificate and its chain

    @property
    def domain(self) -> str:
        """The domain that the certificate is for."""
        return _certificate_domain(self.certificate)

    def sign(self, body: bytes) -> str:
        """Return the signature of a body, in base64."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        return base64.b64encode(self.key.sign(body, padding.PKCS1v15(), hashes.SHA256())).decode()


class SigningFiles:
    """The two files beside a vault, read or created when something has to be signed."""

    def __init__(self, vault: Path, domain: str, clock: Clock = utc_now) -> None:
        self.key = PrivateSiblingPath(vault.with_suffix(".opendsr.key"))
        self.certificate = SiblingPath(vault.with_suffix(".opendsr.crt"))
        self._domain, self._clock, self._lock = domain, clock, threading.Lock()
        self._signer: OpenDsrSigner | None = None

    def load_signer(self) -> OpenDsrSigner:
        """Return the signer. A self-signed certificate is renewed if the domain changed or it expires soon."""
        with self._lock:
            if self._signer is None or self._needs_renewal(self._signer.certificate):
                key = self._read_key() or self._create_key()
                self._signer = self._read_certificate(key) or self._create_certificate(key)
            return self._signer

    def _read_key(self) -> "RSAPrivateKey | None":
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        if (pem := _read_if_present(self.key)) is None:
            return None
        try:
            key = load_pem_private_key(pem, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, RSAPrivateKey):
            raise InvalidFile(
                f"{self.key} is not an unencrypted RSA key in PEM: replace it, or remove it to have one created"
            )
        return key

    def _create_key(self) -> "RSAPrivateKey":
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(65537, _KEY_BITS)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        files.put(self.key, pem)
        return key

    def _read_certificate(self, key: "RSAPrivateKey") -> OpenDsrSigner | None:
        """Return the signer with the existing certificate, or None if a new one has to be created."""
        from cryptography.x509 import load_pem_x509_certificates

        if (pem := _read_if_present(self.certificate)) is None:
            return None
        try:
            certificate = load_pem_x509_certificates(pem)[0]
        except ValueError:
            raise InvalidFile(
                f"{self.certificate} is not a certificate in PEM: replace it, or remove it to have one created"
            ) from None
        if certificate.public_key() == key.public_key():
            return None if self._needs_renewal(certificate) else OpenDsrSigner(key, certificate, pem)
        if certificate.issuer != certificate.subject:
            raise InvalidFile(f"{self.certificate} does not belong to the key {self.key}: replace both files together")
        return None

    def _needs_renewal(self, certificate: "Certificate") -> bool:
        """Return whether to renew a certificate; one that an authority issued is up to its owner."""
        if certificate.issuer != certificate.subject:
            return False
        return (
            _certificate_domain(certificate) != self._domain
            or certificate.not_valid_after_utc - self._clock() < _RENEWAL
        )

    def _create_certificate(self, key: "RSAPrivateKey") -> OpenDsrSigner:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, self._domain[:_MAX_NAME_LENGTH])])
        now = self._clock()
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))  # for clients whose clock is slow
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.SubjectAlternativeName([_alternative_name(self._domain)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        files.put(self.certificate, pem)
        return OpenDsrSigner(key, certificate, pem)


def _read_if_present(path: Path) -> bytes | None:
    try:
        return files.read(path, max_bytes=_MAX_FILE_BYTES)
    except FileNotFoundError:
        return None


def _alternative_name(domain: str) -> "GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(domain))
    except ValueError:
        return x509.DNSName(domain)


def _certificate_domain(certificate: "Certificate") -> str:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        for kind in (x509.DNSName, x509.IPAddress):
            values: list[Any] = names.get_values_for_type(kind)
            if values:
                return str(values[0])
    except x509.ExtensionNotFound:
        pass
    common_names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(common_names[0].value) if common_names else ""
