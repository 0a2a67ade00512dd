"""A service in front of the demo's vault, with tokens to try it: three commands that work are printed.

Run with ``make serve-demo``; Ctrl-C ends it. What it makes is in ``build/serve-demo``.
"""

import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import demo
from expunge.server.database import Database, queue_path
from expunge.server.tokens import Tokens

HERE = Path("build/serve-demo")
PORT = 8080


def main() -> None:
    """Train a vault, make two tokens, say what to type, and serve."""
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    demo.HERE = HERE
    demo.write_files()
    demo.expunge("train customers.csv --schema schema.toml --vault usr.vault --seed 0")
    database = Database(queue_path(HERE / "usr.vault"))
    tokens = Tokens(database)
    desk = tokens.create("privacy desk", ["erase", "read"], timedelta(days=1))[1]
    app = tokens.create("app", ["predict"], timedelta(days=1))[1]
    database.close()
    rows = ",".join(f'"{column}": 1' for column in demo.COLUMNS)
    print("Three commands to try in another terminal; the tokens count for a day:\n")
    print(
        f"curl -s localhost:{PORT}/invocations -H 'Authorization: Bearer {app}' -H 'Content-Type: application/json' \\"
    )
    print(f"  -d '{{\"dataframe_records\": [{{{rows}}}]}}'\n")
    print(f"curl -s localhost:{PORT}/api/v1/erasures -H 'Authorization: Bearer {desk}' \\")
    print('  -H \'Content-Type: application/json\' -d \'{"ids": [4711], "reference": "DSR-17"}\'\n')
    print(f"curl -s localhost:{PORT}/api/v1/requests -H 'Authorization: Bearer {desk}'\n")
    print(
        f"The pages are at http://localhost:{PORT}/ ; log in with the token of the privacy desk:\n{desk}\n", flush=True
    )
    program = str(Path(sys.executable).with_name("expunge").absolute())
    try:
        subprocess.run([program, "serve", "--vault", "usr.vault", "--port", str(PORT)], cwd=HERE, check=False)  # noqa: S603
    except KeyboardInterrupt:
        print("stopped")


if __name__ == "__main__":
    main()
