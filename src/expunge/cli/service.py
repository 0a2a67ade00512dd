"""``expunge serve``, and the commands that manage its tokens, webhooks and aliases."""

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
    current_user,
    open_queue,
    open_vault,
    whole_number,
)

if TYPE_CHECKING:
    from ..server.service import Service
    from ..server.tokens import Token, Tokens
    from ..server.webhooks import Hooks
    from .arguments import Commands

_SCOPES = ("predict", "erase", "rows", "read", "admin")
_ALIAS_COLUMNS = ("email", "id")
_TEST_FAILED = 1  # exit code of a test message that was not delivered


def register(commands: "Commands") -> None:
    """Add ``serve`` and ``token``."""
    add_command(commands, serve, _add_serve_options, add_key, add_vault)
    add_command_group(commands, "token", "Manage tokens, which grant access to the service.", _register_token_commands)


def _register_token_commands(commands: "Commands") -> None:
    add_command(commands, new, _add_token_options, add_vault)
    add_command(commands, list_tokens, _add_valid, add_vault, name="list")
    add_command(commands, revoke, _add_token_id, add_vault)


def _add_serve_options(parser: Parser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="Where to listen (default: 127.0.0.1, this machine only).")
    parser.add_argument("--port", type=whole_number(0), default=8080, help="The port (default: 8080).")
    parser.add_argument(
        "--window", type=_parse_duration, default=timedelta(0), help="How long a request can be cancelled, such as 24h."
    )
    parser.add_argument(
        "--batch", metavar="every=TIME|size=N", type=_parse_batch, default={}, help="Run requests in batches."
    )
    parser.add_argument(
        "--two-person-release",
        action="store_true",
        help="Require a second token to confirm the release of a matter.",
    )
    parser.add_argument(
        "--regulation",
        choices=("gdpr", "ccpa"),
        default="gdpr",
        help="The regulation of requests without one (default: gdpr).",
    )
    parser.add_argument(
        "--organisation",
        metavar="NAME",
        default="",
        help="The operator of the service; shown in certificates for people.",
    )
    parser.add_argument(
        "--public-url",
        metavar="URL",
        help="The public URL of the service, such as https://privacy.example.com (default: localhost).",
    )
    parser.add_argument(
        "--root-path",
        metavar="PATH",
        type=_parse_root_path,
        default="",
        help="The path of the service behind a proxy, such as /expunge.",
    )
    add_allow_host(parser)
    parser.add_argument(
        "--drp-directory", metavar="FILE", type=Path, help="The agents of the Data Rights Protocol (JSON)."
    )
    parser.add_argument(
        "--business-id", metavar="NAME", default="", help="The name of this business in that directory."
    )
    parser.add_argument(
        "--verify-every",
        metavar="TIME",
        type=_parse_interval,
        help="Verify the vault this often, such as 24h (default: never).",
    )
    parser.add_argument(
        "--replan-every",
        metavar="TIME",
        type=_parse_interval,
        default=timedelta(days=7),
        help="Choose the settings again this long after an erasure that needs it, at the latest (default: 7d).",
    )
    parser.add_argument(
        "--replan-after",
        metavar="N",
        type=whole_number(1),
        default=50,
        help="Choose the settings again once this many people need it (default: 50).",
    )
    parser.add_argument(
        "--predict-workers",
        metavar="N",
        type=whole_number(0),
        default=0,
        help="More processes that only predict, on a port of their own (default: none).",
    )
    parser.add_argument(
        "--predict-port",
        metavar="PORT",
        type=whole_number(0),
        default=8081,
        help="The port of the prediction workers (default: 8081).",
    )
    parser.add_argument(
        "--open-metrics", action="store_true", help="Serve /metrics without a token; anyone can then read the counts."
    )
    parser.add_argument("--tls-cert", metavar="FILE", type=Path, help="The certificate (PEM) for TLS.")
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="Its private key (PEM).")
    parser.add_argument(
        "--drain",
        metavar="TIME",
        type=_parse_duration,
        default=timedelta(seconds=5),
        help="After SIGTERM, how long to keep answering while reporting not ready (default: 5s).",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="The lowest level that is logged (default: info).",
    )


def serve(args: Namespace) -> None:
    """Serve a vault over HTTP: erasure requests, predictions and a dashboard."""
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
        replan_every=args.replan_every,
        replan_after=args.replan_after,
        open_metrics=args.open_metrics,
        **args.batch,
    )
    serve(
        open_vault(args),
        address,
        options,
        Limits(),
        predict_workers=args.predict_workers,
        predict_port=args.predict_port,
        drain=args.drain.total_seconds(),
        log_level=args.log_level,
    )


