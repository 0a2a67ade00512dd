"""A timestamp authority for tests: certificates of its own, answers by ``openssl ts``, over HTTP on this machine."""

import http.server
import subprocess
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CONFIG = """
[tsa]
signer_digest = sha256
digests = sha256, sha384, sha512
default_policy = 1.2.3.4.1
serial = {folder}/serial
crypto_device = builtin
ess_cert_id_alg = sha256
certs = {folder}/chain.pem
"""
PEM = serialization.Encoding.PEM


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """A root, a certificate between, and one that stamps."""

    def __init__(self, folder, *, ended=False):
        folder.mkdir()
        self._folder, self.roots = folder, folder / "roots.pem"
        self._days = (-20, -10) if ended else (-1, 3650)
        root, self._between, self._stamps = (generate_private_key(SECP256R1()) for _ in range(3))
        self.roots.write_bytes(self._made("root", root, "root", root).public_bytes(PEM))
        (folder / "chain.pem").write_bytes(self._made("between", self._between, "root", root).public_bytes(PEM))
        self.leaf = self.made_leaf(ExtendedKeyUsageOID.TIME_STAMPING)
        (folder / "tsa.pem").write_bytes(self.leaf.public_bytes(PEM))
        plain = serialization.NoEncryption()
        (folder / "tsa.key").write_bytes(self._stamps.private_bytes(PEM, serialization.PrivateFormat.PKCS8, plain))
        (folder / "serial").write_text("01\n")
        (folder / "tsa.cnf").write_text(CONFIG.format(folder=folder))

    def made_leaf(self, usage):
        """A certificate of the key that stamps, for this usage; all have the same number."""
        return self._made("stamps", self._stamps, "between", self._between, usage=usage, days=self._days)

    def _made(self, subject, key, issuer, signed_by, *, usage=None, days=(-1, 3650)):
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(issuer))
            .public_key(key.public_key())
            .serial_number(2026)
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signed_by.public_key()), critical=False)
            .add_extension(x509.BasicConstraints(ca=usage is None, path_length=None), critical=True)
        )
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
        return builder.sign(signed_by, hashes.SHA256())

    def answer(self, query):
        """The answer to a query; a query that cannot be read gets a refusal."""
        (self._folder / "query").write_bytes(query)
        words = ["openssl", "ts", "-reply", "-queryfile", "query", "-config", "tsa.cnf", "-section", "tsa"]
        words += ["-signer", "tsa.pem", "-inkey", "tsa.key", "-out", "reply"]
        subprocess.run(words, cwd=self._folder, check=True, capture_output=True)
        return (self._folder / "reply").read_bytes()


@contextmanager
def serving(answer):
    """The address of a server that says what ``answer`` makes of a body: bytes, or (status, headers, pieces)."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(self.headers["Content-Type"])
            said = answer(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, body = said if isinstance(said, tuple) else (200, {}, said)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for piece in [body] if isinstance(body, bytes) else body:
                    self.wfile.write(piece)
            except OSError:  # who has read enough hangs up
                self.close_connection = True

        def log_message(self, *_):
            pass

    asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/tsr"
            assert set(asked) <= {"application/timestamp-query"}
        finally:
            server.shutdown()
            thread.join()
