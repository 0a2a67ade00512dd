"""The command ``expunge``: parses, calls, prints."""

import sys

from ..errors import ExpungeError

try:
    import typer

    from .paper import paper
    from .vault import certificate, vault
except ImportError as error:  # the command needs what the library does not
    raise SystemExit(f"the command expunge needs {error.name}: pip install 'expunge[vault]'") from error

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Regression models that can forget.")
app.add_typer(vault)
app.add_typer(certificate, name="certificate")
app.add_typer(paper, name="paper")


def entry() -> None:
    """Run the command; an error of ours is one line and its exit code."""
    try:
        app()
    except (ExpungeError, OSError) as error:
        typer.secho(f"error: {error}", err=True, fg="red")
        sys.exit(getattr(error, "exit_code", 1))
    except ModuleNotFoundError as error:
        extra = "paper" if "paper" in sys.argv[1:2] else "vault"
        typer.secho(f"error: this command needs {error.name}: pip install 'expunge[{extra}]'", err=True, fg="red")
        sys.exit(1)
