"""``expunge serve``, and ``expunge token``: who may ask it."""

from argparse import ArgumentTypeError, Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import terminal
from .arguments import Parser, add_hosts, add_key, add_vault, command, group, opened, whole

if TYPE_CHECKING:
    from .arguments import Commands

_SCOPES = ("predict", "erase", "rows", "read", "admin")


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    command(commands, serve, _add_serving, add_key, add_vault)
    group(commands, "token", "Tokens: who may ask the service for what.", _register_tokens)


def _register_tokens(commands: "Commands") -> None:
    command(commands, new, _add_token, add_vault)
    command(commands, list_, _add_valid, add_vault, name="list")
    command(commands, revoke, _add_id, add_vault)


def _add_serving(added: Parser) -> None:
    added.add_argument("--host", default="127.0.0.1", help="Where to listen (default: 127.0.0.1, this machine only).")
    added.add_argument("--port", type=whole(0), default=8080, help="The port (default: 8080).")
    added.add_argument(
        "--window", type=_duration, default=timedelta(0), help="How long a request can be cancelled, like 24h."
    )
    added.add_argument(
        "--batch", metavar="every=TIME|size=N", type=_batch, default={}, help="Carry requests out together."
    )
    added.add_argument(
        "--two-person-release",
        action="store_true",
        help="The release of a matter needs the confirmation of a second token.",
    )
    added.add_argument(
        "--regulation", choices=("gdpr", "ccpa"), default="gdpr", help="For requests that name none (default: gdpr)."
    )
    added.add_argument(
        "--organisation", metavar="NAME", default="", help="Who runs the service: the certificates for people name it."
    )
    added.add_argument(
        "--public-url",
        metavar="URL",
        help="How other systems reach the service, like https://privacy.example.com (default: localhost).",
    )
    added.add_argument(
        "--root-path",
        metavar="PATH",
        type=_root_path,
        default="",
        help="The path below which a proxy shows the service, like /expunge.",
    )
    add_hosts(added)
    added.add_argument(
        "--drp-directory", metavar="FILE", type=Path, help="The agents of the Data Rights Protocol (JSON)."
    )
    added.add_argument("--business-id", metavar="NAME", default="", help="What those agents call this business.")
    added.add_argument(
        "--verify-every", metavar="TIME", type=_interval, help="Verify the vault this often, like 24h (default: never)."
    )
    added.add_argument(
        "--readers", metavar="N", type=whole(0), default=0, help="More processes that only predict (default: none)."
    )
    added.add_argument(
        "--open-metrics", action="store_true", help="Answer /metrics without a token: whoever reads it sees counts."
    )
    added.add_argument("--tls-cert", metavar="FILE", type=Path, help="A certificate (PEM), to speak TLS.")
    added.add_argument("--tls-key", metavar="FILE", type=Path, help="Its private key (PEM).")
    added.add_argument(
        "--drain",
        metavar="TIME",
        type=_duration,
        default=timedelta(seconds=5),
        help="After SIGTERM: how long to answer although not ready any more, before the port closes (default: 5s).",
    )
    added.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="Which lines are logged: these and graver ones (default: info).",
    )


def serve(args: Namespace) -> None:
    """Answer erasure requests and predictions over HTTP, in front of a vault."""
    from ..server.app import Limits
    from ..server.service import Options
    from ..server.serving import Address, serve
    from ..vault.requests.caller import one_line

    address = Address(args.host, args.port, args.tls_cert, args.tls_key)
    options = Options(
        window=args.window,
        two_person_release=args.two_person_release,
        regulation=args.regulation,
        organisation=one_line("organisation", args.organisation),
        public=args.public_url,
        root_path=args.root_path,
        allow_hosts=tuple(args.allow_host),
        drp_directory=args.drp_directory,
        business_id=args.business_id,
        verify_every=args.verify_every,
        open_metrics=args.open_metrics,
        **args.batch,
    )
    drain = args.drain.total_seconds()
    serve(opened(args), address, options, Limits(), args.readers, drain=drain, log_level=args.log_level)


def _add_token(added: Parser) -> None:
    added.add_argument("--scope", choices=_SCOPES, action="append", required=True, help="What it allows; may repeat.")
    added.add_argument("--name", default="token", help="Whose it is: the ledger names it with each request.")
    added.add_argument("--days", type=whole(1, 36_500), default=365, help="How long it counts (default: 365).")


def new(args: Namespace) -> None:
    """Make a token; its text is shown once."""
    token, text = _tokens(args).new(args.name, args.scope, timedelta(days=args.days))
    if args.json:
        terminal.say_json({**_view(token), "token": text})
    else:
        terminal.note("keep it: it is shown once, and kept as a hash only")
        terminal.say(text)


def _add_valid(added: Parser) -> None:
    added.add_argument("--valid", action="store_true", help="Only those that count: neither revoked nor expired.")


def list_(args: Namespace) -> None:
    """Tell which tokens there are, without their texts."""
    now = datetime.now(UTC)
    found = [_view(token) for token in _tokens(args).every() if token.valid(now) or not args.valid]
    if args.json:
        terminal.say_json(found)
        return
    heads = ("id", "name", "scopes", "expires", "revoked", "used")
    lines = [[str(one[name] or "-") if name != "scopes" else ",".join(one[name]) for name in heads] for one in found]
    terminal.say(terminal.table([heads, *lines]))


def _add_id(added: Parser) -> None:
    added.add_argument("id", help="The id of the token; expunge token list tells it.")


def revoke(args: Namespace) -> None:
    """Let a token count no more."""
    found = _view(_tokens(args).revoke(args.id))
    if args.json:
        terminal.say_json(found)
    else:
        terminal.say(f"revoked: {found['id']}")


def _tokens(args: Namespace) -> Any:
    from ..server.database import Database, queue_path
    from ..server.tokens import Tokens

    return Tokens(Database(queue_path(opened(args).places.vault)))


def _view(token: Any) -> dict[str, Any]:
    from ..server.clocks import as_text

    times = {name: getattr(token, name) for name in ("made", "expires", "revoked", "used")}
    told = {name: None if time is None else as_text(time) for name, time in times.items()}
    return {"id": token.id, "name": token.name, "scopes": sorted(token.scopes), **told}


def _duration(text: str) -> timedelta:
    from ..errors import InvalidSetting
    from ..server.clocks import duration

    try:
        return duration(text)
    except InvalidSetting as error:
        raise ArgumentTypeError(str(error)) from None


def _interval(text: str) -> timedelta:
    if not (found := _duration(text)):
        raise ArgumentTypeError("must be longer than nothing")
    return found


def _root_path(text: str) -> str:
    from ..errors import InvalidSetting
    from ..server.prefix import check_prefix

    try:
        return check_prefix(text)
    except InvalidSetting as error:
        raise ArgumentTypeError(str(error)) from None


def _batch(text: str) -> dict[str, Any]:
    name, _, value = text.partition("=")
    if name == "every":
        return {"batch_every": _duration(value)}
    if name == "size" and value.isascii() and value.isdecimal() and int(value) > 0:
        return {"batch_size": int(value)}
    raise ArgumentTypeError(f"must be every=TIME (1h) or size=NUMBER (100), got {text!r}")