def _add_token_options(parser: Parser) -> None:
    parser.add_argument(
        "--scope", choices=_SCOPES, action="append", required=True, help="What the token allows; may be repeated."
    )
    parser.add_argument(
        "--name", default="token", help="The owner of the token; stored in the ledger with each request."
    )
    parser.add_argument(
        "--days",
        type=whole_number(1, 36_500),
        default=365,
        help="The number of days for which it is valid (default: 365).",
    )


def new(args: Namespace) -> None:
    """Create a token; its text is shown once."""
    with _open_tokens(args) as tokens:
        token, text = tokens.create(args.name, args.scope, timedelta(days=args.days), current_user())
    if args.json:
        terminal.say_json({**_view_token(token), "token": text})
    else:
        terminal.note("store it safely: it is shown only once, because only its hash is stored")
        terminal.say(text)


def _add_valid(parser: Parser) -> None:
    parser.add_argument("--valid", action="store_true", help="List only tokens that are neither revoked nor expired.")


def list_tokens(args: Namespace) -> None:
    """List tokens, without their texts."""
    now = datetime.now(UTC)
    with _open_tokens(args) as tokens:
        records = [_view_token(token) for token in tokens.list_all() if token.is_valid(now) or not args.valid]
    _print_table(args, records, ("id", "name", "scopes", "expires", "revoked", "used"))


def _add_token_id(parser: Parser) -> None:
    parser.add_argument("id", help="The id of the token, from expunge token list.")


def revoke(args: Namespace) -> None:
    """Revoke a token."""
    with _open_tokens(args) as tokens:
        record = _view_token(tokens.revoke(args.id, current_user()))
    if args.json:
        terminal.say_json(record)
    else:
        terminal.say(f"revoked: {record['id']}")


@contextmanager
def _open_tokens(args: Namespace) -> Iterator["Tokens"]:
    from ..server.tokens import Tokens

    with open_queue(open_vault(args)) as database:
        yield Tokens(database)


def _view_token(token: "Token") -> dict[str, Any]:
    from ..server.clocks import format_time

    times = {name: getattr(token, name) for name in ("made", "expires", "revoked", "used")}
    texts = {name: format_time(time) for name, time in times.items()}
    return {"id": token.id, "name": token.name, "scopes": sorted(token.scopes), **texts}


def _parse_duration(text: str) -> timedelta:
    from ..errors import InvalidSetting
    from ..server.clocks import parse_duration

    try:
        return parse_duration(text)
    except InvalidSetting as error:
        raise ArgumentTypeError(str(error)) from None


def _parse_interval(text: str) -> timedelta:
    if not (interval := _parse_duration(text)):
        raise ArgumentTypeError("must be longer than 0")
    return interval


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
    raise ArgumentTypeError(f"must be every=TIME or size=NUMBER, such as every=1h or size=100, got {text!r}")


def register_webhooks(commands: "Commands") -> None:
    """Add ``webhook``."""
    add_command_group(
        commands, "webhook", "Show and test webhooks, which notify other systems.", _register_webhook_commands
    )


def _register_webhook_commands(commands: "Commands") -> None:
    add_command(commands, list_webhooks, add_vault, name="list")
    add_command(commands, deliveries, _add_webhook_id, _add_filter, add_vault)
    add_command(commands, resend, _add_webhook_id, _add_delivery, add_vault)
    add_command(commands, test, _add_webhook_id, add_allow_host, add_vault)


def _add_webhook_id(parser: Parser) -> None:
    parser.add_argument("id", help="The id of the webhook, from expunge webhook list.")


def _add_filter(parser: Parser) -> None:
    parser.add_argument("--state", choices=("waiting", "sent", "failed"), help="List only deliveries in this state.")
    parser.add_argument(
        "--limit", metavar="N", type=whole_number(1), default=50, help="The maximum number (default: 50)."
    )


def _add_delivery(parser: Parser) -> None:
    parser.add_argument(
        "delivery", type=whole_number(1), help="The number of the delivery, from expunge webhook deliveries."
    )


def list_webhooks(args: Namespace) -> None:
    """List webhooks, with the number of waiting, sent and failed deliveries."""
    with _open_service(args) as service:
        records = [hook.view() | service.deliveries.counts(hook.id) for hook in service.hooks.list_all()]
    _print_table(args, records, ("id", "url", "events", "off", "waiting", "sent", "failed"))


def deliveries(args: Namespace) -> None:
    """List the deliveries of a webhook in the last 30 days, newest first, with reasons for failures."""
    with _open_service(args) as service, _explain_unknown(service) as hooks:
        listed = service.deliveries.list_for_hook(hooks.get(args.id).id, state=args.state, limit=args.limit)
    records = [delivery.view() for delivery in listed]
    _print_table(args, records, ("id", "event", "state", "reason", "answer", "tries", "next"))


