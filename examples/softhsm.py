"""A key in a PKCS #11 token signs a certificate: SoftHSM in the place of an HSM.

Run with ``make softhsm``; it needs the programs softhsm2-util and pkcs11-tool (packages softhsm2 and opensc). What it
makes is in ``build/softhsm``: the token, its public key, a vault, and a certificate that the token signed.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from expunge import CodedRegressor
from expunge.vault import Vault
from expunge.vault.certificates import jws
from expunge.vault.certificates.payload import payload_text
from expunge.vault.certificates.signers import signer_of

HERE = Path("build/softhsm")
PLACES = (
    "/usr/lib/softhsm",
    "/usr/lib/*/softhsm",
    "/usr/lib64/softhsm",
    "/usr/local/lib/softhsm",
    "/opt/*/lib/softhsm",
)
SIGNER = Path(__file__).with_name("pkcs11_signer.py").resolve()


def main() -> None:
    """Make a token with a key, and let it sign what a vault did."""
    module = next((path for place in PLACES for path in Path("/").glob(f"{place[1:]}/libsofthsm2.so")), None)
    if module is None or not shutil.which("softhsm2-util") or not shutil.which("pkcs11-tool"):
        sys.exit("SoftHSM is not there: install softhsm2 and opensc (apt-get install softhsm2 opensc)")
    shutil.rmtree(HERE, ignore_errors=True)
    (HERE / "tokens").mkdir(parents=True)
    (HERE / "softhsm2.conf").write_text(f"directories.tokendir = {(HERE / 'tokens').resolve()}\n")
    os.environ |= {"SOFTHSM2_CONF": str((HERE / "softhsm2.conf").resolve()), "PKCS11_MODULE": str(module)}
    os.environ |= {"PKCS11_TOKEN": "expunge", "PKCS11_KEY": "spend", "PKCS11_PIN": "123456"}
    tool = f"pkcs11-tool --module {module} --token-label expunge"
    run("softhsm2-util --init-token --free --label expunge --so-pin 12345678 --pin 123456")
    run(f"{tool} --login --pin env:PKCS11_PIN --keypairgen --key-type EC:edwards25519 --label spend --id 01")
    run(f"{tool} --read-object --type pubkey --id 01 --output-file token.pub")
    certificate = signed_by_token(what_a_vault_did())
    (HERE / "token.jws").write_text(f"{certificate}\n")
    run(f"{sys.executable} -m expunge certificate check token.jws --public-key token.pub")


def what_a_vault_did() -> str:
    """The payload of the certificate of an erasure."""
    import pyarrow as pa

    table = pa.table({"who": range(100), "age": [float(k % 50) for k in range(100)], "spend": [1.0, 2.0] * 50})
    model = CodedRegressor(shards=10, rate=5, random_state=0)
    vault = Vault.create(HERE / "spend.vault", table, target="spend", id="who", model=model)
    certificate = vault.unlearn([4, 7]).certificate
    assert certificate is not None
    return payload_text(jws.unchecked(certificate))


def signed_by_token(payload: str) -> str:
    """A certificate with this payload; the token signs, and the key stays in it."""
    (public,) = jws.load_public(HERE / "token.pub")
    return signer_of(shlex.join([sys.executable, str(SIGNER)]), public).sign(payload)


def run(command: str) -> None:
    """Show a command, run it, show what it says."""
    print(f"$ {command.replace(sys.executable, 'python')}", flush=True)
    subprocess.run(shlex.split(command), cwd=HERE, check=True)  # noqa: S603 - our own commands
    print(flush=True)


if __name__ == "__main__":
    main()
