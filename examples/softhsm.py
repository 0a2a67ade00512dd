"""A key in a PKCS #11 token signs for a vault: SoftHSM in the place of an HSM.

Run with ``make softhsm``; it needs the programs softhsm2-util and pkcs11-tool (packages softhsm2 and opensc). What it
makes is in ``build/softhsm``: the token, its public key, and a vault whose certificates the token signs.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

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
    """Make a token with a key, and let it sign what a vault does."""
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
    (HERE / "customers.csv").write_text("who,age,spend\n" + "".join(f"{k},{k % 50},{k % 2 + 1}\n" for k in range(100)))
    signer, expunge = f"{sys.executable} {SIGNER}", f"{sys.executable} -m expunge"
    token = f"--vault spend.vault --sign-with {shlex.quote(signer)}"
    run(f"{expunge} train customers.csv --target spend --id-column who {token} --public-key token.pub")
    run(f"{expunge} unlearn --id 4 --id 7 {token}")
    run(f"{expunge} certificate check spend.certificates/000002.jws --public-key token.pub")
    run(f"{expunge} verify --vault spend.vault")


def run(command: str) -> None:
    """Show a command, run it, show what it says."""
    shown = command.replace(str(SIGNER), SIGNER.name).replace(sys.executable, "python")
    print(f"$ {shown.replace('python -m expunge', 'expunge')}", flush=True)
    subprocess.run(shlex.split(command), cwd=HERE, check=True)  # noqa: S603 - our own commands
    print(flush=True)


if __name__ == "__main__":
    main()
