"""The parser of the whole command line; every room of commands adds its own."""

from ..versions import version_line
from . import aliases, backup, certificates, handing, looking, matters, paper, planning, requests, serving, webhooks
from .arguments import Parser, below


def parser() -> Parser:
    """All commands and options."""
    made = Parser(prog="expunge", description="Regression models that can forget.")
    made.add_argument("--version", action="version", version=version_line(), help="Print the version.")
    commands = below(made)
    for room in (
        requests,
        planning,
        looking,
        handing,
        certificates,
        backup,
        serving,
        webhooks,
        matters,
        aliases,
        paper,
    ):
        room.register(commands)
    return made