def resend(args: Namespace) -> None:
    """Queue a message to be sent again; a running service sends it within a second."""
    with _open_service(args) as service, _explain_unknown(service) as hooks:
        record = hooks.resend(args.id, args.delivery).view()
    if args.json:
        terminal.say_json(record)
    else:
        terminal.say(f"queued: {record['id']}")


def test(args: Namespace) -> int:
    """Post one test message to a webhook from this process, and show the result."""
    from ..server.logs import minimum_level

    with (
        _open_service(args, tuple(args.allow_host)) as service,
        _explain_unknown(service) as hooks,
        minimum_level("error"),
    ):
        record = hooks.send_test(args.id).view()  # printed below, so it is not logged as well
    sent = record["state"] == "sent"
    if args.json:
        terminal.say_json(record)
    elif sent:
        terminal.say(f"sent: answered {record['answer']}")
    else:
        answered = f" (answered {record['answer']})" if record["answer"] else ""
        terminal.say(f"failed: {record['detail']}{answered}")
    return 0 if sent else _TEST_FAILED


@contextmanager
def _open_service(args: Namespace, allow_hosts: tuple[str, ...] = ()) -> Iterator["Service"]:
    """Yield a service that is not started; it shares its database with a running one."""
    from ..server.service import Options, Service

    vault = open_vault(args)
    with open_queue(vault) as database:
        yield Service(vault, database, Options(allow_hosts=allow_hosts))


@contextmanager
def _explain_unknown(service: "Service") -> Iterator["Hooks"]:
    from ..errors import UnknownId

    try:
        yield service.hooks
    except LookupError:
        raise UnknownId("unknown webhook or delivery; see expunge webhook list") from None


def _print_table(args: Namespace, records: list[dict[str, Any]], heads: tuple[str, ...]) -> None:
    if args.json:
        terminal.say_json(records)
        return
    lines = [[_format_cell(record[name]) for name in heads] for record in records]
    terminal.say(terminal.format_table([heads, *lines]))


def _format_cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return ",".join(value) if isinstance(value, list) else str(value)


def register_aliases(commands: "Commands") -> None:
    """Add ``aliases``."""
    add_command_group(
        commands, "aliases", "Map e-mail addresses to ids, for the Data Rights Protocol.", _register_alias_commands
    )


def _register_alias_commands(commands: "Commands") -> None:
    add_command(commands, add, _add_file, add_vault)


def _add_file(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="A CSV file with the columns email and id.")


def add(args: Namespace) -> None:
    """Map e-mail addresses to ids; addresses are stored as keyed hashes, ids encrypted."""
    from ..server.aliases import Aliases
    from ..server.audit import AuditTrail

    pairs, vault = _read_pairs(args.file), open_vault(args)
    with open_queue(vault) as database:
        aliases = Aliases(vault, database)
        with database.transaction():
            added = aliases.add(pairs)
            AuditTrail(database).record("aliases.added", actor=current_user(), read=len(pairs), moved=added.moved)
        total = aliases.count()
    if args.json:
        counts = {"moved": added.moved, "erased": added.erased, "aliases": total}
        terminal.say_json({"read": len(pairs), **counts})
        return
    terminal.say(f"read: {terminal.pluralize(len(pairs), 'address', 'addresses')}; stored: {total}")
    if added.moved:
        terminal.note(f"{terminal.pluralize(added.moved, 'address', 'addresses')} belonged to another id before")
    if added.erased:
        terminal.note(f"{terminal.pluralize(added.erased, 'address', 'addresses')} skipped: the person was erased")


def _read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the pairs of address and id in a file, each address once."""
    from ..errors import InvalidInput
    from ..server.aliases import normalise_email

    pairs = dict[str, str]()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if not set(_ALIAS_COLUMNS) <= set(rows.fieldnames or ()):
                raise InvalidInput(f"{path} must have the columns email and id")
            for row in rows:
                email, id_ = (row[name] or "" for name in _ALIAS_COLUMNS)
                if (text := normalise_email(email)) is None or not id_:
                    raise InvalidInput(f"{path}, line {rows.line_num}: needs an e-mail address and an id")
                if pairs.setdefault(text, id_) != id_:
                    raise InvalidInput(f"{path}, line {rows.line_num}: this address has another id above")
    except (UnicodeDecodeError, csv.Error):
        raise InvalidInput(f"{path} is not CSV in UTF-8") from None
    if not pairs:
        raise InvalidInput(f"{path} has no rows")
    return list(pairs.items())
