"""``expunge serve``, and ``expunge token``: who may ask it."""

import csv
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import terminal
from .arguments import (
    Parser,
    add_allow_host,
    add_command,
    add_command_group,
    add_key,
    add_vault,
    open_vault,
    whole_number,
)

if TYPE_CHECKING:
    from .arguments import Commands

_COLUMNS = ("email", "id")


def register_aliases(commands: "Commands") -> None:
    """Add the commands of this room."""
    add_command_group(
        commands, "aliases", "E-mail addresses of people, for the Data Rights Protocol.", _register_alias_commands
    )


def _register_alias_commands(commands: "Commands") -> None:
    add_command(commands, add, _add_file, add_vault)


def _add_file(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="A CSV file with the columns email and id.")


def add(args: Namespace) -> None:
    """Let e-mail addresses lead to ids; they are kept as keyed hashes, and the ids sealed."""
    from ..server.aliases import Aliases
    from ..server.audit import COMMAND_LINE, AuditTrail
    from ..server.database import Database, queue_path

    pairs, vault = _read_pairs(args.file), open_vault(args)
    database = Database(queue_path(vault.places.vault))
    aliases = Aliases(vault, database)
    with database.transaction():
        added = aliases.add(pairs)
        AuditTrail(database).record("aliases.added", actor=COMMAND_LINE, read=len(pairs), moved=added.moved)
    if args.json:
        counts = {"moved": added.moved, "erased": added.erased, "aliases": aliases.count()}
        terminal.say_json({"read": len(pairs), **counts})
        return
    terminal.say(f"read: {terminal.pluralize(len(pairs), 'address', 'addresses')}; known: {aliases.count()}")
    if added.moved:
        terminal.note(f"{terminal.pluralize(added.moved, 'address', 'addresses')} led to another id before")
    if added.erased:
        terminal.note(f"{terminal.pluralize(added.erased, 'address', 'addresses')} left out: the person is erased")


def _read_pairs(path: Path) -> list[tuple[str, str]]:
    """The addresses and ids of a file; each address once."""
    from ..errors import InvalidInput
    from ..server.aliases import normalise_email

    found = dict[str, str]()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if not set(_COLUMNS) <= set(rows.fieldnames or ()):
                raise InvalidInput(f"{path} must have the columns email and id")
            for row in rows:
                email, id_ = (row[name] or "" for name in _COLUMNS)
                if (text := normalise_email(email)) is None or not id_:
                    raise InvalidInput(f"{path}, line {rows.line_num}: needs an e-mail address and an id")
                if found.setdefault(text, id_) != id_:
                    raise InvalidInput(f"{path}, line {rows.line_num}: this address leads to another id above")
    except (UnicodeDecodeError, csv.Error):
        raise InvalidInput(f"{path} cannot be read as CSV in UTF-8") from None
    if not found:
        raise InvalidInput(f"{path} has no rows")
    return list(found.items())


if TYPE_CHECKING:
    from .arguments import Commands

_SCOPES = ("predict", "erase", "rows", "read", "admin")


def register(commands: "Commands") -> None:
    """Add the commands of this room."""
    add_command(commands, serve, _add_serve_options, add_key, add_vault)
    add_command_group(commands, "token", "Tokens: who may ask the service for what.", _register_token_commands)


def _register_token_commands(commands: "Commands") -> None:
    add_command(commands, new, _add_token_options, add_vault)
    add_command(commands, list_tokens, _add_valid, add_vault, name="list")
    add_command(commands, revoke, _add_token_id, add_vault)


def _add_serve_options(parser: Parser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="Where to listen (default: 127.0.0.1, this machine only).")
    parser.add_argument("--port", type=whole_number(0), default=8080, help="The port (default: 8080).")
    parser.add_argument(
        "--window", type=_parse_duration, default=timedelta(0), help="How long a request can be cancelled, like 24h."
    )
    parser.add_argument(
        "--batch", metavar="every=TIME|size=N", type=_parse_batch, default={}, help="Carry requests out together."
    )
    parser.add_argument(
        "--two-person-release",
        action="store_true",
        help="The release of a matter needs the confirmation of a second token.",
    )
    parser.add_argument(
        "--regulation", choices=("gdpr", "ccpa"), default="gdpr", help="For requests that name none (default: gdpr)."
    )
    parser.add_argument(
        "--organisation", metavar="NAME", default="", help="Who runs the service: the certificates for people name it."
    )
    parser.add_argument(
        "--public-url",
        metavar="URL",
        help="How other systems reach the service, like https://privacy.example.com (default: localhost).",
    )
    parser.add_argument(
        "--root-path",
        metavar="PATH",
        type=_parse_root_path,
        default="",
        help="The path below which a proxy shows the service, like /expunge.",
    )
    add_allow_host(parser)
    parser.add_argument(
        "--drp-directory", metavar="FILE", type=Path, help="The agents of the Data Rights Protocol (JSON)."
    )
    parser.add_argument("--business-id", metavar="NAME", default="", help="What those agents call this business.")
    parser.add_argument(
        "--verify-every",
        metavar="TIME",
        type=_parse_interval,
        help="Verify the vault this often, like 24h (default: never).",
    )
    parser.add_argument(
        "--readers",
        metavar="N",
        type=whole_number(0),
        default=0,
        help="More processes that only predict (default: none).",
    )
    parser.add_argument(
        "--open-metrics", action="store_true", help="Answer /metrics without a token: whoever reads it sees counts."
    )
    parser.add_argument("--tls-cert", metavar="FILE", type=Path, help="A certificate (PEM), to speak TLS.")
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="Its private key (PEM).")
    parser.add_argument(
        "--drain",
        metavar="TIME",
        type=_parse_duration,
        default=timedelta(seconds=5),
        help="After SIGTERM: how long to answer although not ready any more, before the port closes (default: 5s).",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="Which lines are logged: these and graver ones (default: info).",
    )


