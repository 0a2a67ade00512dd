"""The command ``expunge``: parses, calls, prints."""

import sys
from typing import Annotated

from .. import __version__
from ..errors import ExpungeError

try:
    import typer

    from .paper import paper
    from .vault import certificate, vault
except ImportError as error:  # the command needs what the library does not
    raise SystemExit(f"the command expunge needs {error.name}: pip install 'expunge[vault]'") from error

app = typer.Typer(no_args_is_help=True, add_completion=False)
app.add_typer(vault)
app.add_typer(certificate, name="certificate")
app.add_typer(paper, name="paper")


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"expunge {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Regression models that can forget."""


def entry() -> None:
    """Run the command; an error of ours is one line and its exit code."""
    try:
        app()
    except ExpungeError as error:
        typer.secho(f"error: {error}", err=True, fg="red")
        sys.exit(error.exit_code)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        typer.secho(f"error: {text}", err=True, fg="red")
        sys.exit(1)
    except ModuleNotFoundError as error:
        extra = "paper" if "paper" in sys.argv[1:2] else "vault"
        typer.secho(f"error: this command needs {error.name}: pip install 'expunge[{extra}]'", err=True, fg="red")
        sys.exit(1)