def serve(args: Namespace) -> None:
    """Answer erasure requests and predictions over HTTP, in front of a vault."""
    from ..server.app import Limits
    from ..server.process import ListenAddress, serve
    from ..server.service import Options
    from ..vault.requests.request import check_one_line

    address = ListenAddress(args.host, args.port, args.tls_cert, args.tls_key)
    options = Options(
        window=args.window,
        two_person_release=args.two_person_release,
        regulation=args.regulation,
        organisation=check_one_line("organisation", args.organisation),
        public_url=args.public_url,
        root_path=args.root_path,
        allow_hosts=tuple(args.allow_host),
        drp_directory=args.drp_directory,
        business_id=args.business_id,
        verify_every=args.verify_every,
        open_metrics=args.open_metrics,
        **args.batch,
    )
    drain = args.drain.total_seconds()
    serve(open_vault(args), address, options, Limits(), args.readers, drain=drain, log_level=args.log_level)


def _add_token_options(parser: Parser) -> None:
    parser.add_argument("--scope", choices=_SCOPES, action="append", required=True, help="What it allows; may repeat.")
    parser.add_argument("--name", default="token", help="Whose it is: the ledger names it with each request.")
    parser.add_argument("--days", type=whole_number(1, 36_500), default=365, help="How long it counts (default: 365).")


def new(args: Namespace) -> None:
    """Make a token; its text is shown once."""
    token, text = _open_tokens(args).new(args.name, args.scope, timedelta(days=args.days))
    if args.json:
        terminal.say_json({**_view_token(token), "token": text})
    else:
        terminal.note("keep it: it is shown once, and kept as a hash only")
        terminal.say(text)


def _add_valid(added: Parser) -> None:
    added.add_argument("--valid", action="store_true", help="Only those that count: neither revoked nor expired.")


def list_tokens(args: Namespace) -> None:
    """Tell which tokens there are, without their texts."""
    now = datetime.now(UTC)
    found = [_view_token(token) for token in _open_tokens(args).every() if token.valid(now) or not args.valid]
    if args.json:
        terminal.say_json(found)
        return
    heads = ("id", "name", "scopes", "expires", "revoked", "used")
    lines = [[str(one[name] or "-") if name != "scopes" else ",".join(one[name]) for name in heads] for one in found]
    terminal.say(terminal.format_table([heads, *lines]))


def _add_token_id(parser: Parser) -> None:
    parser.add_argument("id", help="The id of the token; expunge token list tells it.")


def revoke(args: Namespace) -> None:
    """Let a token count no more."""
    found = _view_token(_open_tokens(args).revoke(args.id))
    if args.json:
        terminal.say_json(found)
    else:
        terminal.say(f"revoked: {found['id']}")


def _open_tokens(args: Namespace) -> Any:
    from ..server.database import Database, queue_path
    from ..server.tokens import Tokens

    return Tokens(Database(queue_path(open_vault(args).places.vault)))


def _view_token(token: Any) -> dict[str, Any]:
    from ..server.clocks import format_time

    times = {name: getattr(token, name) for name in ("made", "expires", "revoked", "used")}
    told = {name: None if time is None else format_time(time) for name, time in times.items()}
    return {"id": token.id, "name": token.name, "scopes": sorted(token.scopes), **told}


def _parse_duration(text: str) -> timedelta:
    from ..errors import InvalidSetting
    from ..server.clocks import parse_duration

    try:
        return parse_duration(text)
    except InvalidSetting as error:
        raise ArgumentTypeError(str(error)) from None


def _parse_interval(text: str) -> timedelta:
    if not (found := _parse_duration(text)):
        raise ArgumentTypeError("must be longer than nothing")
    return found


def _parse_root_path(text: str) -> str:
    from ..errors import InvalidSetting
    from ..server.middleware import check_prefix

    try:
        return check_prefix(text)
    except InvalidSetting as error:
        raise ArgumentTypeError(str(error)) from None


def _parse_batch(text: str) -> dict[str, Any]:
    name, _, value = text.partition("=")
    if name == "every":
        return {"batch_every": _parse_duration(value)}
    if name == "size" and value.isascii() and value.isdecimal() and int(value) > 0:
        return {"batch_size": int(value)}
    raise ArgumentTypeError(f"must be every=TIME (1h) or size=NUMBER (100), got {text!r}")


if TYPE_CHECKING:
    from ..server.service import Service
    from ..server.webhooks import Hooks
    from .arguments import Commands

_TEST_FAILED = 1  # exit code of a test that did not arrive


def register_webhooks(commands: "Commands") -> None:
    """Add the commands of this room."""
    add_command_group(commands, "webhook", "Webhooks: what was posted to other systems.", _register_webhook_commands)


def _register_webhook_commands(commands: "Commands") -> None:
    add_command(commands, list_webhooks, add_vault, name="list")
    add_command(commands, deliveries, _add_webhook_id, _add_filter, add_vault)
    add_command(commands, resend, _add_webhook_id, _add_delivery, add_vault)
    add_command(commands, test, _add_webhook_id, add_allow_host, add_vault)


def _add_webhook_id(parser: Parser) -> None:
    parser.add_argument("id", help="The id of the webhook; expunge webhook list tells it.")


def _add_filter(parser: Parser) -> None:
    parser.add_argument("--state", choices=("waiting", "sent", "failed"), help="Only those in this state.")
    parser.add_argument("--limit", metavar="N", type=whole_number(1), default=50, help="At most so many (default: 50).")


def _add_delivery(parser: Parser) -> None:
    parser.add_argument("delivery", type=whole_number(1), help="The number that expunge webhook deliveries tells.")


def list_webhooks(args: Namespace) -> None:
    """Tell which webhooks there are, and how many of their deliveries wait, arrived or failed."""
    from ..server.views import webhook_view

    with _open_service(args) as service:
        found = [webhook_view(one) | service.deliveries.counts(one.id) for one in service.hooks.list_all()]
    _print_table(args, found, ("id", "url", "events", "off", "waiting", "sent", "failed"))


def deliveries(args: Namespace) -> None:
    """Tell what was posted to a webhook in the last 30 days, the newest first, and why tries failed."""
    from ..server.views import delivery_view

    with _open_service(args) as service, _explain_unknown(service) as hooks:
        found = service.deliveries.list_for_hook(hooks.get(args.id).id, state=args.state, limit=args.limit)
    _print_table(
        args, [delivery_view(one) for one in found], ("id", "event", "state", "reason", "answer", "tries", "next")
    )


def resend(args: Namespace) -> None:
    """Send a message again; the running service does it within a second, or the next one that starts."""
    from ..server.views import delivery_view

    with _open_service(args) as service, _explain_unknown(service) as hooks:
        found = delivery_view(hooks.resend(args.id, args.delivery))
    if args.json:
        terminal.say_json(found)
    else:
        terminal.say(f"waits to be sent: {found['id']}")


def test(args: Namespace) -> int:
    """Post a test message to a webhook from here, once, and tell how that went."""
    from ..server.logs import minimum_level
    from ..server.views import delivery_view

    with (
        _open_service(args, tuple(args.allow_host)) as service,
        _explain_unknown(service) as hooks,
        minimum_level("error"),
    ):
        found = delivery_view(hooks.send_test(args.id))  # the answer says what a line of the log would
    arrived = found["state"] == "sent"
    if args.json:
        terminal.say_json(found)
    elif arrived:
        terminal.say(f"sent: answered {found['answer']}")
    else:
        answered = f" (answered {found['answer']})" if found["answer"] else ""
        terminal.say(f"failed: {found['detail']}{answered}")
    return 0 if arrived else _TEST_FAILED


@contextmanager
def _open_service(args: Namespace, allow_hosts: tuple[str, ...] = ()) -> Iterator["Service"]:
    """A service that is not started: its database is that of the one that runs."""
    from ..server.database import Database, queue_path
    from ..server.service import Options, Service

    vault = open_vault(args)
    database = Database(queue_path(vault.places.vault))
    try:
        yield Service(vault, database, Options(allow_hosts=allow_hosts))
    finally:
        database.close()


@contextmanager
def _explain_unknown(service: "Service") -> Iterator["Hooks"]:
    from ..errors import UnknownId

    try:
        yield service.hooks
    except LookupError:
        raise UnknownId("there is no such webhook or delivery; expunge webhook list tells which there are") from None


def _print_table(args: Namespace, records: list[dict[str, Any]], heads: tuple[str, ...]) -> None:
    if args.json:
        terminal.say_json(records)
        return
    lines = [[_format_cell(one[name]) for name in heads] for one in records]
    terminal.say(terminal.format_table([heads, *lines]))


def _format_cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return ",".join(value) if isinstance(value, list) else str(value)
